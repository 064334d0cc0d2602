// The dashboard page: draw the panels and keep them up to date.

import { $, begin, bound, bounded, chosenQuery, data, filters, pick, pickAt, picked, zoom } from "./chosen.js";
import { el } from "./dom.js";
import { age, moment, numbers } from "./format.js";
import { FACETS, ask, connect, get, last, number, sinceAsked } from "./live.js";
import { DRAW } from "./panels.js";

const cards = data.panels.map((panel, i) => card(panel, i));

function card(panel, i) {
  const title = `panel-${i}`;
  const body = el("div", { class: "body" });
  const hint = el("output", { class: "hint", "data-testid": "hint" });
  const note = el("span", { class: "note", "data-testid": "age" });
  const rows = el("a", { class: "link", "data-testid": "drill" }, "Rows");
  const section = el(
    "section",
    { class: "card", "aria-labelledby": title, "aria-busy": "true", "data-testid": "panel", "data-panel": i, "--width": panel.width },
    panel.title ? el("h2", { id: title }, panel.title) : null,
    body,
    panel.type === "text" ? null : el("footer", {}, note, hint, rows),
  );
  let heard = null;
  const context = {
    number: numbers(panel.format),
    plain: numbers(""),
    count: numbers(""),
    pick,
    pickAt,
    zoom,
    picked,
    bound,
    bounded,
    hint: (text) => {
      hint.textContent = text;
    },
    get width() {
      return body.clientWidth;
    },
  };

  function draw() {
    if (!heard) return;
    const held = document.activeElement;
    const focus = body.contains(held) ? [...body.querySelectorAll("button, [tabindex]")].indexOf(held) : -1;
    const shown = heard.error ? trouble(heard) : (DRAW[panel.type](panel, heard.answer, context) ?? empty());
    body.replaceChildren(shown, ...notes(heard));
    body.querySelectorAll("button, [tabindex]")[focus]?.focus();
    section.setAttribute("aria-busy", "false");
    section.dataset.drawn = String(number());
    section.dataset.ms = sinceAsked().toFixed(1);
  }

  return {
    section,
    draw,
    hear(message) {
      heard = message;
      draw();
      this.age();
    },
    age() {
      const query = chosenQuery();
      rows.href = `/rows/${data.name}?${query ? `${query}&` : ""}panel=${i}`;
      if (!heard?.asked_ms) return;
      const current = !last.unavailable && heard.token === last.token;
      note.textContent = current ? "current" : `as of ${age((last.now_ms ?? heard.asked_ms) - heard.asked_ms)}`;
      note.title = `asked ${moment(heard.asked_ms)} UTC, answered in ${Math.round(heard.seconds * 1000)} ms; ${$("foot").textContent}`;
    },
  };
}

function notes(heard) {
  const found = [];
  if (heard.answer?.inexact) found.push("Sums of this size are not exact here. A table that aggregates in its query has exact sums.");
  if (heard.answer?.outside) found.push(`${heard.answer.outside} rows are outside this axis.`);
  return found.map((text) => el("p", { class: "note", "data-testid": "panel-note" }, text));
}

const empty = () => el("p", { class: "note", "data-testid": "empty" }, "No row matches. Choose a longer time, or fewer filters.");
const trouble = (heard) =>
  el("p", { class: "trouble", role: "alert", "data-testid": "panel-error" }, heard.error, heard.hint ? `; expected ${heard.hint}` : "");

function hear(message) {
  if (message.panel !== FACETS) cards[message.panel].hear(message);
  else if (message.answer) filters(message.answer);
}

function changed() {
  for (const one of cards) {
    one.section.setAttribute("aria-busy", "true");
    one.age();
  }
  ask();
}

async function save() {
  const answer = await get(`/api/dashboards/${data.name}/yaml?${chosenQuery()}`);
  $("yaml").querySelector("textarea").value = await answer.text();
  $("yaml").showModal();
}

$("panels").append(...cards.map((one) => one.section));
$("pages").append(
  ...data.others.map((one) => el("a", { class: "link", href: one.path }, one.title)),
  el("a", { class: "link", href: `/rows/${data.name}`, "data-testid": "rows-page" }, "Rows"),
);
$("save").addEventListener("click", save);
let wide = 0;
new ResizeObserver(([entry]) => {
  if (Math.abs(entry.contentRect.width - wide) < 8) return;
  wide = entry.contentRect.width;
  for (const one of cards) one.draw();
}).observe($("panels"));
begin(changed);
connect([FACETS, ...data.panels.keys()], hear, () => {
  for (const one of cards) one.age();
});
