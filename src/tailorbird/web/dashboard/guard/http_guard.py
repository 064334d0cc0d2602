"""ASGI layers around all pages: limit what a browser may load, and refuse requests with effects from other sites."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# The browser refuses everything that is not from this server. The pages have no inline script, compile no text, and
# submit no forms; the login has a policy of its own.
STRICT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE = {"GET", "HEAD", "OPTIONS"}


class StrictHeaders:
    """ASGI layer that adds security headers to every HTTP response, and a content security policy if it has none."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", STRICT_POLICY)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
            await send(message)

        await self._app(scope, receive, send_strict if scope["type"] == "http" else send)


class SameOrigin:
    """ASGI layer that rejects websockets, and requests with side effects, from pages of other sites.

    Browsers send the origin of the page with such requests. A client that sends no origin is not a browser and is
    allowed."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not own_origin(Headers(scope=scope)):
            await receive()  # the handshake: closed before it is accepted, it is answered with 403
            await send({"type": "websocket.close", "code": 1008, "reason": "another site's page"})
            return
        if scope["type"] == "http" and scope["method"] not in _SAFE and not own_origin(Headers(scope=scope)):
            await PlainTextResponse("requests from another site's page are not allowed", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def own_origin(headers: Headers) -> bool:
    """Return whether a request comes from a page of this server, or from a client that is not a browser."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")
