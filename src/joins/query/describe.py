"""A plan for people and tools: as text, as JSON values, and as a drawing (SVG)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from joins.query.plan import Hop, KeyedJoin, Node, Plan, Step

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 250, 86, 70, 26, 20
_LETTERS = 38


def condition_of(node: Node, hop: Hop) -> str:
    """The ON of a hop, as a query would say it."""
    child = hop.child
    pairs = zip(child.id_columns, hop.columns, strict=True)
    return " AND ".join(f"{child.alias}.{child.columns[c]} = {node.alias}.{node.columns[n]}" for c, n in pairs)


def _role(step: Step, plan: Plan) -> str:
    if isinstance(step, KeyedJoin):
        kind = "JOIN" if step.inner else "LEFT JOIN"
        kept = f"the rows of {step.of}" if step.star is None else f"which rows of {step.of} point where"
        return f"hop {step.number}: {step.of} {kind} {step.right}; keeps {step.right} and {kept}, by key"
    return f"assemble: whole rows of {step.of} from {len(step.widths)} parts; keeps them, by row"


def text_of_plan(plan: Plan) -> str:
    """Several lines: the tree of tables, the steps by stage, what is computed, the columns."""
    root = plan.last.root
    key = ", ".join(plan.sink.row_key)
    lines = [f"{plan.sink.table}: one row per row of {root.alias} ({root.of}), row key {key}", ""]
    lines += _tree(root, "", "")
    lines += ["", "steps" if plan.last.steps else "no stateful step"]
    lines += [f"  stage {step.stage}  {_role(step, plan)}" for step in plan.last.steps]
    if latest := [str(source.table_id) for source in plan.sources if source.needs_latest]:
        lines += ["", "through `latest`, which drops what is repeated or late: " + ", ".join(latest)]
    if plan.last.finish.where is not None:
        lines += ["", f"where {plan.last.finish.where.text}"]
    lines += ["", "columns"]
    width = max(len(output.name) for output in plan.last.finish.outputs)
    lines += [f"  {o.name:{width}}  {o.type!s:14}  {o.origin}" for o in plan.last.finish.outputs]
    return "\n".join([*lines, "", f"fingerprint {plan.fingerprint()}"])


def _tree(node: Node, first: str, rest: str) -> Iterator[str]:
    yield f"{first}{node.alias}  {node.of} ({', '.join(node.columns)})"
    if node.filter is not None:
        yield f"{rest}{'│ ' if node.hops else '  '} only rows with {node.filter.text}"
    for i, hop in enumerate(node.hops):
        last = i == len(node.hops) - 1
        kind = "JOIN" if hop.inner else "LEFT JOIN"
        yield f"{rest}{'└' if last else '├'}─ {kind} ON {condition_of(node, hop)}"
        below = rest + ("     " if last else "│    ")
        yield from _tree(hop.child, below, below)


def json_of_plan(plan: Plan) -> dict[str, Any]:
    """The plan as JSON values; what is in `text_of_plan`, for tools."""
    return {
        "table": plan.sink.table,
        "row_key": list(plan.sink.row_key),
        "tree": _json_node(plan.last.root),
        "steps": [{"stage": s.stage, "number": s.number, "does": _role(s, plan)} for s in plan.last.steps],
        "latest": [str(source.table_id) for source in plan.sources if source.needs_latest],
        "where": None if plan.last.finish.where is None else plan.last.finish.where.text,
        "columns": [{"name": o.name, "type": str(o.type), "from": o.origin} for o in plan.last.finish.outputs],
        "topics": list(plan.topics),
        "fingerprint": plan.fingerprint(),
    }


def _json_node(node: Node) -> dict[str, Any]:
    return {
        "alias": node.alias,
        "table": node.of,
        "columns": list(node.columns),
        "id": [node.columns[i] for i in node.id_columns],
        "filter": None if node.filter is None else node.filter.text,
        "joins": [
            {"kind": "inner" if hop.inner else "left", "on": condition_of(node, hop), **_json_node(hop.child)}
            for hop in node.hops
        ],
    }


@dataclass(frozen=True, slots=True)
class _Box:
    """A box of the drawing; `x` and `y` count boxes, y in halves."""

    x: int
    y: float
    title: str
    lines: tuple[str, ...]


def svg_of_plan(plan: Plan) -> str:
    """A drawing without scripts or fonts from elsewhere: sources on the left, the result on the right."""
    boxes: list[_Box] = []
    lines: list[tuple[_Box, _Box, str]] = []
    rows = iter(range(1_000_000))
    depth = _depth(plan.last.root)

    def draw(node: Node, level: int) -> _Box:
        children = [(hop, draw(hop.child, level + 1)) for hop in node.hops]
        y = sum(box.y for _, box in children) / len(children) if children else float(next(rows))
        about = [node.of, ", ".join(node.columns)]
        if node.filter is not None:
            about.append("where " + node.filter.text)
        box = _Box(depth - level, y, node.alias, tuple(about))
        boxes.append(box)
        for hop, child in children:
            lines.append((child, box, f"{'JOIN' if hop.inner else 'LEFT JOIN'} ON {condition_of(node, hop)}"))
        return box

    root = draw(plan.last.root, 1)
    about = [f"row key {', '.join(plan.sink.row_key)}", f"{len(plan.last.finish.outputs)} columns"]
    if plan.last.finish.where is not None:
        about.insert(0, "where " + plan.last.finish.where.text)
    result = _Box(depth, root.y, plan.sink.table, tuple(about))
    boxes.append(result)
    lines.append((root, result, "whole rows"))
    width = 2 * _MARGIN + (depth + 1) * (_WIDTH + _GAP_X) - _GAP_X
    height = 2 * _MARGIN + (max(box.y for box in boxes) + 1) * (_HEIGHT + _GAP_Y) - _GAP_Y
    parts = [_line(*line) for line in lines] + [_box(box) for box in boxes]
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height:.0f}" font-family="sans-serif">'
    title = f"<title>{escape(plan.sink.topology)}.{escape(plan.sink.table)}</title>"
    return "\n".join([head, title, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"


def _depth(node: Node) -> int:
    return 1 + max((_depth(hop.child) for hop in node.hops), default=0)


def _at(box: _Box) -> tuple[int, float]:
    return _MARGIN + box.x * (_WIDTH + _GAP_X), _MARGIN + box.y * (_HEIGHT + _GAP_Y)


def _cut(text: str) -> str:
    return escape(text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…")


def _box(box: _Box) -> str:
    x, y = _at(box)
    texts = [f'<text x="{x + 10}" y="{y + 20:.0f}" font-size="14" font-weight="bold">{_cut(box.title)}</text>']
    texts += [
        f'<text x="{x + 10}" y="{y + 40 + 17 * i:.0f}" font-size="12">{_cut(line)}<title>{escape(line)}</title></text>'
        for i, line in enumerate(box.lines)
    ]
    shape = f'<rect x="{x}" y="{y:.0f}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" fill="#f4f6f8" stroke="#456"/>'
    return f"<g>{shape}{''.join(texts)}</g>"


def _line(start: _Box, end: _Box, said: str) -> str:
    (x1, y1), (x2, y2) = _at(start), _at(end)
    ends = f'x1="{x1 + _WIDTH}" y1="{y1 + _HEIGHT / 2:.0f}" x2="{x2}" y2="{y2 + _HEIGHT / 2:.0f}"'
    return f'<line {ends} stroke="#456" stroke-width="2"><title>{escape(said)}</title></line>'
