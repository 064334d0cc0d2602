// The topology as a graph, refreshed every two seconds.

import { el, svg } from "./dom.js";

const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
let graph = null;

// The flow into a node as text, so that screen readers get it, too.
const flows = (one) =>
  graph.edges
    .filter((edge) => edge.to === one.id && edge.flow)
    .map((edge) => el("p", { class: "note flow", "data-testid": "flow", "data-from": edge.from }, `from ${edge.from.replace(/^\S+ /, "")}: ${edge.flow}`));

function node(one) {
  const kind = one.well ? (one.moving ? "moving" : "") : "wrong";
  return el(
    "section",
    { class: `node ${kind}`, "data-node": one.id, "data-state": one.state, "data-testid": "node" },
    el("h2", {}, one.name),
    el("p", { class: "note" }, `${one.kind}: ${one.kind === "dashboard" && one.state === "elsewhere" ? "declared" : one.state}`),
    one.reason ? el("p", { class: "note" }, one.reason) : null,
    ...flows(one),
    ...one.facts.map((fact) => el("p", { class: "note" }, fact)),
    one.remedy ? el("code", {}, one.remedy) : null,
  );
}

function draw() {
  if (!graph) return;
  $("sentence").textContent = graph.sentence;
  $("sentence").classList.toggle("wrong", !graph.well);
  const columns = [0, 1, 2, 3].map((column) =>
    el("div", { class: "column-of" }, ...graph.nodes.filter((one) => one.column === column).map(node)),
  );
  $("graph").replaceChildren(...columns);
  const box = $("graph").getBoundingClientRect();
  const wrong = new Set(graph.nodes.filter((one) => !one.well).map((one) => one.id));
  const place = (id) => $("graph").querySelector(`[data-node="${CSS.escape(id)}"]`)?.getBoundingClientRect();
  const lines = graph.edges.flatMap(({ from, to }) => {
    const [a, b] = [place(from), place(to)];
    if (!a || !b) return [];
    const [x1, y1] = [a.right - box.left, a.top + a.height / 2 - box.top];
    const [x2, y2] = [b.left - box.left, b.top + b.height / 2 - box.top];
    const middle = (x1 + x2) / 2;
    const way = `M${x1} ${y1}C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`;
    return [svg("path", { d: way, class: wrong.has(from) ? "wrong" : null })];
  });
  $("graph").prepend(svg("svg", { "aria-hidden": "true" }, ...lines));
}

async function look() {
  try {
    const answer = await fetch("/api/overview");
    if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
    graph = await answer.json();
    draw();
  } catch (error) {
    $("sentence").textContent = `This page's server does not answer (${error.message}). Retrying automatically.`;
    $("sentence").classList.add("wrong");
  }
  setTimeout(look, 2000);
}

$("pages").append(...data.others.map((one) => el("a", { class: "link", href: one.path }, one.title)));
new ResizeObserver(draw).observe(document.body);
look();
