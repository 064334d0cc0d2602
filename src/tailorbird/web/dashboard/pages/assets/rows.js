// The rows page: sort, page, choose columns, download, and open single rows.

import { $, begin, chosenQuery, data, filters, remember } from "./chosen.js";
import { el } from "./dom.js";
import { moment, numbers, stored, when } from "./format.js";
import { FACETS, ask, connect, last } from "./live.js";

const count = numbers("");
let table = own(location.search);
let token = null;
let asked = 0;

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

async function load() {
  asked += 1;
  const number = asked;
  const answer = await fetch(`/api/rows/${data.name}?${query()}`);
  const page = await answer.json();
  if (number !== asked) return;
  if (!answer.ok) return nothing(`${page.error}${page.hint ? `; expected ${page.hint}` : ""}`);
  show(page);
}

function nothing(text) {
  $("rows").querySelector("tbody").replaceChildren();
  $("empty").textContent = text;
  $("empty").hidden = false;
  $("note").textContent = "";
}

function change(more) {
  table = { ...table, page: 1, ...more };
  remember();
  load();
}

function show(page) {
  const shown = page.columns.filter((column) => column.shown);
  const heads = shown.map((column) => head(column, page.sort));
  $("rows").querySelector("thead").replaceChildren(el("tr", {}, ...heads));
  const rows = page.rows.map((row) => line(row, shown));
  $("rows").querySelector("tbody").replaceChildren(...rows);
  $("empty").textContent = "No row matches. Choose a longer time, or fewer filters.";
  $("empty").hidden = rows.length > 0;
  const first = (page.page - 1) * page.size + 1;
  $("note").textContent = rows.length ? `${count(first)} to ${count(first + rows.length - 1)} of ${count(page.total)}` : "";
  $("note").dataset.total = page.total;
  $("page").textContent = `Page ${count(page.page)} of ${count(page.pages)}`;
  $("back").disabled = page.page <= 1;
  $("next").disabled = page.page >= page.pages;
  chooser(page.columns);
  for (const kind of ["csv", "json"]) {
    $(kind).href = `/api/rows/${data.name}.${kind}?${query()}`;
    $(kind).title = `at most ${count(page.most)} rows`;
  }
}

function head(column, sort) {
  const now = sort === column.name ? "ascending" : sort === `-${column.name}` ? "descending" : null;
  const right = column.look === "number" ? "right" : null;
  if (!column.sorts) return el("th", { scope: "col", class: right }, column.heading);
  const next = now === "descending" ? column.name : `-${column.name}`;
  const mark = { ascending: " ▲", descending: " ▼" }[now] ?? "";
  return el(
    "th",
    { scope: "col", class: right, "aria-sort": now },
    el("button", { type: "button", "data-testid": `sort-${column.name}`, onclick: () => change({ sort: next }) }, column.heading + mark),
  );
}

function line(row, shown) {
  const cells = shown.map((column, i) => {
    const text = column.look === "time" ? when(row.values[column.name]) : stored(row.values[column.name]);
    const kind = column.look === "number" ? "right" : column.look === "time" ? "time" : null;
    const inner = i
      ? el("span", { class: "cell", title: text }, text)
      : el("button", { type: "button", class: "link", "data-testid": "open", onclick: () => open(row.key) }, text);
    return el("td", { class: kind, "data-column": column.name, "data-heading": column.heading }, inner);
  });
  return el("tr", { "data-testid": "row", "data-key": row.key }, ...cells);
}

function chooser(columns) {
  const held = document.activeElement?.closest("#chooser input")?.dataset.column;
  const boxes = columns.map((column) =>
    el(
      "label",
      { class: "choice" },
      el("input", { type: "checkbox", checked: column.shown, "data-column": column.name, "data-testid": "column", onchange: choose }),
      el("span", { class: "choice-label" }, column.heading),
    ),
  );
  $("chooser").querySelector("fieldset").replaceChildren(el("legend", { class: "unseen" }, "Columns"), ...boxes);
  boxes.map((box) => box.firstChild).find((box) => box.dataset.column === held)?.focus();
}

function choose() {
  const chosen = [...$("chooser").querySelectorAll("input:checked")].map((box) => box.dataset.column);
  if (chosen.length) change({ columns: chosen, page: table.page });
  else load();
}

// Loaded on demand only: the server reads HBase and the log for it.
function origins(key, row) {
  const place = el("div", { role: "status", "data-testid": "origins" });
  const ask = async () => {
    button.disabled = true;
    place.replaceChildren(el("p", { class: "note" }, "Reading the log"));
    const answer = await fetch(`/api/rows/${data.name}/explain?key=${encodeURIComponent(key)}`);
    const found = await answer.json();
    button.disabled = false;
    place.replaceChildren(
      answer.ok
        ? lineage(found)
        : el("p", { class: "trouble", "data-testid": "origins-error" }, found.error, found.hint ? `; try ${found.hint}` : ""),
    );
  };
  const button = el("button", { type: "button", class: "button", "data-testid": "ask-origins", onclick: ask }, "Where it comes from");
  return el(
    "div",
    { class: "origins" },
    row.can_explain ? button : null,
    el("p", { class: "note" }, "The command: ", el("code", { "data-testid": "explain" }, row.explain)),
    place,
  );
}

const DONE = { c: "inserted", u: "updated", d: "deleted", r: "read" };

function lineage(found) {
  const rows = found.cells.flatMap((cell) => {
    const shown = cell.events.length ? cell.events.map((i) => found.events[i]) : [null];
    return shown.map((event, i) => origin(cell, event, i === 0));
  });
  const heads = ["Column", "Expression in the query", "Event", "Position", "GTID"].map((name) => el("th", { scope: "col" }, name));
  return el(
    "div",
    {},
    found.unknown ? el("p", { class: "trouble" }, `Unknown: ${found.unknown}`) : null,
    el(
      "div",
      { class: "sideways", tabindex: 0, role: "region", "aria-label": "Where it comes from" },
      el("table", { class: "table" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows)),
    ),
  );
}

function origin(cell, event, first) {
  const what = event && event.state === "found" ? `${DONE[event.op] ?? event.op} ${moment(event.committed_ms)} UTC` : (event?.why ?? "");
  const logged = event?.file ? `, ${event.file}:${event.pos}` : "";
  return el(
    "tr",
    { "data-testid": "origin", "data-column": cell.name },
    el("td", {}, first ? cell.heading : ""),
    el("td", {}, first ? cell.expression : "", first && cell.agrees === false ? el("strong", { class: "trouble" }, " DIFFERS") : null),
    el("td", {}, event ? `${event.table} ${what}` : "(no event of a source)"),
    el("td", {}, event ? `${event.topic} ${event.partition}:${event.offset}${logged}` : ""),
    el("td", { class: "gtid" }, event?.gtid ?? ""),
  );
}

async function open(key) {
  const body = $("row-body");
  body.replaceChildren(el("p", { class: "note" }, "Loading"));
  $("row").showModal();
  const answer = await fetch(`/api/rows/${data.name}/row?key=${encodeURIComponent(key)}`);
  const row = await answer.json();
  if (!answer.ok) {
    body.replaceChildren(el("p", { class: "trouble", role: "alert" }, row.error));
    return;
  }
  const pairs = row.columns.flatMap(({ heading, value }) => [el("dt", {}, heading), el("dd", {}, value === null ? "(none)" : stored(value))]);
  const about = [
    ["Changed at the source", row.committed_ms],
    ["Indexed", row.indexed_ms],
  ].flatMap(([name, at]) => (at ? [el("dt", {}, name), el("dd", {}, `${moment(at)} UTC`)] : []));
  if (row.hbase_timestamp) about.push(el("dt", {}, "Timestamp in HBase"), el("dd", {}, String(row.hbase_timestamp)));
  body.replaceChildren(
    el("dl", { class: "detail", tabindex: 0, "aria-label": "Columns", "data-testid": "row-columns" }, ...pairs, ...about),
    row.explain ? origins(key, row) : null,
    el("details", {}, el("summary", {}, "Solr's document"), el("pre", { "data-testid": "document" }, JSON.stringify(row.document, null, 2))),
  );
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
  ask();
  load();
}

begin(changed, tableQuery, () => {
  table.page = 1;
});
connect(
  [FACETS],
  (message) => message.answer && filters(message.answer),
  () => {
    if (last.unavailable || last.token === token) return;
    token = last.token;
    load();
  },
);
