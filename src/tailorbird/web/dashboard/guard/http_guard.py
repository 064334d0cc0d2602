"""ASGI layers before every page of ours: what a browser may load, and that no other site speaks for its user."""

from __future__ import annotations

from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# NiceGUI's own scripts are inline and compile templates; whatever is not from this server is refused by the browser.
POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data:; font-src 'self' data:; object-src 'none'; base-uri 'self'; form-action 'self'; "
    "frame-ancestors 'none'"
)
# Our own pages have no inline script, nothing that compiles text, and send no forms.
STRICT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SAFE = {"GET", "HEAD", "OPTIONS"}


class StrictHeaders:
    """Adds the content policy to every HTTP answer that has none of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_strict(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", POLICY)
                headers["X-Content-Type-Options"] = "nosniff"
                headers["Referrer-Policy"] = "no-referrer"
                headers["Cross-Origin-Resource-Policy"] = "same-origin"
            await send(message)

        await self._app(scope, receive, send_strict if scope["type"] == "http" else send)


class SameOrigin:
    """Refuses websockets, and requests that are no mere reading, which another site's page has opened.

    Browsers tell a page's origin with all of these. A program that tells none is nobody's browser, and may ask; a
    websocket of a browser's always tells one.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket" and not own_origin(Headers(scope=scope)):
            await receive()  # the handshake; closed before it is accepted it is answered with 403
            await send({"type": "websocket.close", "code": 1008, "reason": "another site's page"})
            return
        if scope["type"] == "http" and scope["method"] not in _SAFE and not own_origin(Headers(scope=scope)):
            await PlainTextResponse("another site's page may not ask this", 403)(scope, receive, send)
            return
        await self._app(scope, receive, send)


def own_origin(headers: Headers) -> bool:
    """Whether a request comes from a page of this server, or from no page at all."""
    site, origin = headers.get("sec-fetch-site"), headers.get("origin")
    if site is not None and site not in ("same-origin", "none"):
        return False
    return origin is None or urlsplit(origin).netloc == headers.get("host", "")
