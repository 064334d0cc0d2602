"""Serve dashboards as live web pages that load nothing from any other host."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

import structlog
from nicegui import app, ui
from nicegui.client import Client

from cdc.model.errors import Retriable
from tailorbird.web.dashboard.board import Board
from tailorbird.web.dashboard.guard.access import ANYBODY, Access, refuse_open
from tailorbird.web.dashboard.guard.http_serve import is_loopback, refuse_taken, serve_pages
from tailorbird.web.dashboard.http_page import Page
from tailorbird.web.dashboard.pages.http_explain import ExplainRequests, ExplainRow
from tailorbird.web.dashboard.pages.http_hub import Hub
from tailorbird.web.dashboard.pages.http_listed import serve_listed
from tailorbird.web.dashboard.pages.http_overview import OVERVIEW, serve_overview
from tailorbird.web.dashboard.pages.http_panels import serve_assets, serve_panels
from tailorbird.web.dashboard.pages.http_rows import serve_rows
from tailorbird.web.dashboard.panels.listed import ListedPage
from tailorbird.web.dashboard.panels.reading import Reported
from tailorbird.web.dashboard.style import STYLE


def serve_dashboards(
    boards: Sequence[Board],
    *,
    host: str,
    port: int,
    access: Access = ANYBODY,
    look: Callable[[], Reported] | None = None,
    listed: Mapping[str, tuple[str, Callable[[int], ListedPage]]] = MappingProxyType({}),
    explain: ExplainRow | None = None,
) -> None:
    """Serve dashboards until SIGTERM or SIGINT: the first at `/`, each with links to the others.

    A dashboard with panels shows these, and its rows at `/rows/<name>`. One without panels is a page of rows.

    - `look` returns the graph of `/overview`.
    - `listed` has further pages by path: a title, and a function that builds the content for a time (ms).
    - `explain` returns the sources of a row's cells, given its table and row key.

    Raises UsageError at the start if the port is in use, or if other machines can reach the pages without login and
    TLS. Raises TopologyError if a dashboard names a column that its index lacks. While Solr is unavailable, the
    pages say so."""
    refuse_taken(host, port)
    refuse_open(host, access, loopback=is_loopback(host))
    paths = {board.dashboard.name: f"/dashboard/{board.dashboard.name}" for board in boards}
    paths[boards[0].dashboard.name] = "/"
    titles = {paths[board.dashboard.name]: board.dashboard.title for board in boards}
    hubs = []
    explainer = None if explain is None else ExplainRequests(explain)
    also = {OVERVIEW: "Overview"} if look is not None else {}
    also |= {path: title for path, (title, _) in listed.items()}
    for board in boards:
        # while Solr is unavailable, the page retries at every refresh and shows the reason
        with contextlib.suppress(Retriable):
            board.fit()
        path = paths[board.dashboard.name]
        others = {to: title for to, title in titles.items() if to != path}
        if board.dashboard.panels:
            hubs.append(serve_panels(app, board, path, others | also))
            serve_rows(app, hubs[-1], path, others | also, explainer)
        else:
            _serve(board, path, others)
    serve_assets(app)
    if look is not None:
        serve_overview(app, boards[0].topology.name, look, titles | {to: also[to] for to in listed})
    for path, (title, report) in listed.items():
        serve_listed(app, path, title, report, titles | {to: name for to, name in also.items() if to != path})
    if hubs:
        _keep(hubs)
    title, reported = boards[0].dashboard.title, {"dashboard": ",".join(paths)}
    serve_pages("dashboard", host=host, port=port, title=title, reported=reported, access=access)


def _keep(hubs: Sequence[Hub]) -> None:
    """Run the refresh loop of each hub while the server runs. An unexpected end is logged."""
    tasks: list[asyncio.Task[None]] = []
    log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a dashboard no longer refreshes", error=repr(error))

    async def start() -> None:
        for hub in hubs:
            tasks.append(asyncio.create_task(hub.keep()))
            tasks[-1].add_done_callback(ended)

    def stop() -> None:
        for task in tasks:
            task.cancel()

    app.on_startup(start)
    app.on_shutdown(stop)


def _serve(board: Board, path: str, others: Mapping[str, str]) -> None:
    """Create the page of a dashboard. `others` are the titles of the other dashboards by path."""

    @ui.page(path, title=board.dashboard.title)
    def page(client: Client) -> None:
        ui.add_css(STYLE)
        Page(board, client, others)
