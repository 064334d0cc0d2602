"""The parts of a dashboard's page: facet, histogram and table. Each shows data and reports the user's selection.

Values reach the browser as text nodes and attributes only, never as markup."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from nicegui import events, ui
from nicegui.element import Element

from tailorbird.web.dashboard.answer import Answer, FacetCounts, PageRow
from tailorbird.web.dashboard.freshness import Freshness
from tailorbird.web.dashboard.query import Value
from tailorbird.web.dashboard.text import (
    NONE,
    NOTHING,
    ago_text,
    cell_text,
    count_text,
    facet_text,
    hint_text,
    latency_text,
)
from tailorbird.web.dashboard.time import Axis, Span, bar, edges, label, span_label
from tailorbird.web.dashboard.view import PageColumn, View

ARRIVED_MS = 3_000
TICKS = 6
LONGEST_WORD = 20  # in characters; a longer word is broken, so that the table needs no horizontal scrolling
FEW_TIMES = 2  # with at most so many time columns, a time stays on one line
MANY_COLUMNS = 12  # from this number on the table uses a smaller font, and all words may be broken
# Pressing on one bar and releasing over another selects the range between them. A click, Enter or Space selects one
# bar.
_BRUSH_START = "(e) => { const b = e.target.closest('button'); if (b) e.currentTarget.dataset.from = b.dataset.bar; }"
_BRUSH_MOVE = """(e) => {
  const bars = e.currentTarget, from = bars.dataset.from, over = document.elementFromPoint(e.clientX, e.clientY);
  const b = over && over.closest('button');
  if (from === undefined || !e.buttons || !b || !bars.contains(b)) return;
  const [low, high] = [Math.min(+from, +b.dataset.bar), Math.max(+from, +b.dataset.bar)];
  for (const c of bars.children) c.classList.toggle('brushed', +c.dataset.bar >= low && +c.dataset.bar <= high);
}"""
_BRUSH_END = """(e) => {
  const bars = e.currentTarget, from = bars.dataset.from, b = e.target.closest('button');
  delete bars.dataset.from;
  for (const c of bars.children) c.classList.remove('brushed');
  if (from !== undefined && b && from !== b.dataset.bar) emit(+from, +b.dataset.bar);
}"""
_CLICK = """(e) => { const b = e.target.closest('button'); if (b) emit(+b.dataset.bar, +b.dataset.bar); }"""
_ARROWS = """(e) => {
  const step = {ArrowLeft: 'previousElementSibling', ArrowRight: 'nextElementSibling'}[e.key];
  const next = step && e.target[step];
  if (next) { e.target.tabIndex = -1; next.tabIndex = 0; next.focus(); e.preventDefault(); }
}"""
_TABLE_ROW = """
<q-tr :props="props" :key="props.row._key + '/' + props.row._version" :class="{arrived: props.row._arrived}"
      data-testid="row" :data-key="props.row._key">
  <q-td v-for="col in props.cols" :key="col.name" :props="props" :data-column="col.name" :data-heading="col.label"
        :title="props.row._full[col.name]"
        :class="{nothing: props.row._full[col.name] === null, loose: props.row._loose.includes(col.name)}">
    <span>{{ col.value }}</span>
    <span v-if="col.name === '_changed' && props.row._latency" class="tb-latency" data-testid="row-latency"
          :data-ms="props.row._latency_ms">{{ props.row._latency }}</span>
  </q-td>
</q-tr>
"""


class FacetPart:
    """Checkboxes for the values of one column. They stay in place when counts change, so that none moves under the
    pointer."""

    def __init__(
        self, column: PageColumn, choose: Callable[[str, Value, bool], None], whole: Callable[[str], None]
    ) -> None:
        self._column, self._choose = column, choose
        self._boxes: dict[Value, tuple[Element, ui.checkbox, ui.label]] = {}
        self._ranks: dict[Value, int] = {}
        with ui.element("fieldset").classes("tb-card tb-facet").props(f"data-testid=facet-{column.name}"):
            with ui.element("legend").classes("tb-unseen"):
                ui.label(column.heading)
            ui.label(column.heading).classes("tb-heading").props("aria-hidden=true")
            self._list = ui.element("div").classes("tb-values")
            self._more = ui.element("button").classes("tb-link").on("click", lambda: whole(column.name))
            with self._more.props(f"type=button data-testid=facet-more-{column.name}"):
                self._more_label = ui.label()

    def show(self, facet: FacetCounts, picked: frozenset[Value]) -> None:
        """Show the counts of an answer. A selected value stays listed; others are removed when they have no rows."""
        for value in [v for v in self._boxes if v not in facet.counts and v not in picked]:
            self._boxes.pop(value)[0].delete()
        for value in [*facet.counts, *sorted(picked - facet.counts.keys(), key=str)]:
            if value not in self._boxes:
                self._boxes[value] = self._line(value)
                rank = self._ranks.setdefault(value, len(self._ranks))
                place = sum(1 for other in self._boxes if self._ranks[other] < rank)
                self._boxes[value][0].move(target_index=place)
            line, box, count = self._boxes[value]
            rows = facet.counts.get(value, 0)
            # the selected value has rows, but is not among the values that were counted, so its count is unknown
            count.set_text("" if value not in facet.counts and facet.more else count_text(rows))
            line.classes(add="none" if rows == 0 else "", remove="" if rows == 0 else "none")
            if box.value != (value in picked):
                box.set_value(value in picked)
        self._more.set_visibility(facet.more > 0)
        self._more_label.set_text(f"{count_text(facet.more)} more")

    def _line(self, value: Value) -> tuple[Element, ui.checkbox, ui.label]:
        text = facet_text(value, self._column.look)
        with self._list, ui.element("div").classes("tb-value") as line:
            if value is None or value == "":
                line.classes("nothing")
            box = ui.checkbox(text, on_change=lambda e: self._choose(self._column.name, value, bool(e.value)))
            # set as values, because `props(…)` would parse them
            box.props["data-testid"] = "facet-value"
            box.props["data-value"] = "" if value is None else str(value)
            box.props["title"] = text
            count = ui.label().classes("tb-count").props("data-testid=facet-count")
        return line, box, count


class HistogramPart:
    """A histogram of rows over time. Clicking a bar, or dragging over several, selects that time range."""

    def __init__(self, view: View, choose: Callable[[Span | None], None]) -> None:
        self._choose = choose
        self._axis: Axis | None = None
        self._edges: list[int] = []
        self._bars: list[Element] = []
        self._shown: list[tuple[int, int]] = []
        with ui.element("section").classes("tb-card").props("data-testid=histogram"):
            with ui.element("div").classes("tb-headline"):
                self._heading = ui.label().classes("tb-heading").props("role=heading aria-level=2")
                self._hint = ui.label().classes("tb-note tb-hint")
            self._what = view.time_heading
            self._box = ui.element("div").classes("tb-bars")
            self._box.on("pointerdown", js_handler=_BRUSH_START).on("pointermove", js_handler=_BRUSH_MOVE)
            self._box.on("pointerup", self._chosen, js_handler=_BRUSH_END)
            self._box.on("click", self._chosen, js_handler=_CLICK).on("keydown", js_handler=_ARROWS)
            self._ticks = ui.element("div").classes("tb-ticks")

    def show(self, axis: Axis | None, answer: Answer) -> None:
        """Show the bars of an answer to a query with this axis."""
        if axis != self._axis:
            self._build(axis)
        counts = dict(answer.bars)
        most = max(counts.values(), default=0) or 1
        shown = [(counts.get(edge, 0), most) for edge in self._edges]
        for i, (edge, now) in enumerate(zip(self._edges, shown, strict=True)):
            if axis and (i >= len(self._shown) or self._shown[i] != now):
                rows = now[0]
                # a bar with few rows next to one with many stays visible
                height = max(rows / most * 100, 2) if rows else 0
                element = self._bars[i].style(f"--height: {height:.2f}%")
                text = f"{span_label(bar(axis, edge))}: {count_text(rows)} row{'' if rows == 1 else 's'}"
                element.props["title"] = element.props["aria-label"] = text
                element.props["data-count"] = rows
        self._shown = shown
        if axis:
            peak = f", at most {count_text(most)}" if counts and any(counts.values()) else ""
            self._heading.set_text(f"{self._what}: rows per {axis.gap}{peak}")

    def _build(self, axis: Axis | None) -> None:
        self._axis, self._shown = axis, []
        self._edges = list(edges(axis)) if axis else []
        self._box.clear()
        self._ticks.clear()
        self._bars = []
        with self._box:
            for i, edge in enumerate(self._edges):
                button = ui.element("button").classes("tb-bar").props("type=button data-testid=bar")
                button.props["tabindex"] = 0 if i == 0 else -1
                button.props["data-bar"], button.props["data-start"] = i, edge
                self._bars.append(button)
        if axis is None:
            self._heading.set_text(f"{self._what}: no row has a time yet")
            self._hint.set_text("")
            return
        with self._ticks:
            step = max(len(self._edges) // TICKS, 1)
            for i in range(0, len(self._edges), step):
                # a label too near the right end would extend beyond the card
                if i / len(self._edges) <= 0.94:
                    ui.label(label(self._edges[i], axis.gap)).style(f"left: {i / len(self._edges) * 100:.2f}%")
        self._hint.set_text("Click a bar or drag over several to zoom in")

    def _chosen(self, event: events.GenericEventArguments) -> None:
        chosen: Sequence[Any] = event.args if isinstance(event.args, list) else []
        if self._axis is None or len(chosen) != 2 or not all(isinstance(i, int) for i in chosen):
            return
        low, high = sorted(chosen)
        if low >= 0 and high < len(self._edges):
            last = bar(self._axis, self._edges[high])
            self._choose(Span(start=self._edges[low], end=last.end))


class TablePart:
    """Table of the newest rows, newest first."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._arrivals: dict[tuple[str, int], int] = {}
        numbers = {column.name for column in view.columns if column.look == "number"}
        columns: list[dict[str, Any]] = [{"name": "_changed", "label": "Changed", "field": "_changed", "align": "left"}]
        columns += [
            {"name": c.name, "label": c.heading, "field": c.name, "align": "right" if c.name in numbers else "left"}
            for c in view.columns
        ]
        times = [column for column in columns if column["name"] in {c.name for c in view.columns if c.look == "time"}]
        for column in times if len(times) <= FEW_TIMES else ():
            column["classes"] = "time"
        with ui.element("section").classes("tb-card"):
            with ui.element("div").classes("tb-headline"):
                ui.label("Newest rows").classes("tb-heading").props("role=heading aria-level=2")
                self._note = ui.label().classes("tb-note").props("data-testid=rows-note")
            self._table = ui.table(rows=[], columns=columns, row_key="_key").classes("tb-table")
            self._table.props("flat dense data-testid=rows no-data-label='No row matches.'")
            if len(columns) >= MANY_COLUMNS:
                self._table.classes("many")
            self._table.add_slot("body", _TABLE_ROW)

    def show(self, answer: Answer, freshness: Freshness) -> None:
        """Show the rows of an answer. Rows that have just arrived are highlighted once."""
        self._table.rows = [self._row(row, answer.received_ms, freshness) for row in answer.rows]
        shown, total = len(answer.rows), answer.total
        self._note.set_text(f"the newest {shown} of {count_text(total)}" if total > shown else "")

    def _row(self, row: PageRow, now_ms: int, freshness: Freshness) -> dict[str, Any]:
        latency = freshness.of(row.key, row.version)
        texts = {
            c.name: cell_text(row.values[c.name], c.look, NONE if c.in_key else NOTHING) for c in self._view.columns
        }
        age = None if row.committed_ms is None else now_ms - row.committed_ms
        full = {c.name: hint_text(row.values[c.name]) for c in self._view.columns}
        return {
            **texts,
            "_key": row.key,
            "_version": row.version,
            "_loose": [name for name, text in texts.items() if max(map(len, text.split()), default=0) > LONGEST_WORD],
            "_full": {**full, "_changed": "age of the change, and its latency from the commit to this page"},
            "_changed": NOTHING if age is None else ago_text(age),
            "_latency": None if latency is None else f"in {latency_text(latency)}",
            "_latency_ms": latency,
            "_arrived": latency is not None and age is not None and age - latency < ARRIVED_MS,
        }
