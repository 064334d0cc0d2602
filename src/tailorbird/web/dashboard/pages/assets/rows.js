// The page of rows: how many there are, how fresh and over time; sort, page, choose columns, download, open single rows.

import { $, begin, chosenQuery, data, filters, remember, zoom } from "./chosen.js";
import { el, swap } from "./dom.js";
import { NOTHING, age, latency, numbers, stored, when } from "./format.js";
import { Freshness } from "./freshness.js";
import { FACETS, TIMELINE, ask, connect, get, last, number } from "./live.js";
import { open } from "./row.js";
import { series } from "./series.js";

const LONGEST_WORD = 20; // a longer word is broken, so that the table needs no horizontal scrolling
const FEW_TIMES = 2; // with at most so many columns of times, a time stays on one line
const MANY_COLUMNS = 12; // from this number on the table uses a smaller font, and all words may be broken
const count = numbers("");
const fresh = new Freshness();
let table = own(location.search);
let token = null;
let wanted = 0;
let loading = false;
let newest = null;
let timeline = null;

function own(search) {
  const params = new URLSearchParams(search);
  const columns = (params.get("columns") ?? "").split(",").filter(Boolean);
  return { panel: params.get("panel") ?? "", sort: params.get("sort") ?? "", page: Number(params.get("page")) || 1, columns };
}

function tableQuery() {
  const params = new URLSearchParams();
  if (table.panel) params.set("panel", table.panel);
  if (table.sort) params.set("sort", table.sort);
  if (table.page > 1) params.set("page", table.page);
  if (table.columns.length) params.set("columns", table.columns.join(","));
  return params.toString();
}

const query = () => [chosenQuery(), tableQuery()].filter(Boolean).join("&");

// Load the rows, one request at a time: the newest request follows when the one before is answered.
async function load() {
  wanted += 1;
  if (loading) return;
  loading = true;
  try {
    for (let number = 0; number !== wanted; ) {
      number = wanted;
      const asked = query();
      const answer = await get(`/api/rows/${data.name}?${asked}`);
      const page = await answer.json();
      if (asked !== query()) continue;
      if (answer.ok) show(page);
      // while Solr is unavailable the banner says so, and the last rows stay
      else if (answer.status === 503) token = null;
      else nothing(`${page.error}${page.hint ? `; expected ${page.hint}` : ""}`);
    }
  } catch (error) {
    token = null;
    $("note").textContent = `The rows could not be loaded (${error.message}). Retrying automatically.`;
  } finally {
    loading = false;
  }
}

function nothing(text) {
  $("rows").querySelector("tbody").replaceChildren();
  $("empty").textContent = text;
  $("empty").hidden = false;
  $("note").textContent = "";
}

function change(more) {
  table = { ...table, page: 1, ...more };
  fresh.restart();
  remember();
  load();
}

function show(page) {
  const arrived = fresh.observe(page);
  const shown = page.columns.filter((column) => column.shown);
  const few = shown.filter((column) => column.look === "time").length <= FEW_TIMES;
  $("rows").querySelector("table").classList.toggle("many", shown.length + 1 >= MANY_COLUMNS);
  const heads = [el("th", { scope: "col" }, "Changed"), ...shown.map((column) => head(column, page.sort))];
  swap($("rows").querySelector("thead"), el("tr", {}, ...heads));
  swap($("rows").querySelector("tbody"), ...page.rows.map((row) => line(row, shown, few, arrived.has(row.key), page.now_ms)));
  $("heading").textContent = page.sort ? "Rows" : "Newest rows";
  $("empty").textContent = "No row matches. Choose a longer time, or fewer filters.";
  $("empty").hidden = page.rows.length > 0;
  const first = (page.page - 1) * page.size + 1;
  $("note").textContent = page.rows.length ? `${count(first)} to ${count(first + page.rows.length - 1)} of ${count(page.total)}` : "";
  $("note").dataset.total = page.total;
  $("page").textContent = `Page ${count(page.page)} of ${count(page.pages)}`;
  $("back").disabled = page.page <= 1;
  $("next").disabled = page.page >= page.pages;
  chooser(page.columns);
  for (const kind of ["csv", "json"]) {
    $(kind).href = `/api/rows/${data.name}.${kind}?${query()}`;
    $(kind).title = `at most ${count(page.most)} rows`;
  }
  ages();
}

function head(column, sort) {
  const now = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : null;
  const right = column.look === "number" ? "right" : null;
  if (!column.sorts) return el("th", { scope: "col", class: right }, column.heading);
  const next = now === "descending" ? column.name : `-${column.name}`;
  const mark = { ascending: " ▲", descending: " ▼" }[now] ?? "";
  const sorts = { type: "button", "data-focus": column.name, "data-testid": `sort-${column.name}`, onclick: () => change({ sort: next }) };
  return el("th", { scope: "col", class: right, "aria-sort": now }, el("button", sorts, column.heading + mark));
}

// A value as text. NULL in a column of the row key is the name of a group.
function cell(value, column) {
  if (value === null || value === undefined) return column.key ? "(none)" : NOTHING;
  if (column.look === "time") return when(value);
  return column.look === "members" ? stored(value).replaceAll(",", ", ") : stored(value);
}

function line(row, shown, few, arrived, now) {
  const took = fresh.of(row);
  const since = el("span", { class: "cell", "data-committed": row.committed_ms }, row.committed_ms === null ? NOTHING : age(now - row.committed_ms));
  const within = took === null ? null : el("span", { class: "up", "data-testid": "row-latency", "data-ms": took }, ` in ${latency(took)}`);
  const title = "age of the change, and the time from its commit until this page showed it";
  const cells = shown.map((column, i) => {
    const value = row.values[column.name];
    const text = cell(value, column);
    const kind = [column.look === "number" ? "right" : "", column.look === "time" && few ? "time" : ""];
    if (value === null || value === undefined) kind.push("nothing");
    if (text.split(/\s+/).some((word) => word.length > LONGEST_WORD)) kind.push("loose");
    const opens = { type: "button", class: "link cell", "data-focus": row.key, "data-testid": "open", onclick: () => open(row.key) };
    const inner = i ? el("span", { class: "cell", title: stored(value) }, text) : el("button", opens, text);
    return el("td", { class: kind.filter(Boolean).join(" ") || null, "data-column": column.name, "data-heading": column.heading }, inner);
  });
  return el(
    "tr",
    { class: arrived ? "arrived" : null, "data-testid": "row", "data-key": row.key },
    el("td", { class: "changed", title, "data-column": "_changed", "data-heading": "Changed" }, el("span", {}, since, within)),
    ...cells,
  );
}

// Ages grow between two loads.
function ages() {
  const now = last.now_ms;
  if (!now || last.unavailable) return;
  for (const one of $("rows").querySelectorAll("[data-committed]")) one.textContent = age(now - Number(one.dataset.committed));
  $("newest").textContent = newest === null ? NOTHING : age(now - newest);
  const median = fresh.p50(now);
  $("freshness").textContent = median === null ? NOTHING : latency(median);
  $("freshness").dataset.ms = median ?? "";
  $("freshness-note").textContent = median === null ? "no new row in the last minute" : "from commit to this page, median of the last minute";
}

function counts(found) {
  filters(found, { total: false });
  newest = found.newest_ms;
  $("total").textContent = count(found.total);
  $("total").dataset.count = found.total;
  $("total-note").textContent = found.total === found.all ? "all rows" : `of ${count(found.all)}`;
  ages();
}

function drawTimeline() {
  if (!timeline) return;
  const body = $("timeline").querySelector(".body");
  const held = body.contains(document.activeElement);
  const hint = (text) => {
    $("timeline").querySelector(".hint").textContent = text;
  };
  const panel = { title: data.timeline, measures: ["count"], bars: true };
  const context = { number: count, hint, zoom, width: body.clientWidth };
  const empty = el("p", { class: "note" }, "No row has a time here.");
  body.replaceChildren(timeline.error ? el("p", { class: "trouble" }, timeline.error) : (series(panel, timeline.answer, context) ?? empty));
  const per = timeline.answer?.gap;
  $("timeline-title").textContent = per ? `${data.timeline}, per ${per}` : data.timeline;
  $("timeline").dataset.drawn = String(number());
  if (held) body.querySelector("svg")?.focus();
}

function hear(message) {
  if (message.panel === TIMELINE) {
    timeline = message;
    drawTimeline();
  } else if (message.answer) counts(message.answer);
}

function chooser(columns) {
  const boxes = columns.map((column) =>
    el(
      "label",
      { class: "choice" },
      el("input", { type: "checkbox", checked: column.shown, "data-column": column.name, "data-focus": column.name, "data-testid": "column", onchange: choose }),
      el("span", { class: "choice-label" }, column.heading),
    ),
  );
  swap($("chooser").querySelector("fieldset"), el("legend", { class: "unseen" }, "Columns"), ...boxes);
}

function choose() {
  const chosen = [...$("chooser").querySelectorAll("input:checked")].map((box) => box.dataset.column);
  if (chosen.length) change({ columns: chosen, page: table.page });
  else load();
}

$("pages").append(...data.others.map((one) => el("a", { class: "link", href: one.path }, one.title)));
$("back").addEventListener("click", () => change({ page: table.page - 1 }));
$("next").addEventListener("click", () => change({ page: table.page + 1 }));
window.addEventListener("popstate", () => {
  table = own(location.search);
});
document.addEventListener("pointerdown", (event) => {
  if (!$("chooser").contains(event.target)) $("chooser").open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && $("chooser").open) {
    $("chooser").open = false;
    $("chooser").querySelector("summary").focus();
  }
});
function changed() {
  fresh.restart();
  ask();
  load();
}

$("timeline").hidden = !data.time;
let wide = 0;
new ResizeObserver(([entry]) => {
  if (Math.abs(entry.contentRect.width - wide) < 8) return;
  wide = entry.contentRect.width;
  drawTimeline();
}).observe($("timeline"));
begin(changed, tableQuery, () => {
  table.page = 1;
});
connect(
  data.time ? [FACETS, TIMELINE] : [FACETS],
  hear,
  () => {
    ages();
    if (last.unavailable || last.token === token) return;
    token = last.token;
    load();
  },
  () => fresh.restart(),
);
