// SPDX-License-Identifier: Apache-2.0
// Every visible text whose contrast with what lies behind it is below 4.5 to 1 (WCAG 2.2, 1.4.3).
() => {
  const parse = (colour) => colour.match(/[\d.]+/g).map(Number);
  const channel = (value) => (value / 255 <= 0.04045 ? value / 255 / 12.92 : ((value / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const texts = [...document.querySelectorAll("body *")].filter((node) =>
    node.checkVisibility() && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
  return texts.map((node) => {
    const [a, b] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    return { text: node.textContent.trim(), ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
  }).filter(({ ratio }) => ratio < 4.5);
}
