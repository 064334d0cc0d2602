// Create elements from names, attributes and texts. A text becomes a text node, never markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const el = (name, attributes = {}, ...children) => fill(document.createElement(name), attributes, children);
export const svg = (name, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, name), attributes, children);

// Replace the children of an element. The new element with the same `data-focus` keeps the focus.
export function swap(parent, ...children) {
  const held = parent.contains(document.activeElement) ? document.activeElement.dataset.focus : undefined;
  parent.replaceChildren(...children);
  if (held !== undefined) parent.querySelector(`[data-focus="${CSS.escape(held)}"]`)?.focus();
}

// A table with the figures of a chart, for screen readers. Tests read it, too.
export function unseen(caption, heads, rows) {
  return el(
    "table",
    { class: "unseen" },
    el("caption", {}, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el(
      "tbody",
      {},
      ...rows.map(([head, ...cells]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, head),
          ...cells.map((cell) => el("td", { "data-y": cell.y ?? "" }, cell.text)),
        ),
      ),
    ),
  );
}
