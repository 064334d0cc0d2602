"""Serve dashboards as live web pages that load nothing from any other host."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from types import MappingProxyType

import structlog

from cdc.model.errors import Retriable
from tailorbird.web.dashboard.board import Board
from tailorbird.web.dashboard.guard.access import ANYBODY, Access, refuse_open
from tailorbird.web.dashboard.guard.http_serve import is_loopback, pages_app, refuse_taken, serve_pages
from tailorbird.web.dashboard.http_wait import serve_wait
from tailorbird.web.dashboard.pages.http_explain import ExplainRequests, ExplainRow
from tailorbird.web.dashboard.pages.http_hub import Hub
from tailorbird.web.dashboard.pages.http_listed import serve_listed
from tailorbird.web.dashboard.pages.http_overview import OVERVIEW, serve_overview
from tailorbird.web.dashboard.pages.http_panels import serve_assets, serve_live, serve_panels
from tailorbird.web.dashboard.pages.http_rows import serve_rows
from tailorbird.web.dashboard.panels.listed import ListedPage
from tailorbird.web.dashboard.panels.reading import Reported


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

    A dashboard with panels shows them, and its rows at `/rows/<name>`. One without panels is the page of its rows.
    `GET /wait` uses the topology of the first. `look` returns the graph of `/overview`. `listed` has further pages by
    path: a title, and a function from a moment to the page. `explain` returns the sources of the cells of a row, given
    its table and row key.

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
    hubs = [Hub(board) for board in boards]
    app = pages_app(lambda _: _kept(hubs))
    serve_assets(app)
    serve_wait(app, boards[0].topology)
    explainer = None if explain is None else ExplainRequests(explain)
    also = {OVERVIEW: "Overview"} if look is not None else {}
    also |= {path: title for path, (title, _) in listed.items()}
    for hub in hubs:
        board = hub.board
        # while Solr is unavailable, the page retries at every refresh and shows the reason
        with contextlib.suppress(Retriable):
            board.fit()
        path, title = paths[board.dashboard.name], board.dashboard.title
        others = {to: title for to, title in titles.items() if to != path} | also
        serve_live(app, hub)
        if board.dashboard.panels:
            serve_panels(app, board, path, others)
            name = board.dashboard.name
            serve_rows(app, hub, f"/rows/{name}", f"{title}: rows", {path: title, **others}, explainer)
        else:
            serve_rows(app, hub, path, title, others, explainer)
    if look is not None:
        serve_overview(app, boards[0].topology.name, look, titles | {to: also[to] for to in listed})
    for path, (title, report) in listed.items():
        serve_listed(app, path, title, report, titles | {to: name for to, name in also.items() if to != path})
    serve_pages(app, "dashboard", host=host, port=port, reported={"dashboard": ",".join(paths)}, access=access)


@asynccontextmanager
async def _kept(hubs: Sequence[Hub]) -> AsyncIterator[None]:
    """Run the loop of each hub while the server runs. A hub that ends because of a bug logs it."""
    log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))

    def ended(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a dashboard no longer refreshes", error=repr(error))

    tasks = [asyncio.create_task(hub.keep()) for hub in hubs]
    for task in tasks:
        task.add_done_callback(ended)
    yield
    for task in tasks:
        task.cancel()
