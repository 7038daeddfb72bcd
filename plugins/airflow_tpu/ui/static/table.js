// SPDX-License-Identifier: Apache-2.0
// Tables from the server's JSON. Everything goes in as text, never as HTML.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== "" && value !== undefined && value !== null) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Roles are said in full, because the narrow layout turns rows into cards and browsers then forget that it is a table.
export function table(data, label) {
  if (!data.rows.length) return [paragraph(data.empty, "empty"), paragraph(data.more, "more")];
  const heads = data.columns.map((column) =>
    element("th", { scope: "col", role: "columnheader", class: column.kind }, column.text));
  const made = element("table", { role: "table", "aria-label": label },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
    element("tbody", { role: "rowgroup" }, ...data.rows.map((cells) => row(cells, data.columns))));
  return [made, paragraph(data.more, "more")];
}

function row(cells, columns) {
  return element("tr", { role: "row" }, ...cells.map((cell, number) => {
    const column = columns[number];
    const kind = number === 0 ? { name: "th", scope: "row", role: "rowheader" } : { name: "td", role: "cell" };
    const { name, ...attributes } = kind;
    return element(name, { ...attributes, class: column.kind, "data-label": column.text }, content(cell));
  }));
}

function content(cell) {
  const inner = element("span", { class: cell.tone ? `tone ${cell.tone}` : "" }, cell.href ? link(cell) : cell.text);
  const box = element("span", { class: "cell" }, inner);
  if (cell.note) box.append(element("span", { class: "note" }, cell.note));
  return box;
}

function link(cell) {
  const outside = cell.href.startsWith("https://");
  const attributes = outside ? { target: "_blank", rel: "noopener noreferrer" } : { target: "_top" };
  const hint = outside ? element("span", { class: "unseen" }, " (Google Cloud console, new tab)") : "";
  return element("a", { href: cell.href, ...attributes }, cell.text, hint);
}

function paragraph(text, kind) {
  return text ? element("p", { class: kind }, text) : "";
}
