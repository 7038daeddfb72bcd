// SPDX-License-Identifier: Apache-2.0
// Airflow's own choice of light or dark, before anything is drawn. Its UI keeps it in this key of localStorage (next-themes);
// "system", or nothing, leaves it to prefers-color-scheme.
"use strict";
(() => {
  const KEY = "theme";
  const apply = () => {
    let choice = null;
    try {
      choice = window.localStorage.getItem(KEY);
    } catch {
      // Storage may be blocked; then the system decides.
    }
    const root = document.documentElement;
    if (choice === "dark" || choice === "light") root.dataset.theme = choice;
    else delete root.dataset.theme;
    window.dispatchEvent(new Event("themechange"));
  };
  apply();
  // Fires here when the frame around this page writes it.
  window.addEventListener("storage", (event) => event.key === KEY && apply());
  window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", apply);
})();
