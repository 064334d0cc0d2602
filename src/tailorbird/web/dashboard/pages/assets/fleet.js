// The fleet's page: agents, tables, sources and gateways, and the commands of an operator.
//
// The storage of this tab holds a session of the page's server, never the token.

import { el, swap } from "./dom.js";
import { numbers } from "./format.js";

const REFRESH = 1000;
const SESSION = "tailorbird fleet session";
const GOOD = new Set(["moving", "idle"]);
const $ = (id) => document.getElementById(id);
const count = numbers("");
const shown = new Map();
let words = "";
const LISTS = ["agents", "tables", "sources", "gateways"];
const offsets = Object.fromEntries(LISTS.map((name) => [name, 0]));
let asked = 0;

// Requests

class Refused extends Error {}

async function send(method, path, body) {
  const headers = { "X-Tailorbird-Session": sessionStorage.getItem(SESSION) ?? "" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const found = await answer.json();
  if (answer.ok) return found;
  if (answer.status === 401) leave();
  throw new Refused(found.hint ? `${found.error}. ${found.hint}` : String(found.error ?? `HTTP ${answer.status}`));
}

// Run a command. A refusal appears in the banner.
async function command(method, path, body) {
  try {
    const found = await send(method, path, body);
    say("");
    if (method !== "GET") await refresh();
    return found;
  } catch (error) {
    say(error.message);
    return null;
  }
}

const ask = (method, path, body) => command(method, `/api/ask/${path}`, body);
const of = (source, ...more) => ["sources", encodeURIComponent(source.name), ...more].join("/");

function say(text) {
  $("banner").textContent = text;
  $("banner").hidden = !text;
}

function status(text, good) {
  $("status").textContent = text;
  $("status").classList.toggle("bad", !good);
}

// Login

function leave() {
  sessionStorage.removeItem(SESSION);
  for (const name of ["fleet", "search"]) $(name).hidden = true;
  $("login").hidden = false;
  status("No token", false);
}

async function enter(event) {
  event.preventDefault();
  try {
    const { session } = await send("POST", "/api/enter", { token: $("token").value });
    sessionStorage.setItem(SESSION, session);
    $("token").value = "";
    say("");
    await refresh();
  } catch (error) {
    say(error.message);
  }
}

// The issuer's login has led back here: fetch its session.
async function entered() {
  history.replaceState(null, "", "/");
  try {
    const { session } = await send("POST", "/api/entered");
    sessionStorage.setItem(SESSION, session);
  } catch (error) {
    say(error.message);
  }
}

// Refresh loop

async function refresh() {
  asked += 1;
  const number = asked;
  let state;
  try {
    state = await send("GET", `/api/state?${new URLSearchParams({ q: words, ...offsets })}`);
  } catch (error) {
    if (!sessionStorage.getItem(SESSION)) return say(error.message);
    if (number !== asked) return;
    status("Unavailable", false);
    return say(error instanceof Refused ? error.message : "This page's server does not answer. Retrying automatically.");
  }
  if (number !== asked) return;
  if ($("status").textContent === "Unavailable") say("");
  status("Live", true);
  $("login").hidden = true;
  for (const name of ["fleet", "search"]) $(name).hidden = false;
  const draw = { agents, tables: map, sources, gateways };
  for (const name of LISTS) {
    const { entries, total, offset, size } = state[name];
    if (!entries.length && total) offsets[name] = 0; // the list has become shorter: show its first page again
    part(name === "tables" ? "map" : name, { entries, total, offset }, () => [...draw[name](entries), ...pager(name, offset, entries.length, total, size)]);
  }
}

async function keep() {
  if (sessionStorage.getItem(SESSION) && !document.hidden) await refresh();
  setTimeout(keep, REFRESH);
}

// Update changed parts only, so that an element that the user is about to click stays in place.
function part(name, what, draw) {
  const text = JSON.stringify(what);
  if (shown.get(name) === text) return;
  shown.set(name, text);
  swap($(name), ...draw(what));
}

// Parts

function button(text, testid, key, onclick, about = key) {
  const attributes = { type: "button", class: "button", "data-testid": testid, "data-focus": `${testid} ${key}`, onclick };
  return el("button", { ...attributes, "aria-label": about ? `${text} ${about}` : null }, text);
}

// Which part of a list is shown, and buttons to the other parts. Nothing for a list that is shown as a whole.
function pager(name, offset, length, total, size) {
  if (total <= length) return [];
  const to = (place) => () => {
    offsets[name] = Math.max(0, place);
    refresh();
  };
  const step = (text, testid, place, possible) => {
    const made = button(text, testid, name, to(place), `page of ${name === "tables" ? "the map" : name}`);
    made.disabled = !possible;
    return made;
  };
  return [
    el(
      "nav",
      { class: "pager", "aria-label": `pages of ${name === "tables" ? "the map" : name}` },
      step("Previous", "previous", offset - size, offset > 0),
      el("span", { class: "note", "data-testid": `${name}-range` }, `${count(offset + 1)} to ${count(offset + length)} of ${count(total)}`),
      step("Next", "next", offset + size, offset + length < total),
    ),
  ];
}

const note = (text) => (text ? el("div", { class: "note" }, text) : null);
const pill = (health, testid) => el("span", { class: GOOD.has(health) ? "pill" : "pill bad", "data-testid": testid }, health);

// `rows` are [attributes, …cells]; a cell is a list of children
function table(heads, rows) {
  const lines = rows.map(([attributes, ...cells]) =>
    el("tr", attributes, ...cells.map((cell, i) => el("td", { "data-heading": heads[i], ...(cell.attributes ?? {}) }, el("div", {}, ...(cell.children ?? cell))))),
  );
  const names = heads.map((head) => (head ? el("th", { scope: "col" }, head) : el("td", {})));
  return el("table", { class: "table" }, el("thead", {}, el("tr", {}, ...names)), el("tbody", {}, ...lines));
}

function drain(one, role, testid) {
  const body = { role, name: one.name, drained: !one.drained };
  return button(one.drained ? "End draining" : "Drain", testid, one.name, () => ask("POST", "drain", body));
}

function agents(all) {
  if (!all.length) return [el("p", { class: "note" }, words ? "No agent matches the search." : "No agent has dialled yet.")];
  const rows = all.map((one) => [
    { "data-testid": "agent", "data-key": one.name },
    [one.name],
    [pill(one.health, "agent-health"), note(one.why)],
    [one.sources.join(", ") || "none"],
    [one.gateway],
    [one.version],
    [drain(one, "agents", "drain")],
  ]);
  return [table(["Agent", "Health", "Sources", "Gateway", "Version", ""], rows)];
}

function gateways(all) {
  const rows = all.map((one) => [
    { "data-testid": "gateway", "data-key": one.name },
    [one.name],
    [pill(one.health, "gateway-health")],
    [count(one.agents)],
    [drain(one, "gateways", "drain-gateway")],
  ]);
  return [table(["Gateway", "Health", "Agents", ""], rows)];
}

function map(tables) {
  const closed = new Set([...$("map").querySelectorAll("details.database:not([open])")].map((one) => one.dataset.key));
  const open = new Set([...$("map").querySelectorAll("details.columns-of[open]")].map((one) => one.dataset.key));
  const places = new Map();
  for (const one of tables) {
    const place = `${one.database} · ${one.connection} at ${one.agent}`;
    places.set(place, [...(places.get(place) ?? []), one]);
  }
  const parts = [...places].map(([place, some]) =>
    el(
      "details",
      { class: "database", "data-key": place, open: !closed.has(place), "data-testid": "database" },
      el("summary", { class: "place", "data-focus": place }, place),
      el("div", { class: "sideways" }, table(["Table", "Rows, about", "Columns", "Captured", ""], some.map((one) => tableRow(one, place, open)))),
    ),
  );
  if (!tables.length) parts.push(el("p", { class: "note" }, "No agent has reported a table with that name."));
  return parts;
}

function tableRow(one, place, open) {
  const key = `${place} ${one.name}`;
  const columns = el(
    "details",
    { class: "columns-of", "data-key": key, open: open.has(key) },
    el("summary", { "data-focus": `columns ${key}` }, count(one.columns.length)),
    ...one.columns.map(([name, kind]) => note(`${name} ${kind}`)),
  );
  const { agent, connection, database, name } = one;
  const sync = () => command("POST", "/api/sync", { agent, connection, database, name });
  return [
    { "data-testid": "table", "data-key": one.full },
    [one.name],
    [one.rows === null ? "?" : count(one.rows)],
    [columns],
    { attributes: { "data-testid": "captured" }, children: [one.captured ? `by ${one.captured}` : "no", ...progress(one)] },
    [one.captured ? button("Stop", "stop-captured", key, () => stopTable(one.captured, one.full), one.full) : button("Sync this table", "sync", key, sync, one.full)],
  ];
}

function progress(one) {
  if (!one.captured || one.progress === null) return [];
  const text = one.done ? "snapshot done" : `${count(one.read ?? 0)} rows read of about ${count(one.rows ?? 0)}`;
  return [el("progress", { max: 1, value: one.progress, "aria-label": `snapshot of ${one.full}`, "data-testid": "progress" }), note(text)];
}

function sources(all) {
  if (!all.length) return [el("p", { class: "note" }, words ? "No source matches the search." : "Nothing is captured yet: choose a table in the map.")];
  const rows = all.map((one) => [
    { "data-testid": "source", "data-key": one.name },
    [one.name, note(`version ${one.version}, ${one.connection} at ${one.holder || "no agent"}`)],
    [pill(one.health, "source-health"), note(one.why)],
    [el("div", { class: "commands" }, ...one.tables.map((name) => stop(one, name)), one.more ? note(`and ${count(one.more)} more: search for them in the map`) : null)],
    { attributes: { "data-testid": "position" }, children: [one.position || "none yet", note(one.lag_ms === null ? "" : `${(one.lag_ms / 1000).toFixed(1)} s lag`)] },
    [
      el(
        "div",
        { class: "commands" },
        button(one.running ? "Stop" : "Start", "run", one.name, () => ask("PATCH", of(one), { running: !one.running })),
        button("Configure", "configure", one.name, () => configure(one)),
        button("Positions", "positions", one.name, () => positions(one)),
        button("Dump", "dump", one.name, () => dump(one)),
      ),
    ],
  ]);
  return [table(["Source", "Health", "Tables", "Position", ""], rows)];
}

function stop(source, name) {
  const attributes = { type: "button", class: "chip", "aria-label": `stop ${name}`, "data-testid": "stop-table", "data-focus": `stop ${source.name} ${name}` };
  return el("button", { ...attributes, onclick: () => stopTable(source.name, name) }, name);
}

function stopTable(source, name) {
  sure(`Stop capturing ${name}? Its topic is kept.`, () => ask("POST", of({ name: source }, "stop"), { tables: [name] }));
}

// Dialogs

function dialog(title, ...children) {
  $("dialog-title").textContent = title;
  $("dialog-body").replaceChildren(...children);
  if (!$("dialog").open) $("dialog").showModal();
}

function closeAnd(run) {
  $("dialog").close();
  return run();
}

function sure(question, run) {
  dialog(question, el("div", { class: "commands" }, button("Yes", "yes", "", () => closeAnd(run)), button("No", "no", "", () => $("dialog").close())));
}

const when = (ms) => (ms ? `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")} UTC` : "never");

// The configuration and all its versions: write a new one, or an older one again.
async function configure(source) {
  const found = await ask("GET", of(source, "config"));
  if (!found) return;
  const text = el("textarea", { rows: 14, "aria-label": "Configuration", "data-testid": "config" });
  text.value = JSON.stringify(found.spec, null, 2);
  const wrong = el("p", { class: "trouble", role: "alert" });
  const write = () => {
    let spec;
    try {
      spec = JSON.parse(text.value);
    } catch (error) {
      wrong.textContent = `Not valid JSON: ${error.message}`;
      return;
    }
    closeAnd(() => ask("PUT", of(source, "config"), spec));
  };
  const versions = found.versions.toReversed().map((one) => {
    const again = one.of ? `, same as version ${one.of}` : "";
    const back = () => closeAnd(() => ask("POST", of(source, "rollback"), { version: one.version }));
    return el(
      "div",
      { class: "line", "data-testid": "version" },
      el("span", { class: "note" }, `version ${one.version}, ${when(one.at_ms)}, ${one.by}${again}`),
      one.version === found.version ? null : button("Roll back to this version", "rollback", one.version, back, `version ${one.version}`),
    );
  });
  dialog(`Configuration of ${source.name}`, text, wrong, button("Write it", "config-write", "", write), ...versions);
}

// The positions to which the source can be reset.
async function positions(source) {
  const found = await ask("GET", of(source, "positions"));
  if (!found) return;
  const lines = found.slice(-50).toReversed().map((one) => {
    const back = () => closeAnd(() => ask("POST", of(source, "positions"), { sequence: one.sequence }));
    return el(
      "div",
      { class: "line", "data-testid": "place" },
      el("span", { class: "note" }, `${one.sequence}: ${one.file}:${one.pos}, ${when(one.ts_ms)}`),
      button("Reset to this position", "set-back", one.sequence, back, `sequence ${one.sequence}`),
    );
  });
  dialog(`Positions of ${source.name}`, ...(lines.length ? lines : [el("p", { class: "note" }, "No position is stored yet.")]));
}

function dump(source) {
  const named = source.tables.map((name) => el("option", { value: name }, name));
  // a source with more tables than the page lists: write the name
  const chosen = source.more
    ? el("input", { "data-testid": "dump-table", placeholder: "database.table", maxlength: 200, required: true })
    : el("select", { "data-testid": "dump-table" }, ...named);
  const where = el("input", { placeholder: "all rows, or a condition: status = 'open'", "data-testid": "dump-where", maxlength: 4000 });
  const read = () => closeAnd(() => ask("POST", of(source, "dump"), { tables: [chosen.value], where: where.value }));
  const fields = [el("label", {}, "Table", chosen), el("label", {}, "Condition", where)];
  dialog(`Snapshot of ${source.name}`, ...fields, button("Read again", "dump-read", "", read));
}

$("login").addEventListener("submit", enter);
let typing = 0;
$("search").elements.q.addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    words = event.target.value;
    for (const name of LISTS) offsets[name] = 0;
    refresh();
  }, 250);
});
$("search").addEventListener("submit", (event) => event.preventDefault());
$("oidc").hidden = !JSON.parse($("data").textContent).oidc;
if (location.hash === "#entered") await entered();
keep();
