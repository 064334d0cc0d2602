// The selection of a page. The URL stores it; the search field, time range, filters and chips show and change it.

import { el } from "./dom.js";
import { moment, numbers } from "./format.js";
import { copy, instant, read, toggle, write } from "./state.js";

export const data = JSON.parse(document.getElementById("data").textContent);
export const $ = (id) => document.getElementById(id);
const RANGES = ["all", "last 15 minutes", "last 1 hour", "last 24 hours", "last 7 days", "last 30 days", "last 12 months"];
const HEADINGS = new Map(data.facets.map((one) => [one.name, one.heading]));

let state = read(location.search);
let onChange = () => {};
// returns further parameters of the URL: whose panel's rows, and their sort order
let moreQuery = () => "";
let onReset = () => {};

export const chosenQuery = () => write(state);
export const picked = (column, value) => Boolean(state.picks.get(column)?.has(value));
const url = () => [write(state), moreQuery()].filter(Boolean).join("&");

export function choose(change, { replace = false } = {}) {
  const next = copy(state);
  change(next);
  if (write(next) === write(state)) return;
  state = next;
  onReset();
  remember({ replace });
  showChosen();
  onChange();
}

export function remember({ replace = false } = {}) {
  const query = url();
  history[replace ? "replaceState" : "pushState"](null, "", query ? `?${query}` : location.pathname);
}

export const pick = (column, value) => choose((next) => toggle(next, column, value));

// Filter a column to values from `low` (inclusive) to `high` (exclusive). Choosing the same range again removes the filter.
export const bounded = (column, low, high) => state.between.get(column) === `${low}..${high}`;
export const bound = (column, low, high) =>
  choose((next) => {
    if (bounded(column, low, high)) next.between.delete(column);
    else next.between.set(column, `${low}..${high}`);
  });

export function zoom(from, to) {
  choose((next) => Object.assign(next, { from: instant(from), to: instant(to), range: "" }));
}

export function pickAt(column, value, from, to) {
  choose((next) => {
    if (!next.picks.get(column)?.has(value)) toggle(next, column, value);
    Object.assign(next, { from: instant(from), to: instant(to), range: "" });
  });
}

// Show the facets and the number of rows; without `total` the page shows that number itself.
export function filters(found, { total = true } = {}) {
  const open = new Set([...$("filters").querySelectorAll("details[open]")].map((one) => one.dataset.facet));
  const held = document.activeElement?.closest("#filters input");
  const facets = found.facets.map((facet) => {
    const boxes = facet.values.map((value) =>
      el(
        "label",
        { class: `choice ${value.kind}` },
        el("input", {
          type: "checkbox",
          checked: value.chosen,
          "data-testid": "facet-value",
          "data-value": value.value ?? "",
          "data-kind": value.kind,
          onchange: () => pick(facet.name, value.value),
        }),
        el("span", { class: "choice-label" }, value.label),
        el("span", { class: "choice-count", "data-testid": "facet-count" }, numbers("")(value.count)),
      ),
    );
    const few = facet.values.filter((value) => value.chosen).length;
    return el(
      "details",
      { "data-facet": facet.name, open: open.has(facet.name), "data-testid": `facet-${facet.name}` },
      el("summary", {}, few ? `${facet.heading} (${few})` : facet.heading),
      el("fieldset", {}, el("legend", { class: "unseen" }, facet.heading), ...boxes,
        facet.more ? el("p", { class: "note" }, `${facet.more} further values: search for them`) : null),
    );
  });
  const few = found.total === found.all ? "" : ` of ${numbers("")(found.all)}`;
  const text = `${numbers("")(found.total)}${few} rows`;
  $("filters").replaceChildren(...facets, ...(total ? [el("span", { class: "note", "data-testid": "total", "data-count": found.total }, text)] : []));
  if (held) {
    const again = [...$("filters").querySelectorAll(`[data-facet="${CSS.escape(held.closest("details").dataset.facet)}"] input`)];
    again.find((one) => one.dataset.value === held.dataset.value && one.dataset.kind === held.dataset.kind)?.focus();
  }
}

function chip(text, remove) {
  return el("button", { type: "button", class: "chip", "aria-label": `remove filter ${text}`, "data-testid": "chip", onclick: remove }, text);
}

function showChosen() {
  const input = $("search").elements.q;
  if (document.activeElement !== input) input.value = state.q;
  const chips = [];
  for (const [column, values] of state.picks) {
    for (const value of values) {
      const name = HEADINGS.get(column) ?? column.replaceAll("_", " ");
      const label = value === null ? "(none)" : value === "" ? "(empty)" : value;
      chips.push(chip(`${name}: ${label}`, () => pick(column, value)));
    }
  }
  for (const [column, ends] of state.between) {
    const [low, high] = ends.split("..");
    const text = `${HEADINGS.get(column) ?? column}: ${low} to ${high}`;
    chips.push(chip(text, () => choose((next) => next.between.delete(column))));
  }
  if (state.from) {
    const text = `${moment(Date.parse(state.from))} – ${moment(Date.parse(state.to))}`;
    chips.push(chip(text, () => choose((next) => Object.assign(next, { from: "", to: "" }))));
  }
  if (chips.length || state.q) {
    const clear = () => choose((next) => Object.assign(next, { q: "", from: "", to: "", picks: new Map(), between: new Map() }));
    chips.push(el("button", { type: "button", class: "link", "data-testid": "clear", onclick: clear }, "Clear all"));
  }
  $("chips").replaceChildren(...chips);
  const range = state.from ? "chosen" : state.range || data.range;
  const known = [...new Set([data.range, ...RANGES, range])].filter((one) => one !== "chosen");
  const options = known.map((one) => el("option", { value: one, selected: one === range }, one === "all" ? "all times" : one));
  if (state.from) options.unshift(el("option", { value: "chosen", selected: true }, "as chosen"));
  $("range").replaceChildren(...options);
}

// Start listening to the page. `change` is called after every change of the selection, `more` returns further parameters
// of the URL, `reset` sets those that depend on the selection to their defaults.
export function begin(change, more = () => "", reset = () => {}) {
  [onChange, moreQuery, onReset] = [change, more, reset];
  window.addEventListener("popstate", () => {
    state = read(location.search);
    showChosen();
    onChange();
  });
  $("times").hidden = !data.time;
  $("search").hidden = !data.search;
  $("range").addEventListener("change", (event) =>
    choose((next) => Object.assign(next, { range: event.target.value === data.range ? "" : event.target.value, from: "", to: "" })),
  );
  let typing = 0;
  $("search").elements.q.addEventListener("input", (event) => {
    clearTimeout(typing);
    typing = setTimeout(() => choose((next) => Object.assign(next, { q: event.target.value.trim() }), { replace: true }), 250);
  });
  $("search").addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("pointerdown", (event) => {
    for (const one of $("filters").querySelectorAll("details[open]")) if (!one.contains(event.target)) one.open = false;
  });
  document.addEventListener("keydown", (event) => {
    const open = event.key === "Escape" && document.activeElement?.closest("#filters details[open]");
    if (open) {
      open.open = false;
      open.querySelector("summary").focus();
    }
  });
  showChosen();
}
