"""Require a login for all pages, with a password or at an OpenID Connect issuer. Without a session a client sees only
the login page.

Sessions are kept in this process. They end with the process, after twelve hours, or at logout. The form contains a
token that must match a cookie, in addition to the check of `SameOrigin`."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import secrets
import time
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, quote

from starlette.requests import HTTPConnection, Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from cdc.model.errors import Retriable, TailorbirdError
from tailorbird.web.dashboard.guard.http_guard import STRICT_POLICY
from tailorbird.web.dashboard.guard.http_oidc_login import BEGIN, CALLBACK, OidcLogin
from tailorbird.web.dashboard.guard.passwords import Attempts, is_right, safe_next

SECONDS = 12 * 3600
MOST_SESSIONS, LONGEST_FORM = 10_000, 40_000
_OPEN = {"/health"}
_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Log in</title><link rel="stylesheet" href="/login.css"></head><body><main><h1>Log in</h1>
<p role="alert">{why}</p>{oidc}{form}</main></body></html>
"""
_OIDC = '<p><a href="{begin}?next={next}">Log in at {host}</a></p>'
_FORM = """<form method="post" action="/login">
<input type="hidden" name="token" value="{token}"><input type="hidden" name="next" value="{next}">
<label>Name <input name="name" autocomplete="username" required maxlength="64"></label>
<label>Password
<input type="password" name="password" autocomplete="current-password" required maxlength="1024"></label>
<button>Log in</button></form>"""
_LOGOUT = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log out</title><link rel="stylesheet" href="/login.css"></head>
<body><main><h1>Log out</h1><form method="post" action="/logout"><button>Log out</button></form></main></body></html>
"""
_STYLE = """:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; display: grid; place-items: center; min-height: 90vh; margin: 0; }
main { width: min(340px, 90vw); }
form { display: grid; gap: 14px; }
label { display: grid; gap: 4px; }
input, button { font: inherit; padding: 8px 10px; }
[role="alert"] { color: light-dark(#b42318, #ff8d80); min-height: 1.5em; }
"""


class LoginWall:
    """ASGI layer that requires a login. `users` gives hashes by name; `oidc` logs in at `issuer` (a host name).
    `secure`: browsers reach the server by TLS."""

    def __init__(
        self, app: ASGIApp, users: Mapping[str, str], *, secure: bool, oidc: OidcLogin | None = None, issuer: str = ""
    ) -> None:
        self._app, self._users, self._secure = app, users, secure
        self._oidc, self._issuer = oidc, issuer
        self._sessions: OrderedDict[str, float] = OrderedDict()
        # of one address for one name, and for all names: a client at another address cannot lock a user out
        self._attempts, self._sprayed = Attempts(each=10), Attempts(each=100)
        # each needs 19 MiB and a processor; in threads that no other work can occupy
        self._hashing = ThreadPoolExecutor(2, thread_name_prefix="password")
        self._session = "__Host-tailorbird" if secure else "tailorbird"
        self._form = "__Host-tailorbird-form" if secure else "tailorbird-form"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        known = self._known(HTTPConnection(scope))
        if scope["type"] == "websocket":
            if not known:
                await receive()
                await send({"type": "websocket.close", "code": 1008, "reason": "log in"})
                return
        elif (answer := await self._answer(Request(scope, receive), known)) is not None:
            await answer(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _known(self, connection: HTTPConnection) -> bool:
        token = _digest(connection.cookies.get(self._session, ""))
        ends = self._sessions.get(token, 0.0)
        if ends and ends <= time.time():
            del self._sessions[token]
        return ends > time.time()

    async def _answer(self, request: Request, known: bool) -> Response | None:
        """Return the layer's own response, or None to pass the request on. `known`: the client has a session."""
        path = request.url.path
        if path == "/login.css":
            return Response(_STYLE, media_type="text/css")
        if path == "/logout":
            return self._out(request)
        if path == "/login":
            return await self._login(request) if request.method == "POST" and self._users else self._page(request)
        if self._oidc is not None and request.method == "GET" and path in (BEGIN, CALLBACK):
            return await self._at_issuer(self._oidc, request)
        if known or path in _OPEN:
            return None
        if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
            query = f"?{request.url.query}" if request.url.query else ""
            return RedirectResponse(f"/login?next={quote(path + query, safe='')}", 303)
        return PlainTextResponse("log in", 401)

    def _page(self, request: Request, why: str = "", status: int = 200, wanted: str | None = None) -> Response:
        token = secrets.token_urlsafe(24)
        to = safe_next(request.query_params.get("next", "/") if wanted is None else wanted)
        form = _FORM.format(token=token, next=html.escape(to)) if self._users else ""
        link = _OIDC.format(begin=BEGIN, next=quote(to, safe=""), host=html.escape(self._issuer)) if self._oidc else ""
        page = _PAGE.format(why=html.escape(why), oidc=link, form=form)
        policy = STRICT_POLICY.replace("form-action 'none'", "form-action 'self'")
        answer = HTMLResponse(page, status, {"Content-Security-Policy": policy, "Cache-Control": "no-store"})
        answer.set_cookie(self._form, token, max_age=3600, httponly=True, samesite="strict", secure=self._secure)
        return answer

    async def _at_issuer(self, oidc: OidcLogin, request: Request) -> Response:
        """Begin or finish a login at the issuer."""
        try:
            if request.url.path == BEGIN:
                return await oidc.begin(safe_next(request.query_params.get("next", "/")))
            _, _, to = await oidc.finish(request)
        except TailorbirdError as error:
            status = 503 if isinstance(error, Retriable) else 403
            answer = self._page(request, f"The login failed: {error.message}.", status, "/")
        else:
            answer = self._in(safe_next(to))
        oidc.forget(answer)
        return answer

    async def _login(self, request: Request) -> Response:
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LONGEST_FORM:
                return PlainTextResponse("the form is too long", 413)
        form = {name: values[0] for name, values in parse_qs(body.decode(errors="replace")).items()}
        wanted, token = form.get("next", "/"), request.cookies.get(self._form, "")
        if not token or not hmac.compare_digest(token.encode(), form.get("token", "").encode()):
            return self._page(request, "The form was too old: try again.", 403, wanted)
        name, now = form.get("name", "")[:64], time.monotonic()
        address = request.client.host if request.client else ""
        who = f"{address} {name}"
        wait = max(self._attempts.seconds_to_wait(who, now), self._sprayed.seconds_to_wait(address, now))
        if wait:
            answer = self._page(request, f"Too many wrong passwords: wait {wait / 60:.0f} minutes.", 429, wanted)
            answer.headers["Retry-After"] = str(int(wait) + 1)
            return answer
        # recorded before verification: of a hundred concurrent attempts only the first few may be verified
        self._attempts.wrong(who, now)
        self._sprayed.wrong(address, now)
        loop, password = asyncio.get_running_loop(), form.get("password", "")
        right = await loop.run_in_executor(self._hashing, is_right, self._users, name, password)
        if not right:
            return self._page(request, "Wrong name or password.", 401, wanted)
        self._attempts.right(who)
        self._sprayed.undo(address)
        return self._in(safe_next(wanted))

    def _in(self, to: str) -> Response:
        token = secrets.token_urlsafe(32)
        self._sessions[_digest(token)] = time.time() + SECONDS
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        answer = RedirectResponse(to, 303)
        # lax: a user who follows a link from elsewhere must still be logged in
        answer.set_cookie(self._session, token, max_age=SECONDS, httponly=True, samesite="lax", secure=self._secure)
        answer.delete_cookie(self._form, secure=self._secure, httponly=True)
        return answer

    def _out(self, request: Request) -> Response:
        if request.method != "POST":
            policy = STRICT_POLICY.replace("form-action 'none'", "form-action 'self'")
            return HTMLResponse(_LOGOUT, headers={"Content-Security-Policy": policy})
        self._sessions.pop(_digest(request.cookies.get(self._session, "")), None)
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(self._session, secure=self._secure, httponly=True)
        return answer


def _digest(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
