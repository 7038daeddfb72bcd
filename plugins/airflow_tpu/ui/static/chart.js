// SPDX-License-Identifier: Apache-2.0
// Chip-hours per day as stacked bars. The canvas takes its colours from the style sheet, so that both themes look right.

import { element } from "./table.js";

const SECONDS_PER_DAY = 86400;
const HEIGHT = 240;
const BAR = uPlot.paths.bars({ size: [0.8, 48] });

export class Chart {
  constructor(box, legend, data) {
    this.box = box;
    this.data = data;
    this.swatches = data.series.map((series, number) => element("span", { class: `swatch s${number}` }));
    legend.replaceChildren(...data.series.map((series, number) => element("li", {}, this.swatches[number], series.name)));
    this.draw();
  }

  draw() {
    this.plot?.destroy();
    const { days, series } = this.data;
    const x = days.map((day) => Date.parse(`${day}T00:00:00Z`) / 1000);
    // The tallest stack first: each lower one is painted over it, and what stays visible of each is its own share.
    const stacks = stacked(series.map((one) => one.values)).reverse();
    const colours = this.swatches.map((swatch) => getComputedStyle(swatch).backgroundColor).reverse();
    const lines = colours.map((colour) => ({ stroke: colour, fill: colour, width: 0, paths: BAR, points: { show: false } }));
    this.plot = new uPlot({ ...options(this.box, days), series: [{}, ...lines] }, [x, ...stacks], this.box);
    this.box.setAttribute("role", "img");
    this.box.setAttribute("aria-label", summary(days, series));
  }

  resize() {
    this.plot.setSize({ width: this.box.clientWidth, height: HEIGHT });
  }
}

function stacked(lines) {
  const sum = (lines[0] ?? []).map(() => 0);
  return lines.map((line) => line.map((value, day) => (sum[day] += value)));
}

function options(box, days) {
  const style = getComputedStyle(box);
  const grid = { stroke: style.borderTopColor, width: 1 };
  const axis = { stroke: style.color, grid, ticks: grid, font: "12px system-ui, sans-serif" };
  const edges = [days[0], days.at(-1)].map((day) => Date.parse(`${day}T00:00:00Z`) / 1000);
  return {
    width: box.clientWidth,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), "Etc/UTC"),
    scales: {
      x: { range: () => [edges[0] - SECONDS_PER_DAY / 2, edges[1] + SECONDS_PER_DAY / 2] },
      y: { range: (plot, low, high) => [0, (high || 1) * 1.05] },
    },
    axes: [
      { ...axis, grid: { show: false }, space: 80, incrs: [1, 2, 7, 14, 28].map((n) => n * SECONDS_PER_DAY), values: (plot, splits) => splits.map(date) },
      { ...axis, size: 56, label: "chip-hours", labelSize: 20, labelFont: axis.font },
    ],
  };
}

function date(seconds) {
  return new Date(seconds * 1000).toLocaleDateString(undefined, { day: "numeric", month: "short", timeZone: "UTC" });
}

function summary(days, series) {
  const total = (values) => values.reduce((sum, value) => sum + value, 0);
  const figure = (value) => (value < 1 ? value.toPrecision(2) : value.toFixed(1));
  const parts = series.map((one) => `${one.name} ${figure(total(one.values))}`);
  return `Chip-hours per day from ${days[0]} to ${days.at(-1)}, stacked by DAG. Totals: ${parts.join(", ") || "none"}. The table below has every day.`;
}
