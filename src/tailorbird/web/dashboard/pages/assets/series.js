// Charts over time: lines, or bars of one measure. Drag over a range to zoom in, or use the arrow keys, Shift and Enter;
// a click on a bar opens it.

import { el, svg, unseen } from "./dom.js";
import { compact, moment, times } from "./format.js";

const [LINES_HEIGHT, BARS_HEIGHT] = [220, 130];
const LEFT = 48;
const BOTTOM = 22;

export function series(panel, answer, context) {
  const { edges, end } = answer;
  // a sum over no rows is drawn as 0, an average as a gap
  const additive = panel.measures.every((one) => /^(count|sum)/.test(one));
  const shown = answer.series
    .filter((one) => one.points.some((y) => y !== null))
    .map((one) => ({ ...one, drawn: additive ? one.points.map((y) => y ?? 0) : one.points }));
  if (!edges.length || !shown.length) return null;
  const width = Math.max(context.width, 240);
  const height = panel.bars ? BARS_HEIGHT : LINES_HEIGHT;
  const label = times(answer.gap, edges);
  const ys = shown.flatMap((one) => one.drawn).filter((y) => y !== null);
  const [low, high] = [Math.min(0, ...ys), Math.max(0, ...ys) || 1];
  const x = (i) => LEFT + ((i + 0.5) / edges.length) * (width - LEFT - 8);
  const y = (value) => 8 + (1 - (value - low) / (high - low)) * (height - BOTTOM - 8);
  const picture = svg("svg", {
    class: panel.bars ? "series low" : "series",
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "img",
    tabindex: 0,
    "aria-label": `${panel.title}, per ${answer.gap}; arrow keys read values, Shift selects, Enter zooms in`,
    "data-testid": "series",
  });
  const rules = panel.bars ? 2 : 4;
  for (let i = 0; i <= rules; i += 1) {
    const value = low + ((high - low) * i) / rules;
    picture.append(
      svg("line", { class: "rule", x1: LEFT, x2: width - 8, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, compact(value)),
    );
  }
  const step = Math.max(1, Math.ceil(edges.length / Math.max(2, Math.floor(width / 110))));
  let free = 0;
  for (let i = 0; i < edges.length; i += step) {
    const text = label(edges[i]);
    const wide = text.length * 6;
    const left = i ? x(i) - wide / 2 : x(i);
    if (left < free || x(i) >= width - 40) continue; // the first label starts at its bar and may extend below the next one
    free = left + wide + 8;
    picture.append(svg("text", { class: "tick", x: x(i), y: height - 5, "text-anchor": i ? "middle" : "start" }, text));
  }
  if (panel.bars) picture.append(...bars(shown[0].drawn, x, y, (width - LEFT - 8) / edges.length));
  else shown.forEach((one, n) => picture.append(...line(one.drawn, n, x, y)));
  picture.append(...brush(picture, panel, { edges, end, width, height, x, label, shown }, context));
  const legend = el(
    "div",
    { class: "legend" },
    ...shown.map((one, n) => named(one, n, shown.length, panel, context)),
  );
  const table = unseen(
    panel.title,
    [answer.gap, ...shown.map((one) => one.label)],
    edges.map((at, i) => [
      moment(at),
      ...shown.map((one) => ({ y: one.points[i], text: context.number(one.points[i]) })),
    ]),
  );
  return el("div", { class: "chart" }, legend, picture, table);
}

function named(one, n, many, panel, context) {
  const clickable = panel.field && (one.kind === "value" || one.kind === "none");
  const text = el("span", {}, one.label);
  if (many === 1 && !clickable) return null;
  if (!clickable) return el("span", { class: `name colour${n % 8}` }, text);
  return el(
    "button",
    {
      type: "button",
      class: `name colour${n % 8}`,
      title: `Only ${one.label}`,
      "data-testid": "series-name",
      onclick: () => context.pick(panel.field, one.value),
    },
    text,
  );
}

function* line(points, n, x, y) {
  let path = "";
  let alone = 0;
  for (let i = 0; i < points.length; i += 1) {
    if (points[i] === null) {
      alone = 0;
      continue;
    }
    path += `${alone ? "L" : "M"}${x(i).toFixed(1)} ${y(points[i]).toFixed(1)}`;
    alone += 1;
    // a point between two gaps would be a line without length
    if (alone === 1 && (i + 1 === points.length || points[i + 1] === null)) {
      yield svg("circle", { class: `dot colour${n % 8}`, cx: x(i), cy: y(points[i]), r: 3 });
    }
  }
  yield svg("path", { class: `line colour${n % 8}`, d: path });
}

const bars = (points, x, y, wide) =>
  points.flatMap((value, i) => {
    if (!value) return [];
    // a bar with few rows next to one with many stays visible
    const top = Math.min(y(value), y(0) - 2);
    return [svg("rect", { class: "block", x: x(i) - wide * 0.45, y: top, width: wide * 0.9, height: y(0) - top })];
  });

function brush(picture, panel, { edges, end, width, height, x, label, shown }, context) {
  const mark = svg("rect", { class: "mark", y: 8, height: height - BOTTOM - 8, width: 0, x: 0 });
  const cursor = svg("line", { class: "cursor", y1: 8, y2: height - BOTTOM, x1: -9, x2: -9 });
  let from = null;
  let at = -1;
  const bar = (event) => {
    const box = picture.getBoundingClientRect();
    const share = ((event.clientX - box.left) * (width / box.width) - LEFT) / (width - LEFT - 8);
    return Math.min(edges.length - 1, Math.max(0, Math.floor(share * edges.length)));
  };
  const show = (i) => {
    at = i;
    cursor.setAttribute("x1", x(i));
    cursor.setAttribute("x2", x(i));
    context.hint([label(edges[i]), ...shown.map((one) => `${one.label}: ${context.number(one.points[i])}`)].join(" · "));
    const [low, high] = from === null ? [i, i - 1] : [Math.min(from, i), Math.max(from, i)];
    const half = (width - LEFT - 8) / edges.length / 2;
    mark.setAttribute("x", x(low) - half);
    mark.setAttribute("width", from === null ? 0 : x(high) - x(low) + 2 * half);
  };
  const closer = (low, high) => context.zoom(edges[low], high + 1 < edges.length ? edges[high + 1] : end);
  picture.addEventListener("pointerdown", (event) => {
    from = bar(event);
    picture.setPointerCapture(event.pointerId);
    show(from);
  });
  picture.addEventListener("pointermove", (event) => show(bar(event)));
  picture.addEventListener("pointerup", (event) => {
    const to = bar(event);
    const begun = from;
    from = null;
    show(to);
    if (begun !== null && (begun !== to || panel.bars)) closer(Math.min(begun, to), Math.max(begun, to));
  });
  picture.addEventListener("pointercancel", () => {
    from = null;
  });
  picture.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) {
      if (event.shiftKey && from === null) from = Math.max(at, 0);
      if (!event.shiftKey) from = null;
      show(Math.min(edges.length - 1, Math.max(0, at + step)));
      event.preventDefault();
    } else if (event.key === "Enter" && at >= 0) {
      closer(Math.min(from ?? at, at), Math.max(from ?? at, at));
    } else if (event.key === "Escape") {
      from = null;
      if (at >= 0) show(at);
    }
  });
  return [mark, cursor];
}
