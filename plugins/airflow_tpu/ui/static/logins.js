// SPDX-License-Identifier: Apache-2.0
// SSH commands of the running TPUs, each with a button that copies it.

import { element } from "./table.js";

const byId = (id) => document.getElementById(id);
let shown = "";

// Placed anew only when they have changed, so that a button keeps the focus while the page renews its figures.
export function showLogins(commands) {
  byId("logins").hidden = !commands.length;
  if (JSON.stringify(commands) === shown) return;
  shown = JSON.stringify(commands);
  byId("login-list").replaceChildren(...commands.map(login));
  byId("copied").textContent = "";
}

function login({ name, command }) {
  const code = element("code", {}, command);
  const button = element("button", { type: "button", "aria-label": `Copy the SSH command of ${name}` }, "Copy");
  button.addEventListener("click", async () => {
    const done = await copied(code);
    byId("copied").textContent = done ? `Copied: the SSH command of ${name}.` : "Selected: copy it with your keyboard.";
  });
  return element("li", {}, code, button);
}

// The clipboard is there on HTTPS and on localhost only; elsewhere the old way, which copies what is selected.
async function copied(code) {
  window.getSelection().selectAllChildren(code);
  try {
    await navigator.clipboard.writeText(code.textContent);
    return true;
  } catch (error) {
    if (!(error instanceof TypeError || error instanceof DOMException)) throw error;
    return document.execCommand("copy");
  }
}
