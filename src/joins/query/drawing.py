"""Draw a plan as SVG without scripts or external fonts: sources on the left, the result on the right."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from xml.sax.saxutils import escape

from joins.query.describe import condition_of, first_of, key_of, met_on, windows_of
from joins.query.nodes import Derived, Node, Root
from joins.query.plan import Fragment, Plan

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 250, 86, 70, 26, 20
_DEAD_LETTERS = 38


@dataclass(frozen=True, slots=True)
class _Box:
    """A box of the drawing with a title and lines of text. `x` is its column and `y` its row, which may be a half."""

    x: int
    y: float
    title: str
    lines: tuple[str, ...]


def svg_of_plan(plan: Plan) -> str:
    """Return an SVG drawing of a plan, with one box per table, group and result."""
    return _Drawing(plan).svg()


class _Drawing:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.boxes: list[_Box] = []
        self.lines: list[tuple[int, int, str]] = []  # from, to (indexes of boxes), label
        self.rows = count()

    def svg(self) -> str:
        """Place the boxes by their distance from the result, which is on the right, and return the SVG."""
        finish = self.plan.last.finish
        about = [f"row key {', '.join(self.plan.sink.row_key)}", f"{len(finish.outputs)} columns"]
        if finish.where is not None:
            about.insert(0, "where " + finish.where.text)
        below = self._fragment_rows(self.plan.last, 1)
        self._box(0, self.plan.sink.table, about, [(place, "whole rows") for place in below])
        depth = max(box.x for box in self.boxes)
        self.boxes = [replace(box, x=depth - box.x) for box in self.boxes]
        width = 2 * _MARGIN + (depth + 1) * (_WIDTH + _GAP_X) - _GAP_X
        height = 2 * _MARGIN + (max(box.y for box in self.boxes) + 1) * (_HEIGHT + _GAP_Y) - _GAP_Y
        parts = [_line(self.boxes[start], self.boxes[end], said) for start, end, said in self.lines]
        parts += [_drawn(box) for box in self.boxes]
        size = f'width="{width}" height="{height:.0f}"'
        head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif">'
        title = f"<title>{escape(self.plan.sink.topology)}.{escape(self.plan.sink.table)}</title>"
        return "\n".join([head, title, '<rect width="100%" height="100%" fill="white"/>', *parts, "</svg>"]) + "\n"

    def _fragment_rows(self, fragment: Fragment, level: int) -> list[int]:
        """Add the boxes that a fragment's rows come from, from column `level` to the left. Return the boxes'
        indexes."""
        group = fragment.group
        if fragment.temporal is not None:
            rows = [(place, "whole rows") for place in self._root(fragment.root, level + 1)]
            where = [] if fragment.finish.where is None else ["where " + fragment.finish.where.text]
            return [self._box(level, "while", [*where, *(bound.text for bound in fragment.temporal.bounds)], rows)]
        if group is None:
            return self._root(fragment.root, level)
        below = self._root(fragment.root, level + 1)
        about = [", ".join(result.text for result in group.results) or "each once"]
        if group.top is not None:
            about = [first_of(fragment, group)]
        if group.windows is not None:
            about = [windows_of(fragment, group)]
        if group.always is None and group.keys:
            about.insert(0, "by " + key_of(fragment, group))
        if fragment.finish.where is not None:
            about.insert(0, "where " + fragment.finish.where.text)
        title = "groups" if group.always is None and group.keys else "one group"
        return [self._box(level, title, about, [(place, "whole rows") for place in below])]

    def _root(self, root: Root, level: int) -> list[int]:
        if isinstance(root, Node):
            return self._node(root, level)
        sides = [(place, "rows") for side in root.walk() for place in self._node(side, level + 1)]
        return [self._box(level, f"pairs of {root.alias}", [f"ON {met_on(root)}"], sides)]

    def _node(self, node: Node, level: int) -> list[int]:
        """Add the box of a node, and return a list with its index.

        A node that only passes on rows of other fragments has no box; the boxes of those rows are returned."""
        read: list[int] = []
        if isinstance(node.source, Derived):
            plain = not node.lookups
            for number in node.source.fragments:
                read += self._fragment_rows(self.plan.fragments[number], level + (0 if plain else 1))
            if plain:
                return read
        below = [(place, "rows") for place in read]
        for lookup in node.lookups:
            said = f"{'JOIN' if lookup.inner else 'LEFT JOIN'} ON {condition_of(node, lookup)}"
            below += [(place, said) for place in self._node(lookup.child, level + 1)]
        about = [node.of, ", ".join(node.columns)]
        if node.filter is not None:
            about.append("where " + node.filter.text)
        return [self._box(level, node.alias, about, below)]

    def _box(self, level: int, title: str, about: list[str], below: list[tuple[int, str]]) -> int:
        ys = [self.boxes[place].y for place, _ in below]
        y = sum(ys) / len(ys) if ys else float(next(self.rows))
        self.boxes.append(_Box(level, y, title, tuple(about)))
        place = len(self.boxes) - 1
        self.lines += [(start, place, said) for start, said in below]
        return place


def _at(box: _Box) -> tuple[int, float]:
    return _MARGIN + box.x * (_WIDTH + _GAP_X), _MARGIN + box.y * (_HEIGHT + _GAP_Y)


def _cut(text: str) -> str:
    return escape(text if len(text) <= _DEAD_LETTERS else text[: _DEAD_LETTERS - 1] + "…")


def _drawn(box: _Box) -> str:
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
