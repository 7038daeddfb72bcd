// SPDX-License-Identifier: Apache-2.0
// Fetches the page's figures and places them. All text comes ready from the server; what is unknown arrives as such.

import { Chart } from "./chart.js";
import { gauges } from "./gauge.js";
import { followLinks } from "./links.js";
import { showLogins } from "./logins.js";
import { element, table } from "./table.js";

const AGAIN_SECONDS = 60;
const LOADING_SECONDS = 2;
const TABLES = { tpus: "TPUs", orphans: "Orphans", value: "List value not paid", billed: "Not free", preemptions: "Preemptions" };
const byId = (id) => document.getElementById(id);
let chart = null;

const REFUSALS = {
  401: "Your session has ended. Reload Airflow to log in again.",
  403: "You may not see this page: it needs the right to see Airflow and its DAG runs.",
};

async function refresh() {
  let next = AGAIN_SECONDS;
  try {
    const answer = await fetch("data", { headers: { Accept: "application/json" }, cache: "no-store" });
    const data = answer.ok ? await answer.json() : null;
    if (data?.state === "ready") show(data);
    else if (data) next = LOADING_SECONDS;
    else say(REFUSALS[answer.status] ?? `Airflow answered ${answer.status}; its API server's log says why. What stands below is old.`);
  } catch (error) {
    if (!(error instanceof TypeError)) throw error;
    say("Airflow did not answer. What stands below is old; the next try is in a minute.");
  }
  // A page in the background asks for nothing.
  setTimeout(() => (document.hidden ? document.addEventListener("visibilitychange", refresh, { once: true }) : refresh()), next * 1000);
}

function say(text) {
  byId("as-of").textContent = text;
}

function show(data) {
  say(`Project ${data.project}, as of ${data.as_of}`);
  byId("problems").replaceChildren(...data.problems.map(({ part, text }) =>
    element("li", {}, element("strong", {}, `Could not read the ${part}, shown as unknown: `), text)));
  byId("problems").hidden = !data.problems.length;
  byId("tiles").replaceChildren(...data.tiles.map(tile));
  byId("gauges").replaceChildren(...gauges(data.gauges));
  for (const [id, label] of Object.entries(TABLES)) byId(id).replaceChildren(...table(data[id], label));
  showLogins(data.logins);
  byId("content").hidden = false;
  showChart(data.chart);
}

function tile({ label, value, note, tone }) {
  return element("div", { class: `tile ${tone}` }, element("dt", {}, label), element("dd", {}, value),
    ...(note ? [element("dd", { class: "note" }, note)] : []));
}

function showChart(data) {
  chart?.plot.destroy();
  chart = null;
  const empty = data === null ? "unknown: the ledger could not be read" : data.series.length ? "" : data.table.empty;
  byId("chart").replaceChildren(...(empty ? [element("p", { class: "empty" }, empty)] : []));
  byId("legend").replaceChildren();
  byId("chart-details").hidden = Boolean(empty);
  if (empty) return;
  byId("chart-table").replaceChildren(...table(data.table, "Chip-hours per day"));
  chart = new Chart(byId("chart"), byId("legend"), data);
}

new ResizeObserver(() => chart?.resize()).observe(byId("chart"));
window.addEventListener("themechange", () => chart?.draw());
followLinks(document);
refresh();
