// SPDX-License-Identifier: Apache-2.0
// One gauge per allowance, drawn in the table that says the same in numbers.

import { element } from "./table.js";

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 200;
const HEIGHT = 12;
const UNKNOWN = "unknown";

export function gauges(list) {
  if (list === null) return [element("p", { class: "empty" }, "unknown: the grant could not be read")];
  const titles = ["Allowance", "Gauge", "In use", "Dead", "Idle", "Over"];
  const heads = titles.map((title, number) =>
    element("th", { scope: "col", role: "columnheader", class: number > 1 ? "number" : number === 1 ? "gauge" : "text" }, title));
  return [element("table", { role: "table", class: "gauges", "aria-label": "Allowances of the grant" },
    element("thead", { role: "rowgroup" }, element("tr", { role: "row" }, ...heads)),
    element("tbody", { role: "rowgroup" }, ...list.map(row)))];
}

function row(gauge) {
  const numbers = ["in_use", "dead", "idle", "over"].map((name, number) => {
    const value = gauge[name];
    const tone = value === null ? "tone unknown" : name === "over" && value ? "tone bad" : name === "dead" && value ? "tone warn" : "";
    return element("td", { role: "cell", class: "number", "data-label": ["In use", "Dead", "Idle", "Over"][number] },
      element("span", { class: tone }, value === null ? UNKNOWN : String(value)));
  });
  const known = gauge.in_use !== null;
  return element("tr", { role: "row" },
    element("th", { scope: "row", role: "rowheader", class: "text" },
      element("span", { class: "cell" }, gauge.name, known ? "" : element("span", { class: "note" }, gauge.text))),
    element("td", { role: "cell", class: "gauge", "data-label": "Gauge" }, bar(gauge)), ...numbers);
}

// The whole bar is the allowance, or what is held when that is more.
function bar(gauge) {
  const drawing = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": gauge.text, preserveAspectRatio: "none" });
  if (gauge.in_use === null) {
    drawing.append(svg("rect", { class: "unknown", x: 0.5, y: 0.5, width: WIDTH - 1, height: HEIGHT - 1 }));
    return drawing;
  }
  const whole = Math.max(gauge.count, gauge.in_use + gauge.dead);
  let left = 0;
  for (const [kind, amount] of [["used", gauge.in_use - gauge.over], ["dead", gauge.dead], ["idle", gauge.idle], ["over", gauge.over]]) {
    const width = (WIDTH * amount) / whole;
    if (width) drawing.append(svg("rect", { class: kind, x: left, y: 0, width, height: HEIGHT }));
    left += width;
  }
  return drawing;
}

function svg(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
