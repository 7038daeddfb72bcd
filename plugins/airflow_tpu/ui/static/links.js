// SPDX-License-Identifier: Apache-2.0
// Airflow shows this page in a frame whose sandbox allows neither new tabs nor leaving the frame, so plain links would do nothing.
// The page is Airflow's own origin and may act in the surrounding document, which its maintainers say of their own sandbox:
// https://github.com/apache/airflow/pull/71803

export function followLinks(root) {
  root.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    const outer = surrounding();
    if (!link || !outer) return;
    event.preventDefault();
    const copy = outer.createElement("a");
    copy.href = link.href;
    copy.rel = link.rel;
    copy.target = link.target === "_blank" || event.ctrlKey || event.metaKey || event.shiftKey ? "_blank" : "_top";
    outer.body.append(copy);
    copy.click();
    copy.remove();
  });
}

function surrounding() {
  if (window.parent === window) return null;
  try {
    return window.parent.document;
  } catch (error) {
    if (error instanceof DOMException) return null;
    throw error;
  }
}
