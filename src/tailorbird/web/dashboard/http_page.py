"""One browser's dashboard: its selection, the newest answer, and the refresh loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from nicegui import background_tasks, run, ui
from nicegui.client import Client

from cdc.model.errors import TailorbirdError
from tailorbird.web.dashboard.answer import Answer
from tailorbird.web.dashboard.board import Board
from tailorbird.web.dashboard.freshness import Freshness
from tailorbird.web.dashboard.http_parts import FacetPart, HistogramPart, TablePart
from tailorbird.web.dashboard.query import Filters, Value
from tailorbird.web.dashboard.text import ago_text, count_text, facet_text, incomplete_text, latency_text
from tailorbird.web.dashboard.time import Axis, axis_of, span_label
from tailorbird.web.dashboard.view import View

SECONDS_TO_TYPE = 0.25


class Page:
    """The page of one browser. `others` are the titles of other dashboards by path.

    Each refresh is one Solr query; the first has two, because the histogram needs the time range. While the browser
    is disconnected there are none."""

    def __init__(self, board: Board, client: Client, others: Mapping[str, str]) -> None:
        self._board, self._client = board, client
        self._filters = Filters()
        self._freshness = Freshness()
        self._answer: Answer | None = None
        self._lock = asyncio.Lock()
        self._view: View | None = None
        self._facets: dict[str, FacetPart] = {}
        self._build(others)
        client.on_connect(self._freshness.restart)
        ui.timer(board.dashboard.refresh, self._refresh)

    def _build(self, others: Mapping[str, str]) -> None:
        with ui.element("header").classes("tb-top"):
            with ui.element("h1"):
                ui.label(self._board.dashboard.title).props("data-testid=title")
            if others:
                with ui.element("nav").classes("tb-others").props("aria-label=Dashboards data-testid=others"):
                    for path, title in others.items():
                        ui.link(title, path).classes("tb-link")
            self._pill = ui.label("Connecting").classes("tb-pill bad").props("data-testid=status role=status")
            self._search = ui.input(placeholder="Search", on_change=lambda e: self._choose(words=e.value or ""))
            self._search.classes("tb-search").props(f"outlined dense clearable debounce={SECONDS_TO_TYPE * 1000:.0f}")
            self._search.props("type=search data-testid=search aria-label=Search")
            toggle = "() => document.querySelector('.tb-facets')?.classList.toggle('shown')"
            self._filters_button = _button("Filters", "tb-link tb-filters-button", "filters-button")
            self._filters_button.on("click", js_handler=toggle)
        self._banner = ui.label().classes("tb-banner").props("data-testid=banner role=alert")
        self._banner.set_visibility(False)
        with ui.element("div").classes("tb-stats"):
            self._total, self._total_note = _stat("Rows", "total")
            self._p50, self._p50_note = _stat("Freshness", "freshness")
            self._newest, self._newest_note = _stat("Newest change", "newest-change")
        self._verified = ui.label().classes("tb-note").props("data-testid=verified")
        self._chips = ui.element("div").classes("tb-chips").props("data-testid=chips")
        self._body = ui.element("main").classes("tb-body")

    def _build_body(self, view: View) -> None:
        """Build the parts that depend on the columns of the index."""
        self._view = view
        self._search.set_visibility(bool(view.words))
        with self._body:
            with ui.element("aside").classes("tb-facets").props("data-testid=facets aria-label=Filters") as facets:
                self._facets = {c.name: FacetPart(c, self._pick, self._whole) for c in view.facets}
            with ui.element("div").classes("tb-main"):
                self._histogram = HistogramPart(view, lambda window: self._choose(window=window)) if view.time else None
                self._table = TablePart(view)
        if not view.facets:
            self._body.style("grid-template-columns: minmax(0, 1fr)")
            facets.set_visibility(False)
            self._filters_button.set_visibility(False)
        self._show_chips()

    # Selection

    def _choose(self, **changes: object) -> None:
        """Change the filters and refresh at once."""
        filters = replace(self._filters, **changes)  # type: ignore[arg-type]  # the callers name fields of Filters
        if filters == self._filters:
            return
        self._filters = filters
        self._freshness.restart()
        self._show_chips()
        background_tasks.create_lazy(self._refresh(), name=f"refresh {self._client.id}")

    def _pick(self, column: str, value: Value, chosen: bool) -> None:
        if chosen != (value in self._filters.picks.get(column, frozenset())):
            self._choose(picks=self._filters.toggled(column, value, chosen))

    def _whole(self, column: str) -> None:
        self._choose(whole=self._filters.whole | {column})

    def _clear(self) -> None:
        self._search.set_value("")
        self._choose(words="", picks={}, window=None)

    def _show_chips(self) -> None:
        self._chips.clear()
        with self._chips:
            if not self._filters.narrowing:
                return
            for column in self._view.facets if self._view else ():
                for value in sorted(self._filters.picks.get(column.name, ()), key=str):
                    text = f"{column.heading}: {facet_text(value, column.look)}"
                    self._chip(text, partial(self._pick, column.name, value, False))
            if self._filters.window:
                self._chip(span_label(self._filters.window), partial(self._choose, window=None))
            _button("Clear all", "tb-link", "clear").on("click", self._clear)

    def _chip(self, text: str, remove: Callable[[], None]) -> None:
        chip = _button(text, "tb-chip", "chip").on("click", remove)
        chip.props["aria-label"] = f"remove filter {text}"

    # Refresh loop

    async def _refresh(self) -> None:
        if not self._client.has_socket_connection:
            return
        async with self._lock:
            try:
                if self._view is None:
                    view = await run.io_bound(self._board.view)
                    if view is None:
                        self._unavailable("The index has no columns yet: it waits for the first rows of its table.")
                        return
                    self._build_body(view)
                view, filters = self._view, self._filters
                if view is None:
                    return
                axis = self._axis(self._answer)
                answer = await run.io_bound(self._board.solr.answer, view, filters, axis)
                if view.time and axis is None and answer and answer.span:
                    axis = self._axis(answer)
                    answer = await run.io_bound(self._board.solr.answer, view, filters, axis)
            except TailorbirdError as error:
                self._unavailable(f"{error}.")
                return
            # none if the server stops in the meantime
            if answer is not None and filters is self._filters:
                self._show(answer, axis)

    def _axis(self, answer: Answer | None) -> Axis | None:
        span = self._filters.window or (answer.span if answer else None)
        return axis_of(span) if span else None

    def _show(self, answer: Answer, axis: Axis | None) -> None:
        self._answer = answer
        self._freshness.observe(answer)
        waiting, checked = self._board.waiting(), self._board.checked()
        lacks = incomplete_text(answer.incomplete if waiting is None else waiting, self._board.topology.file)
        text = " ".join(filter(None, (lacks, checked.alarm)))
        self._banner.set_text(text)
        self._banner.set_visibility(bool(text))
        self._pill.set_text("Incomplete" if lacks else "Different" if text else "Live")
        self._verified.set_text(checked.quiet)
        self._pill.classes(add="bad" if text else "", remove="" if text else "bad")
        self._total.set_text(count_text(answer.total))
        self._total_note.set_text(f"of {count_text(answer.all_rows)}" if self._filters.narrowing else "all rows")
        p50 = self._freshness.p50(answer.received_ms)
        self._p50.set_text("—" if p50 is None else latency_text(p50))
        self._p50.props["data-ms"] = "" if p50 is None else p50
        self._p50_note.set_text(
            "no new row in the last minute"
            if p50 is None
            else "from the source to this page, median of the last minute"
        )
        newest = answer.newest_commit_ms
        self._newest.set_text("—" if newest is None else ago_text(answer.received_ms - newest))
        self._newest_note.set_text("when the source last changed one of these rows")
        for name, part in self._facets.items():
            part.show(answer.facets[name], self._filters.picks.get(name, frozenset()))
        if self._histogram:
            self._histogram.show(axis, answer)
        self._table.show(answer, self._freshness)

    def _unavailable(self, why: str) -> None:
        """Show why there is no answer. The rows stay on the page, with the time of their refresh."""
        shown = ""
        if self._answer:
            shown = time.strftime(" The rows shown are from %H:%M:%S.", time.localtime(self._answer.received_ms / 1000))
        self._banner.set_text(f"{why}{shown} Retrying automatically.")
        self._banner.set_visibility(True)
        self._pill.set_text("Not live")
        self._pill.classes(add="bad")


def _stat(name: str, testid: str) -> tuple[ui.label, ui.label]:
    with ui.element("div").classes("tb-card"):
        ui.label(name).classes("tb-name")
        number = ui.label("—").classes("tb-number").props(f"data-testid={testid}")
        return number, ui.label().classes("tb-note").props(f"data-testid={testid}-note")


def _button(text: str, classes: str, testid: str) -> ui.element:
    with ui.element("button").classes(classes).props(f"type=button data-testid={testid}") as button:
        ui.label(text).style("display: inline")
    return button
