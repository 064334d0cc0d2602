// The dialog of one row: its columns, its Solr document, and on demand where its cells come from.

import { $, data } from "./chosen.js";
import { el } from "./dom.js";
import { moment, stored } from "./format.js";
import { get } from "./live.js";

// Loaded on demand only: the server reads HBase and the log for it.
function origins(key, row) {
  const place = el("div", { role: "status", "data-testid": "origins" });
  const ask = async () => {
    button.disabled = true;
    place.replaceChildren(el("p", { class: "note" }, "Reading the log"));
    const answer = await get(`/api/rows/${data.name}/explain?key=${encodeURIComponent(key)}`);
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

export async function open(key) {
  const body = $("row-body");
  body.replaceChildren(el("p", { class: "note" }, "Loading"));
  $("row").showModal();
  const answer = await get(`/api/rows/${data.name}/row?key=${encodeURIComponent(key)}`);
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
