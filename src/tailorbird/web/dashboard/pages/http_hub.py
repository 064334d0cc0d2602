"""Query Solr once for all viewers of a dashboard: one query per panel and selection.

A bounded cache keeps the results by query and state of the index. Viewers who need the same result while a query
runs wait for it. A periodic round reads the state of the index. If it has changed, or a relative time range has
moved, every viewer gets the panels that changed."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from cdc.model.errors import TailorbirdError
from cdc.topology.panels import TimeRange
from tailorbird.web.dashboard.board import Board
from tailorbird.web.dashboard.panels.asking import (
    axis_for,
    crowded,
    extent_params,
    needs_extent,
    panel_params,
    steps_for,
)
from tailorbird.web.dashboard.panels.columns import Misfit
from tailorbird.web.dashboard.panels.facets import facets_params, read_facets
from tailorbird.web.dashboard.panels.fitting import FitBoard, FitPanel
from tailorbird.web.dashboard.panels.reading import Reported, nothing, read_counts, read_extent, read_panel
from tailorbird.web.dashboard.panels.splitting import in_one, in_two_steps, parts_params, values_params
from tailorbird.web.dashboard.panels.state import Selection, stretch
from tailorbird.web.dashboard.panels.watching import (
    IndexState,
    barrier_params,
    document_params,
    read_barriers,
    read_documents,
)
from tailorbird.web.dashboard.query import Params
from tailorbird.web.dashboard.time import Span

FACETS, TIMELINE = -1, -2  # the filters, and the rows over time, treated as panels
SHELF = 512  # cached answers
AT_ONCE = 4  # concurrent queries
Ask = Callable[[Params], Mapping[str, Any]]
_Key = tuple[int, str, Span | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedAnswer:
    """A result: `reported` is the JSON for the browser. `asked_ms` and `seconds` are the query's time and duration.

    `token` identifies the state of the index."""

    reported: Reported
    asked_ms: int
    seconds: float
    token: str


@dataclass(eq=False, slots=True)
class Viewer:
    """A browser: its selection, the numbers of its visible panels, and the function `report` that sends to it.

    `shown` are the results that were sent last, by panel."""

    report: Callable[[Reported], Awaitable[None]]
    chosen: Selection = field(default_factory=Selection)
    number: int = 0
    panels: tuple[int, ...] = ()
    shown: dict[int, CachedAnswer] = field(default_factory=dict)


class Hub:
    """Runs all queries of a dashboard. Its methods belong to one event loop; queries run in its own threads."""

    def __init__(self, board: Board, *, shelf: int = SHELF) -> None:
        self.board, self._most = board, shelf
        self.viewers: set[Viewer] = set()
        self._shelf: OrderedDict[_Key, CachedAnswer] = OrderedDict()
        self._under_way: dict[_Key, asyncio.Task[CachedAnswer]] = {}
        self._threads = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="panel")
        self._fit: FitBoard | None = None
        self._moved: IndexState | None = None
        self._first = asyncio.Lock()  # of many concurrent first requests only one reads the index state
        self._unavailable = ""
        self._checked_ms = 0
        self._counting = threading.Lock()
        self.queries = 0

    async def fit(self) -> FitBoard:
        """Return the panels with their columns. Raises a TailorbirdError, or Misfit while the index has no columns."""
        self._fit = await self._off(self.board.fit)
        if self._fit is None:
            raise Misfit("the index has no columns yet: it waits for the first rows of its table", "wait")
        return self._fit

    async def show(self, viewer: Viewer) -> None:
        """Send a viewer every panel that changed for it, or the reason why a panel cannot be queried."""
        number, chosen = viewer.number, viewer.chosen
        await asyncio.gather(*(self._show(viewer, number, chosen, one) for one in viewer.panels))

    async def round(self) -> None:
        """Read the state of the index and update all viewers. Call it once per refresh."""
        try:
            self._moved, self._unavailable = await self._how_far(), ""
            self._checked_ms = _now_ms()
        except TailorbirdError as error:
            self._unavailable = str(error)
        await asyncio.gather(*(self._report_all(one) for one in list(self.viewers)))

    async def keep(self) -> None:
        """Run rounds until this task is cancelled. Without viewers, nothing is queried."""
        while True:
            began = time.monotonic()
            if self.viewers:
                await self.round()
            await asyncio.sleep(max(self.board.dashboard.refresh - (time.monotonic() - began), 0.05))

    async def get(self, number: int, chosen: Selection) -> CachedAnswer:
        """Return the result of a panel for a selection, from the cache or from Solr. Raises TailorbirdError or
        Misfit."""
        async with self._first:
            if self._moved is None:
                self._moved = await self._how_far()
                self._checked_ms = _now_ms()
        board = self._fit or await self.fit()
        span = self.span(chosen)
        key = (number, chosen.key, span, self._moved.token)
        if key in self._shelf:
            self._shelf.move_to_end(key)
            return self._shelf[key]
        if key not in self._under_way:
            task = asyncio.create_task(self._ask(board, key, chosen))
            self._under_way[key] = task
            task.add_done_callback(lambda _: self._under_way.pop(key, None))
        # a viewer who leaves must not cancel the query for the others
        return await asyncio.shield(self._under_way[key])

    @property
    def kept(self) -> int:
        """Return the number of cached answers."""
        return len(self._shelf)

    def span(self, chosen: Selection) -> Span | None:
        """Return the time range that a selection means now, or None for no limit."""
        default: TimeRange = self.board.dashboard.range
        return stretch(chosen, default, _now_ms()) if self.board.dashboard.time else None

    async def _show(self, viewer: Viewer, number: int, chosen: Selection, panel: int) -> None:
        try:
            found = await self.get(panel, chosen)
        except (TailorbirdError, Misfit) as error:
            viewer.shown.pop(panel, None)
            hint = error.expected if isinstance(error, Misfit) else ""
            await viewer.report({"panel": panel, "state": number, "error": str(error), "hint": hint})
            return
        if viewer.shown.get(panel) is not found and viewer.number == number:
            viewer.shown[panel] = found
            span = self.span(chosen)
            await viewer.report(
                {
                    "panel": panel,
                    "state": number,
                    "answer": found.reported,
                    "asked_ms": found.asked_ms,
                    "seconds": found.seconds,
                    "token": found.token,
                    "span": None if span is None else [span.start, span.end],
                }
            )

    async def _report_all(self, viewer: Viewer) -> None:
        await viewer.report(self.status())
        if not self._unavailable:
            await self.show(viewer)

    def status(self) -> Reported:
        """Return the JSON about problems and the state of the index."""
        moved = self._moved or IndexState(token="")
        waiting, checked = self.board.waiting(), self.board.checked()
        return {
            "unavailable": self._unavailable,
            "lacks": moved.incomplete if waiting is None else waiting,
            "alarm": checked.alarm,
            "quiet": checked.quiet,
            "positions": dict(moved.positions),
            "token": moved.token,
            "checked_ms": self._checked_ms,
            "now_ms": _now_ms(),
        }

    async def _how_far(self) -> IndexState:
        found = read_barriers(await self._off(self._select, barrier_params()))
        return found or read_documents(await self._off(self._select, document_params()))

    async def _ask(self, board: FitBoard, key: _Key, chosen: Selection) -> CachedAnswer:
        number, _, span, token = key
        began, asked_ms = time.monotonic(), _now_ms()
        reported = await self._off(self._reported, board, number, chosen, span)
        found = CachedAnswer(
            reported=reported, asked_ms=asked_ms, seconds=round(time.monotonic() - began, 4), token=token
        )
        self._shelf[key] = found
        while len(self._shelf) > self._most:
            self._shelf.popitem(last=False)
        return found

    def _reported(self, board: FitBoard, number: int, chosen: Selection, span: Span | None) -> Reported:
        if number == FACETS:
            return read_facets(board, chosen, self._select(facets_params(board, chosen, span)))
        panel = board.timeline if number == TIMELINE else board.panels[number]
        if panel is None:
            raise Misfit("a dashboard without `time`", "`time:` with the column of a row's time")
        return ask_panel(board, panel, chosen, span, self._select)

    def _select(self, params: Params) -> Mapping[str, Any]:
        with self._counting:
            self.queries += 1
        return self.board.solr.select(params)

    async def _off(self, work: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, work, *arguments)


def ask_panel(board: FitBoard, fit: FitPanel, chosen: Selection, span: Span | None, ask: Ask) -> Reported:
    """Query one panel. Histograms, split series and unlimited time ranges need more than one query."""
    if fit.panel.type == "text":
        return read_panel(fit, {}, None)
    if fit.panel.type == "histogram":
        return _histogram(board, fit, chosen, span, ask)
    seen, drawn = span, None
    if needs_extent(fit, span):
        extent = read_extent(ask(extent_params(board, fit, chosen, span)))
        if extent is not None and extent.long:
            extent = read_extent(ask(extent_params(board, fit, chosen, span, most=True)))
        if extent is None:
            return nothing(fit)
        low, high = extent.shown
        seen = Span(start=int(low), end=int(high) + 1)
    if seen is not None and fit.panel.type in ("timeseries", "heatmap"):
        drawn = axis_for(fit.panel, seen)
        column = in_two_steps(fit)
        if column is not None:
            values = ask(values_params(board, fit, column, chosen, span))
            parts = ask(parts_params(board, fit, column, chosen, span, drawn, values))
            return read_panel(fit, in_one(values, parts), drawn)
    return read_panel(fit, ask(panel_params(board, fit, chosen, span, drawn)), drawn)


def _histogram(board: FitBoard, fit: FitPanel, chosen: Selection, span: Span | None, ask: Ask) -> Reported:
    """Query a histogram from the least to the greatest value.

    If nearly all rows fall into a few bars, only the range of those bars is returned."""
    extent = read_extent(ask(extent_params(board, fit, chosen, span)))
    if extent is None:
        return nothing(fit)
    whole = fit.fields[0].whole
    drawn = steps_for(fit.panel, extent, whole=whole)
    answer = ask(panel_params(board, fit, chosen, span, drawn))
    if crowded(drawn, read_counts(answer, drawn)):
        nearer = read_extent(ask(extent_params(board, fit, chosen, span, most=True))) or extent
        drawn = steps_for(fit.panel, nearer, whole=whole)
        answer = ask(panel_params(board, fit, chosen, span, drawn))
    return read_panel(fit, answer, drawn)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
