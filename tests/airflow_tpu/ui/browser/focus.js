// SPDX-License-Identifier: Apache-2.0
// Where the focus is, and how thick the line around it.
() => {
  const box = document.activeElement.getBoundingClientRect();
  const style = getComputedStyle(document.activeElement);
  const outline = style.outlineStyle === "none" ? 0 : parseFloat(style.outlineWidth);
  return { place: `${document.activeElement.tagName} ${box.x + scrollX} ${box.y + scrollY}`, outline };
}
