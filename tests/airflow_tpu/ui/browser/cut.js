// SPDX-License-Identifier: Apache-2.0
// Every cell, figure and heading whose content is wider than itself.
() => [...document.querySelectorAll("th, td, dt, dd, h1, h2, p, li")]
  .filter((node) => node.checkVisibility() && !node.closest("thead") && node.scrollWidth > node.clientWidth + 1)
  .map((node) => node.textContent)
