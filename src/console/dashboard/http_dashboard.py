"""Serves dashboards as web pages, live, with nothing loaded from any other host."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import structlog
from nicegui import app, ui
from nicegui.client import Client
from starlette.datastructures import MutableHeaders
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from cdc.words.errors import Retriable, UsageError
from console.dashboard.http_page import Board, Page
from console.dashboard.style import STYLE
from console.probes.tcp_probe import port_is_free

# The page's own scripts are inline and compile templates; whatever is not from this server is refused by the browser.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)

SECONDS_TO_RECONNECT = 30.0


class StrictHeaders:
    """ASGI layer that adds the content policy to every HTTP answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Content-Security-Policy"] = POLICY
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
            await send(message)

        await self._app(scope, receive, send_strict if scope["type"] == "http" else send)


def serve_dashboards(boards: Sequence[Board], *, host: str, port: int) -> None:
    """Serve the pages until SIGTERM or SIGINT, the first at `/`, each with links to the others; then return.

    Before it serves: UsageError when the port is taken or the address foreign, TopologyError when a dashboard names a
    column that its index has not. A Solr that is away is no error: the page says so and recovers alone.
    """
    if not port_is_free(host, 0):
        raise UsageError(f"{host} can not be served: it is no IPv4 address of this machine", "try --host 127.0.0.1")
    if not port_is_free(host, port):
        raise UsageError(f"{host}:{port} can not be served: the port is in use", f"try --port {port + 1}")
    paths = {board.dashboard.name: f"/dashboard/{board.dashboard.name}" for board in boards}
    paths[boards[0].dashboard.name] = "/"
    titles = {paths[board.dashboard.name]: board.dashboard.title for board in boards}
    for board in boards:
        # when Solr is away, the page asks again at every refresh and says what is missing
        with contextlib.suppress(Retriable):
            board.view()
        path = paths[board.dashboard.name]
        _serve(board, path, {to: title for to, title in titles.items() if to != path})

    @app.get("/health")
    def health() -> dict[str, str]:
        """As every process of ours tells it; whether Solr is there, the page says, and `status` of the index."""
        return {"status": "moving", "reason": f"serves http://{host}:{port}/"}

    app.add_middleware(StrictHeaders)
    if _is_loopback(host):
        # another site's page must not reach a private server through a name that it points here
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", host])
    # a dashboard that a test started is a server too; NiceGUI would take it for one of its own tests, on another port
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    # uvicorn stops cleanly on these and then raises them again, which would end the process as a failure
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    names = ",".join(paths)
    app.on_startup(lambda: log.info("dashboard serves", dashboard=names, url=f"http://{host}:{port}/"))
    ui.run(
        host=host,
        port=port,
        title=boards[0].dashboard.title,
        dark=None,
        favicon=ICON,
        language="en-US",
        reload=False,
        show=False,
        show_welcome_message=False,
        tailwind=False,
        # of this follow the pings too: 5 s would drop, and reload, the page of a machine that is merely busy
        reconnect_timeout=SECONDS_TO_RECONNECT,
        timeout_graceful_shutdown=2,
    )
    log.info("dashboard stopped", dashboard=names)


def _serve(board: Board, path: str, others: Mapping[str, str]) -> None:
    """Make the page of a dashboard at a path; `others` are the titles of the other ones by path."""

    @ui.page(path, title=board.dashboard.title)
    def page(client: Client) -> None:
        ui.add_css(STYLE)
        Page(board, client, others)


ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#1f6feb"/>'
    '<path d="M3 12V8h2v4zm4 0V4h2v8zm4 0V6h2v6z" fill="#fff"/></svg>'
)


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
