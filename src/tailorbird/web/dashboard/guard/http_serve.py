"""Run the web server of the pages: check the port, add the protecting layers, start and stop."""

from __future__ import annotations

import ipaddress
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import structlog
from nicegui import app, ui
from starlette.middleware.trustedhost import TrustedHostMiddleware

from cdc.model.errors import UsageError
from tailorbird.operate.probes.tcp_probe import port_is_free
from tailorbird.web.dashboard.guard.access import ANYBODY, Access
from tailorbird.web.dashboard.guard.http_guard import SameOrigin, StrictHeaders
from tailorbird.web.dashboard.guard.http_login import LoginWall

SECONDS_TO_RECONNECT = 30.0
ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="3" fill="#1f6feb"/>'
    '<path d="M3 12V8h2v4zm4 0V4h2v8zm4 0V6h2v6z" fill="#fff"/></svg>'
)


def refuse_taken(host: str, port: int) -> None:
    """Raise UsageError if this machine does not have the address, or the port is in use."""
    if not port_is_free(host, 0):
        raise UsageError(f"{host} cannot be served: it is not an IPv4 address of this machine", "try --host 127.0.0.1")
    if not port_is_free(host, port):
        raise UsageError(f"{host}:{port} cannot be served: the port is in use", f"try --port {port + 1}")


def serve_pages(
    what: str, *, host: str, port: int, title: str, reported: Mapping[str, str], access: Access = ANYBODY
) -> None:
    """Serve all pages that were created so far, until SIGTERM or SIGINT. `what` and `reported` are logged."""
    url = f"{'https' if access.secure else 'http'}://{host}:{port}/"
    tls: dict[str, Any] = {"ssl_certfile": access.certificate, "ssl_keyfile": access.key} if access.secure else {}

    @app.get("/health")
    def health() -> dict[str, str]:
        """Answer `/health` like every Tailorbird process. The page itself shows whether servers are available."""
        return {"status": "moving", "reason": f"serves {url}"}

    if access.users:
        app.add_middleware(LoginWall, users=access.users, secure=access.secure)
    app.add_middleware(SameOrigin)
    app.add_middleware(StrictHeaders)
    if is_loopback(host):
        # another site's page must not reach a private server through a DNS name that it points to this address
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", host])
    # a page that a test starts is also a server; NiceGUI would treat it as one of its own tests, on another port
    os.environ.pop("PYTEST_CURRENT_TEST", None)
    # uvicorn stops cleanly on these and then raises them again, which would end the process as a failure
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    app.on_startup(lambda: log.info(f"{what} serves", url=url, **reported))
    ui.run(
        host=host,
        port=port,
        title=title,
        dark=None,
        favicon=ICON,
        language="en-US",
        reload=False,
        show=False,
        show_welcome_message=False,
        tailwind=False,
        # the ping interval follows from this; with 5 s the page of a busy machine would be dropped and reloaded
        reconnect_timeout=SECONDS_TO_RECONNECT,
        timeout_graceful_shutdown=2,
        **tls,
    )
    log.info(f"{what} stopped", **reported)


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
