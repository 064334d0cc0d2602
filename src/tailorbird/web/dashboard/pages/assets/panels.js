// The other panels: number, bars, histogram, heatmap, table, text. Each returns an element, or null for "no rows".

import { el, unseen } from "./dom.js";
import { NOTHING, change, compact, moment, stored, times, when } from "./format.js";
import { series } from "./series.js";

function figure(answer, context, i = 0) {
  return answer.looks?.[i] === "time" ? moment : context.number;
}

function number(panel, answer, context) {
  const write = figure(answer, context);
  const parts = [el("div", { class: "figure", "data-testid": "value", "data-y": answer.value ?? "" }, write(answer.value))];
  if (answer.before !== null && answer.looks?.[0] !== "time") {
    const known = answer.value !== null && answer.before;
    const direction = known ? (answer.value > answer.before ? "up" : answer.value < answer.before ? "down" : "") : "";
    parts.push(
      el(
        "div",
        { class: `note ${direction}`, "data-testid": "before", "data-y": answer.before },
        known
          ? `${change(answer.value, answer.before)} against ${write(answer.before)} in the period before`
          : `${write(answer.before)} in the period before`,
      ),
    );
  }
  return el("div", {}, ...parts);
}

function terms(panel, answer, context) {
  if (!answer.bars.length) return null;
  const write = figure(answer, context);
  const most = Math.max(...answer.bars.map((bar) => Math.abs(bar.y ?? 0))) || 1;
  const bars = answer.bars.map((bar) => {
    const inner = [
      el("span", { class: "bar-label" }, bar.label),
      el("span", { class: "bar-figure", "data-testid": "bar-figure", "data-y": bar.y ?? "" }, write(bar.y)),
      el("span", { class: `bar-line ${bar.kind}`, "--share": `${(Math.abs(bar.y ?? 0) / most) * 100}%` }),
    ];
    if (bar.kind === "other") return el("li", { class: "bar", "data-kind": "other" }, ...inner);
    return el(
      "li",
      { "data-kind": bar.kind },
      el(
        "button",
        {
          type: "button",
          class: "bar",
          "aria-pressed": String(context.picked(panel.field, bar.value)),
          "data-testid": "term",
          "data-value": bar.value ?? "",
          onclick: () => context.pick(panel.field, bar.value),
        },
        ...inner,
      ),
    );
  });
  const more = answer.more ? el("p", { class: "note" }, `${context.count(answer.more)} further values`) : null;
  return el("div", {}, el("ul", { class: "bars" }, ...bars), more);
}

function histogram(panel, answer, context) {
  if (!answer.bars.length) return null;
  const most = Math.max(...answer.bars.map((y) => Math.abs(y ?? 0))) || 1;
  // with a width of 0.1 the third bar begins at 0.3, not 0.30000000000000004
  const edge = (i) => Number((answer.start + i * answer.width).toPrecision(15));
  const low = (i) => context.plain(edge(i));
  const name = (i) => `${low(i)} to ${low(i + 1)}`;
  const bars = answer.bars.map((y, i) =>
    el("button", {
      type: "button",
      class: "column",
      title: `${name(i)}: ${context.number(y)}`,
      "aria-label": `${name(i)}: ${context.number(y)}`,
      "aria-pressed": String(context.bounded(panel.field, edge(i), edge(i + 1))),
      "data-testid": "histogram-bar",
      "data-low": edge(i),
      "data-high": edge(i + 1),
      "--share": `${(Math.abs(y ?? 0) / most) * 100}%`,
      onclick: () => context.bound(panel.field, edge(i), edge(i + 1)),
    }),
  );
  const outside = [answer.below && `${context.count(answer.below)} below`, answer.above && `${context.count(answer.above)} above`];
  return el(
    "div",
    { class: "chart" },
    el("div", { class: "columns", role: "group", "aria-label": panel.title }, ...bars),
    el(
      "div",
      { class: "ends", "aria-hidden": "true" },
      el("span", {}, low(0)),
      el("span", {}, low(Math.floor(answer.bars.length / 2))),
      el("span", {}, low(answer.bars.length)),
    ),
    outside.some(Boolean) ? el("p", { class: "note" }, `Not drawn: ${outside.filter(Boolean).join(", ")}`) : null,
    unseen(
      panel.title,
      [panel.field, panel.measures[0]],
      answer.bars.map((y, i) => [name(i), { y, text: context.number(y) }]),
    ),
  );
}

function heatmap(panel, answer, context) {
  const rows = answer.series;
  if (!rows.length || !answer.edges.length) return null;
  const label = times(answer.gap, answer.edges);
  const most = Math.max(...rows.flatMap((row) => row.points.map((y) => Math.abs(y ?? 0)))) || 1;
  const close = (row, i) => {
    if (row.kind !== "other") context.pickAt(panel.field, row.value, answer.edges[i], answer.edges[i + 1] ?? answer.end);
  };
  const lines = rows.map((row, n) =>
    el(
      "div",
      { class: "heat-row", role: "row" },
      el("span", { class: "heat-name", role: "rowheader", title: row.label }, row.label),
      ...row.points.map((y, i) =>
        el("span", {
          class: "heat",
          role: "gridcell",
          tabindex: n === 0 && i === 0 ? 0 : -1,
          "data-y": y ?? "",
          "aria-label": `${row.label}, ${label(answer.edges[i])}: ${context.number(y)}`,
          title: `${row.label}, ${label(answer.edges[i])}: ${context.number(y)}`,
          "--share": y === null ? "0%" : `${8 + (Math.abs(y) / most) * 92}%`,
          "data-empty": y === null || y === 0 ? "" : null,
          onclick: () => close(row, i),
          onkeydown: (event) => moveInGrid(event, () => close(row, i)),
        }),
      ),
    ),
  );
  return el(
    "div",
    { class: "heatmap", role: "grid", "aria-label": `${panel.title}, per ${answer.gap}`, "data-testid": "heatmap" },
    ...lines,
    el("div", { class: "ends heat-ends", "aria-hidden": "true" }, el("span", {}, label(answer.edges[0])), el("span", {}, label(answer.edges.at(-1)))),
  );
}

function moveInGrid(event, enter) {
  const cell = event.target;
  const place = [...cell.parentElement.children].indexOf(cell);
  const sideways = { ArrowLeft: cell.previousElementSibling, ArrowRight: cell.nextElementSibling };
  const across = { ArrowUp: cell.parentElement.previousElementSibling, ArrowDown: cell.parentElement.nextElementSibling };
  const next = event.key in sideways ? sideways[event.key] : across[event.key]?.children[place];
  if (next?.classList.contains("heat")) {
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
    event.preventDefault();
  } else if (event.key === "Enter" || event.key === " ") {
    enter();
    event.preventDefault();
  }
}

function table(panel, answer, context) {
  if (!answer.rows.length) return null;
  const names = answer.columns.filter((column) => column.name).length;
  const head = answer.columns.map((column) =>
    el("th", { scope: "col", class: column.look === "number" ? "right" : null }, column.heading),
  );
  const rows = answer.rows.map((row, r) =>
    el("tr", { "data-testid": "table-row", "data-key": answer.keys[r] }, ...row.map((value, i) => cell(value, i, answer, names, context))),
  );
  const more = answer.more ? el("p", { class: "note" }, `and ${context.count(answer.more)} more`) : null;
  return el(
    "div",
    {},
    el(
      "div",
      { class: "sideways", tabindex: 0, role: "region", "aria-label": panel.title },
      el("table", { class: "table" }, el("thead", {}, el("tr", {}, ...head)), el("tbody", {}, ...rows)),
    ),
    more,
  );
}

function cell(value, i, answer, names, context) {
  const column = answer.columns[i];
  if (value !== null && typeof value === "object" && "label" in value) {
    return el(
      "td",
      { "data-value": value.value ?? "" },
      el("button", { type: "button", class: "link", onclick: () => context.pick(column.name, value.value) }, value.label),
    );
  }
  if (!column.name) {
    return el("td", { class: "right", "data-y": value ?? "" }, figure(answer, context, i - names)(value));
  }
  const text = column.look === "time" ? when(value) : stored(value);
  return el("td", { class: column.look === "number" ? "right" : null, title: text === NOTHING ? null : text }, text);
}

function text(panel, answer) {
  return el("div", { class: "words" }, ...answer.text.split(/\n\s*\n/).map((part) => el("p", {}, part)));
}

export const DRAW = { number, timeseries: series, terms, histogram, heatmap, table, text };
export { compact };
