"""The fleet's page and its requests. The page calls a gateway's REST API with the user's token.

    POST /api/enter     {token} → {session}
    GET  /login/oidc    log in at an OpenID Connect issuer, which leads back to /login/callback
    POST /api/entered   the session of that login, in exchange for a cookie that is valid once, for a minute
    GET  /api/state     a page each of the agents, gateways, sources and tables that match the words `q`
    POST /api/sync      {agent, connection, database, name}: capture a table
    *    /api/ask/PATH  a request of the gateway's API: configurations, positions, dumps, drains

So the page may do what the token may, and the audit log names the user for each command. The token is kept in the
memory of this server. The browser has a session in the storage of one tab, and sends it in a header of its own, which
no page of another site can do.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Body, FastAPI, Header, Query
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from cdc.oidc.claims import LONGEST
from tailorbird.web.dashboard.guard.http_oidc_login import BEGIN, CALLBACK, OidcLogin
from tailorbird.web.dashboard.pages.http_panels import page_html, serve_assets
from tailorbird.web.fleet.http_fleet import FleetApi, name_in_path
from tailorbird.web.fleet.view import (
    agents_of,
    gateways_of,
    may_ask,
    new_source,
    source_for,
    sources_of,
    tables_of,
)

SECONDS, MOST_SESSIONS = 12 * 3600, 1_000
_TICKET_SECONDS = 60
_ENTERED = "tailorbird-entered"
SIZES = {"agents": 50, "tables": 200, "sources": 50, "gateways": 50}  # entries of each list that are shown at once
Session = Annotated[str, Header(alias="X-Tailorbird-Session", max_length=100)]
Json = Annotated[Any, Body()]
Words = Annotated[str, Query(max_length=400)]
Offset = Annotated[int, Query(ge=0)]


class FleetSessions:
    """Connections to the gateway by session. They end after twelve hours, or with this process."""

    def __init__(self, make: Callable[[str], FleetApi], now: Callable[[], float] = time.monotonic) -> None:
        self._make, self._now = make, now
        self._known: OrderedDict[str, tuple[float, FleetApi]] = OrderedDict()
        self._tickets: OrderedDict[str, tuple[float, str]] = OrderedDict()
        self._lock = threading.Lock()

    def enter(self, token: str, seconds: float = SECONDS) -> str:
        """Return a new session of at most `seconds`. Raises the gateway's error if it does not accept the token."""
        if not token or len(token) > LONGEST or not token.isascii() or not token.isprintable():
            raise UsageError("no token", "tailorbird fleet token issue NAME --role operate")
        api = self._make(token)
        api.ask("GET", "gateways")
        session = secrets.token_urlsafe(32)
        with self._lock:
            self._known[_digest(session)] = (self._now() + min(seconds, SECONDS), api)
            while len(self._known) > MOST_SESSIONS:
                self._known.popitem(last=False)
        return session

    def api(self, session: str) -> FleetApi | None:
        """Return the connection of a session, or None if there is none, or no longer."""
        ends, api = self._known.get(_digest(session), (0.0, None))
        return api if ends > self._now() else None

    def ticket(self, session: str) -> str:
        """Return a secret that `redeem` exchanges for the session, once, within a minute."""
        ticket = secrets.token_urlsafe(32)
        with self._lock:
            self._tickets[_digest(ticket)] = (self._now() + _TICKET_SECONDS, session)
            while len(self._tickets) > MOST_SESSIONS:
                self._tickets.popitem(last=False)
        return ticket

    def redeem(self, ticket: str) -> str | None:
        """Return the session of a ticket, or None if it is unknown, used or too old."""
        with self._lock:
            ends, session = self._tickets.pop(_digest(ticket), (0.0, None))
            return session if ends > self._now() else None


def serve_fleet_page(app: FastAPI, known: FleetSessions, oidc: OidcLogin | None = None) -> None:
    """Serve the page at `/`, its files, and its requests. With `oidc`, users can log in at an issuer."""
    serve_assets(app)
    if oidc is not None:
        _serve_login(app, known, oidc)

    @app.get("/", response_class=HTMLResponse)
    def page() -> HTMLResponse:
        return page_html("fleet.html", "Fleet", {"oidc": oidc is not None})

    # not coroutines: each waits for the gateway in its own thread
    @app.post("/api/enter")
    def enter(body: Json) -> Response:
        token = body.get("token") if isinstance(body, dict) else None
        try:
            return JSONResponse({"session": known.enter(token.strip() if isinstance(token, str) else "")})
        except TailorbirdError as error:
            return _refused(error)

    @app.get("/api/state")
    def state(
        session: Session = "", q: Words = "", agents: Offset = 0, tables: Offset = 0, sources: Offset = 0,
        gateways: Offset = 0,
    ) -> Response:  # fmt: skip
        offsets = {"agents": agents, "tables": tables, "sources": sources, "gateways": gateways}
        return _answered(known, session, lambda api: _state(api, q, offsets))

    @app.post("/api/sync")
    def sync(body: Json, session: Session = "") -> Response:
        return _answered(known, session, lambda api: _sync(api, body))

    @app.api_route("/api/ask/{path:path}", methods=["GET", "POST", "PUT", "PATCH"])
    def ask(path: str, request: Request, body: Json = None, session: Session = "") -> Response:
        parts = path.split("/")
        if not may_ask(request.method, parts):
            return _refused(UsageError(f"{request.method} {path[:200]}", "a request of this page"))
        encoded = "/".join(map(name_in_path, parts))
        return _answered(known, session, lambda api: api.ask(request.method, encoded, body))


def _serve_login(app: FastAPI, sessions: FleetSessions, oidc: OidcLogin) -> None:
    """Serve the requests of a login at an issuer. The gateway receives the ID token, and so checks it, too."""

    @app.get(BEGIN)
    async def begin() -> Response:
        try:
            return await oidc.begin("/")
        except TailorbirdError as error:
            return _refused(error)

    @app.get(CALLBACK)
    async def callback(request: Request) -> Response:
        try:
            user, token, _ = await oidc.finish(request)
            session = await asyncio.to_thread(sessions.enter, token, user.ends - time.time())
        except TailorbirdError as error:
            answer = _refused(error)
        else:
            answer = RedirectResponse("/#entered", 303)
            ticket = sessions.ticket(session)
            answer.set_cookie(_ENTERED, ticket, max_age=_TICKET_SECONDS, httponly=True, samesite="strict")
        oidc.forget(answer)
        return answer

    @app.post("/api/entered")
    async def taken(request: Request) -> Response:
        session = sessions.redeem(request.cookies.get(_ENTERED, ""))
        if session is None:
            return _refused(UsageError("the login has ended", "log in again"))
        answer = JSONResponse({"session": session})
        answer.delete_cookie(_ENTERED, httponly=True, samesite="strict")
        return answer


def _answered(sessions: FleetSessions, session: str, ask: Callable[[FleetApi], Any]) -> Response:
    api = sessions.api(session)
    if api is None:
        return JSONResponse({"error": "the session has ended", "hint": "log in again"}, 401)
    try:
        return JSONResponse(ask(api))
    except TailorbirdError as error:
        return _refused(error)


def _refused(error: TailorbirdError) -> Response:
    code = 503 if isinstance(error, Retriable) else 400
    return JSONResponse({"error": error.message, "hint": error.hint}, code)


def _state(api: FleetApi, words: str, offsets: Mapping[str, int]) -> dict[str, Any]:
    """Return what the page shows: a page of each list with its offset and size, and the number of all matches."""

    def page(path: str, name: str, lines_of: Callable[[list[Any]], Sequence[Any]]) -> dict[str, Any]:
        found, total = api.page(path, search=words, offset=offsets[name], limit=SIZES[name])
        return {"entries": lines_of(found), "total": total, "offset": offsets[name], "size": SIZES[name]}

    now = time.time() * 1000
    return {
        "agents": page("agents", "agents", lambda found: [asdict(one) for one in agents_of(found)]),
        "gateways": page("gateways", "gateways", lambda found: [asdict(one) for one in gateways_of(found, now)]),
        "sources": page("sources", "sources", lambda found: [asdict(one) for one in sources_of(found, now)]),
        "tables": page(
            "map", "tables",
            lambda found: [{**asdict(one), "full": one.full, "progress": one.progress} for one in tables_of(found)],
        ),
    }  # fmt: skip


def _sync(api: FleetApi, wanted: Any) -> Any:
    """Capture a table with an existing or a new source."""
    names = ("agent", "connection", "database", "name")
    asked = {name: wanted.get(name) for name in names} if isinstance(wanted, dict) else {}
    search = " ".join(str(one) for one in asked.values())[:400]
    tables = tables_of(api.every("map", agent=asked.get("agent"), search=search))
    table = next((one for one in tables if all(getattr(one, name) == asked.get(name) for name in names)), None)
    if table is None:
        raise UsageError("no agent sees this table any more", "choose another one")
    sources = sources_of(list(api.every("sources")), time.time() * 1000)
    name = source_for(table, sources)
    if name is None:
        name, spec = new_source(table, sources)
        return api.ask("POST", f"sources/{name_in_path(name)}", spec)
    return api.ask("POST", f"sources/{name_in_path(name)}/start", {"tables": {table.full: {}}})


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()
