"""Run the web server of the pages: check the port, add the protecting layers, start and stop."""

from __future__ import annotations

import ipaddress
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlsplit

import structlog
import uvicorn
from fastapi import FastAPI
from starlette.middleware.trustedhost import TrustedHostMiddleware

from cdc.model.connections import ConnectionLimits
from cdc.model.errors import UsageError
from cdc.process.http_bounded import HEADERS, bounded_protocol
from cdc.process.tcp_bounded import ACCEPTED_AT_ONCE, BoundedListener
from tailorbird.operate.probes.tcp_probe import port_is_free
from tailorbird.web.dashboard.guard.access import ANYBODY, Access
from tailorbird.web.dashboard.guard.http_guard import SameOrigin, StrictHeaders
from tailorbird.web.dashboard.guard.http_login import LoginWall
from tailorbird.web.dashboard.guard.http_oidc_login import OidcLogin

# a TLS connection needs 0.1 MB; a browser opens six
LIMITS = ConnectionLimits(most=1000, idle_each=200, idle=10.0)
LONGEST_MESSAGE = 65_536  # bytes that a browser may send through a websocket at once
SECONDS_TO_STOP = 2
Lifespan = Callable[[FastAPI], AbstractAsyncContextManager[None]]


def refuse_taken(host: str, port: int) -> None:
    """Raise UsageError if this machine does not have the address, or the port is in use."""
    if not port_is_free(host, 0):
        raise UsageError(f"{host} cannot be served: it is not an IPv4 address of this machine", "try --host 127.0.0.1")
    if not port_is_free(host, port):
        raise UsageError(f"{host}:{port} cannot be served: the port is in use", f"try --port {port + 1}")


def pages_app(lifespan: Lifespan | None = None) -> FastAPI:
    """Return an app for pages. It has no pages that FastAPI would add. `lifespan` runs around the server."""
    return FastAPI(docs_url=None, redoc_url=None, openapi_url=None, lifespan=lifespan)


def serve_pages(
    app: FastAPI, what: str, *, host: str, port: int, reported: Mapping[str, str], access: Access = ANYBODY
) -> None:
    """Serve an app until SIGTERM or SIGINT. `what` and `reported` appear in the log lines.

    Raises UsageError if it cannot listen."""
    url = f"{'https' if access.secure else 'http'}://{host}:{port}/"

    @app.get("/health")
    def health() -> dict[str, str]:
        """Answer `/health` like every Tailorbird process. The page itself shows whether servers are available."""
        return {"status": "moving", "reason": f"serves {url}"}

    guard(app, host=host, access=access, url=url.rstrip("/"))
    # uvicorn stops cleanly on these and then raises them again, which would end the process as a failure
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    try:
        listener = BoundedListener(what, (host, port), LIMITS)
    except OSError as error:
        raise UsageError(f"{host}:{port} cannot be served: {error}", f"try --port {port + 1}") from error
    config = uvicorn.Config(
        app,
        loop="asyncio",  # another loop would accept connections itself, without the listener's limits
        http=bounded_protocol(listener),
        h11_max_incomplete_event_size=HEADERS,
        backlog=ACCEPTED_AT_ONCE,
        timeout_keep_alive=30,
        log_level="warning",
        access_log=False,
        server_header=False,
        # without a proxy anyone could name another address in a header, and so escape the limit of logins
        proxy_headers=access.behind_proxy,
        ws_max_size=LONGEST_MESSAGE,
        timeout_graceful_shutdown=SECONDS_TO_STOP,
        ssl_certfile=access.certificate or None,
        ssl_keyfile=access.key or None,
    )
    with listener:
        _PageServer(config, lambda: log.info(f"{what} serves", url=url, **reported)).run([listener])
    log.info(f"{what} stopped", **reported)


def guard(app: FastAPI, *, host: str, access: Access, url: str = "") -> None:
    """Add the layers around all pages: host names, headers, origins and the login, from the outside in.

    `url` is the address of the server, for an issuer that leads browsers back."""
    oidc = None
    if access.oidc is not None:
        from cdc.oidc.http_oidc import OidcIssuer

        oidc = OidcLogin(OidcIssuer(access.oidc), access.oidc.url or url)
    if access.users or oidc is not None:
        issuer = urlsplit(access.oidc.issuer).hostname or "" if access.oidc is not None else ""
        secure = access.secure or (oidc is not None and oidc.secure)
        app.add_middleware(LoginWall, users=access.users, secure=secure, oidc=oidc, issuer=issuer)
    app.add_middleware(SameOrigin)
    if is_loopback(host):
        # another site's page must not reach a private server through a DNS name that it points to this address
        app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost", "[::1]", host])
    app.add_middleware(StrictHeaders)


class _PageServer(uvicorn.Server):
    """A server that calls a function once it listens."""

    def __init__(self, config: uvicorn.Config, serves: Callable[[], None]) -> None:
        super().__init__(config)
        self._serves = serves

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._serves()


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
