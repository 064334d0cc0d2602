"""REST API of a gateway for operators. Its OpenAPI description is at `/openapi.json`.

It uses TLS with the gateway's certificate, and bearer tokens with roles: those that a gateway issues, or ID tokens of
an OpenID Connect issuer. Errors are `{"error": …, "remedy": …}`: 400
invalid input, 401 no valid token, 403 the role is not sufficient, 404 not found, 409 a concurrent command won, 411 no
length, 413 too long, 429 too many wrong tokens from one address, 503 Kafka is unavailable.

Lists of agents, gateways, sources and tables take `search`, `offset` and `limit`. The header `X-Total-Count` has the
number of all entries that match the search.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

from cdc.model.connections import ConnectionLimits
from cdc.model.errors import Retriable, TailorbirdError, TopologyError, UsageError
from cdc.oidc.claims import OidcSettings
from cdc.process.http_bounded import HEADERS, bounded_protocol
from cdc.process.tcp_bounded import ACCEPTED_AT_ONCE, BoundedListener
from ingest.fleet.paging import Page, PagedList
from ingest.fleet.tokens import Guesses, number_of
from ingest.gateway.commands import FleetCommands, NotFound, VersionConflict
from ingest.gateway.http_operators import Administrator, Driver, Guard, Viewer

if TYPE_CHECKING:
    from cdc.oidc.http_oidc import OidcIssuer

_LONGEST = 1024 * 1024  # maximum bytes of a request's body
# a TLS connection needs 0.1 MB
LIMITS = ConnectionLimits(most=200, idle_each=64, idle=10.0)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class TablesToStart(_Body):
    """Tables to capture: each name with its options as in a topology, or `{}`."""

    tables: dict[str, dict[str, Any]] = Field(min_length=1)


class TablesToStop(_Body):
    """Names of tables that are no longer captured."""

    tables: list[str] = Field(min_length=1)


class TablesToDump(TablesToStop):
    """Names of tables to read again, and a condition on their rows."""

    where: str = ""


class VersionToRestore(_Body):
    """Number of the older version whose content becomes the next version."""

    version: int


class PlaceToReturnTo(_Body):
    """Position to return to: the newest with at most `sequence` that was committed before `before_ms`."""

    sequence: int | None = None
    before_ms: float | None = None


class Drainage(_Body):
    """An agent or a gateway, and whether to drain it."""

    role: str = Field(pattern="^(agents|gateways)$")
    name: str
    drained: bool = True


class EmptyBody(_Body):
    """An empty body: the path contains everything."""


class TokenToIssue(_Body):
    """Holder, role and validity (days) of a new token."""

    name: str
    role: str
    days: int = 90


def fleet_api(
    commands: FleetCommands,
    clock: Callable[[], float] = time.monotonic,
    guesses: Guesses | None = None,
    oidc: OidcIssuer | None = None,
) -> FastAPI:
    """Return the REST application of one tenant. `clock` returns seconds; `guesses` limits failed attempts.

    ID tokens of `oidc` are accepted, too."""
    app = FastAPI(title="Tailorbird fleet", version=version("tailorbird"), docs_url=None, redoc_url=None)
    app.state.guard = Guard(commands, guesses or Guesses(), clock, oidc)
    _errors(app)
    _looks(app, commands)
    _sources(app, commands)
    _others(app, commands)
    return app


class TenantApis:
    """The REST applications of all tenants at one address. The token selects the tenant.

    Users of an OpenID Connect issuer belong to the first tenant, the gateway's own. A token that no tenant knows is
    refused by the first tenant. Failed attempts are counted over all tenants.
    """

    def __init__(
        self,
        commands: Sequence[FleetCommands],
        clock: Callable[[], float] = time.monotonic,
        oidc: OidcIssuer | None = None,
    ) -> None:
        guesses = Guesses()
        issuers = [oidc, *(None for _ in commands[1:])]
        self._commands = commands
        self._apps = [fleet_api(one, clock, guesses, of) for one, of in zip(commands, issuers, strict=True)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        shown = Headers(scope=scope).get("authorization", "").removeprefix("Bearer ")
        number = number_of(shown)
        found = (app for one, app in zip(self._commands, self._apps, strict=True) if number in one.tokens)
        await next(found, self._apps[0])(scope, receive, send)


def _errors(app: FastAPI) -> None:
    @app.exception_handler(TailorbirdError)
    async def known(request: Request, error: TailorbirdError) -> JSONResponse:
        return JSONResponse({"error": error.message, "remedy": error.hint}, status_of(error))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return JSONResponse({"error": error.detail, "remedy": ""}, error.status_code, error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        problem = f"{'.'.join(map(str, first['loc']))}: {first['msg']}"
        return JSONResponse({"error": problem[:500], "remedy": "see /openapi.json"}, 400)

    @app.middleware("http")
    async def bounded(request: Request, call_next: Any) -> Any:
        length = request.headers.get("content-length")
        if request.method in ("POST", "PUT", "PATCH") and (length is None or not length.isdigit()):
            return JSONResponse({"error": "the body has no length", "remedy": "send Content-Length"}, 411)
        if int(length or 0) > _LONGEST:
            return JSONResponse({"error": f"more than {_LONGEST} bytes", "remedy": "send less at a time"}, 413)
        return await call_next(request)


def status_of(error: TailorbirdError) -> int:
    """Return the HTTP status of an error."""
    if isinstance(error, NotFound):
        return 404
    if isinstance(error, VersionConflict):
        return 409
    if isinstance(error, UsageError | TopologyError):
        return 400
    return 503 if isinstance(error, Retriable) else 500


def _asked(
    search: Annotated[str, Query(max_length=400, description="Only entries that contain all of these words.")] = "",
    offset: Annotated[int, Query(ge=0, description="Number of matching entries to leave out.")] = 0,
    limit: Annotated[int | None, Query(ge=1, le=10_000, description="Maximum number; without it, all.")] = None,
) -> Page:
    return Page(search=search, offset=offset, limit=limit)


Asked = Annotated[Page, Depends(_asked)]
TOTAL = "X-Total-Count"


def _counted(found: PagedList[dict[str, Any]], response: Response) -> list[dict[str, Any]]:
    """Return the entries of a page. A header of the response has the number of all that match."""
    response.headers[TOTAL] = str(found.total)
    return found.entries


# Handlers that wait for Kafka are plain functions: FastAPI runs them in threads, so the event loop never blocks.


def _looks(app: FastAPI, commands: FleetCommands) -> None:
    @app.get("/v1/agents")
    def agents(who: Viewer, page: Asked, response: Response) -> list[dict[str, Any]]:
        """List agents, with their gateways and sources."""
        return _counted(commands.lists.agents(page), response)

    @app.get("/v1/gateways")
    def gateways(who: Viewer, page: Asked, response: Response) -> list[dict[str, Any]]:
        """List gateways, with their last heartbeat and number of agents."""
        return _counted(commands.lists.gateways(page), response)

    @app.get("/v1/map")
    def seen(who: Viewer, page: Asked, response: Response, agent: str | None = None) -> list[dict[str, Any]]:
        """List databases, tables and columns that agents see, and the source that captures them."""
        return _counted(commands.lists.map(agent, page), response)

    @app.get("/v1/sources")
    def sources(who: Viewer, page: Asked, response: Response) -> list[dict[str, Any]]:
        """List sources, with their desired state, agent and report."""
        return _counted(commands.lists.sources(page), response)

    @app.get("/v1/sources/{source}/config")
    def config(source: str, who: Viewer, version: int | None = None) -> dict[str, Any]:
        """Show a version of a source's configuration."""
        return commands.config(source, version)

    @app.get("/v1/sources/{source}/positions")
    def positions(source: str, who: Viewer) -> list[Any]:
        """List positions that a source can be set back to."""
        return list(commands.positions(source))

    @app.get("/v1/audit")
    def audit(who: Administrator, last: int = 100) -> list[Any]:
        """Show the last lines of the audit log."""
        return list(commands.audited(max(1, min(last, 10_000))))


def _sources(app: FastAPI, commands: FleetCommands) -> None:
    @app.post("/v1/sources/{source}", status_code=201)
    def add(source: str, spec: dict[str, Any], who: Driver) -> dict[str, Any]:
        """Add a source."""
        return commands.add(who, source, spec)

    @app.patch("/v1/sources/{source}")
    def change(source: str, spec: dict[str, Any], who: Driver) -> dict[str, Any]:
        """Change some keys of a source's configuration; null removes a key."""
        return commands.configure(who, source, spec, change=True)

    @app.put("/v1/sources/{source}/config")
    def configure(source: str, spec: dict[str, Any], who: Driver) -> dict[str, Any]:
        """Write a source's next configuration."""
        return commands.configure(who, source, spec)

    @app.delete("/v1/sources/{source}")
    def remove(source: str, who: Administrator) -> dict[str, Any]:
        """Remove a source; its topics stay."""
        return commands.remove(who, source)

    @app.post("/v1/sources/{source}/rollback")
    def roll_back(source: str, body: VersionToRestore, who: Driver) -> dict[str, Any]:
        """Write an older version again."""
        return commands.roll_back(who, source, body.version)

    @app.post("/v1/sources/{source}/start")
    def start(source: str, body: TablesToStart, who: Driver) -> dict[str, Any]:
        """Capture tables."""
        return commands.start(who, source, body.tables)

    @app.post("/v1/sources/{source}/stop")
    def stop(source: str, body: TablesToStop, who: Driver) -> dict[str, Any]:
        """Stop to capture tables."""
        return commands.stop(who, source, body.tables)

    @app.post("/v1/sources/{source}/dump")
    def dump(source: str, body: TablesToDump, who: Driver) -> dict[str, Any]:
        """Read captured tables again."""
        return commands.dump(who, source, body.tables, body.where)

    @app.post("/v1/sources/{source}/positions")
    def set_position(source: str, body: PlaceToReturnTo, who: Driver) -> dict[str, Any]:
        """Set a source back."""
        return commands.set_position(who, source, body.sequence, body.before_ms)


def _others(app: FastAPI, commands: FleetCommands) -> None:
    @app.post("/v1/drain")
    def drain(body: Drainage, who: Driver) -> dict[str, Any]:
        """Drain an agent or a gateway, or end that."""
        return commands.drain(who, body.role, body.name, body.drained)

    @app.get("/v1/revoked-certificates")
    def revoked(who: Administrator) -> list[dict[str, Any]]:
        """List revoked certificates of agents."""
        return commands.revoked()

    @app.put("/v1/revoked-certificates/{serial}")
    def revoke_certificate(serial: str, body: EmptyBody, who: Administrator) -> dict[str, Any]:
        """Revoke a certificate, and end its streams."""
        return commands.revoke_certificate(who, serial)

    @app.get("/v1/tokens")
    def tokens(who: Administrator) -> list[dict[str, Any]]:
        """List tokens, without their hashes."""
        return [token.shown() for token in commands.tokens.values()]

    @app.post("/v1/tokens", status_code=201)
    def issue(body: TokenToIssue, who: Administrator) -> dict[str, Any]:
        """Issue a token; its secret is returned only this once."""
        return commands.issue(who, body.name, body.role, body.days)

    @app.delete("/v1/tokens/{number}")
    def revoke(number: str, who: Administrator) -> dict[str, Any]:
        """Revoke a token."""
        return commands.revoke(who, number)


def check_address(address: str) -> tuple[str, int]:
    """Split `host:port`. Raises UsageError if it is malformed."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise UsageError(f"--api {address} is not an address", "use host:port, e.g. 127.0.0.1:7444")
    return host, int(port)


async def serve_api(
    commands: Sequence[FleetCommands],
    address: str,
    folder: Path,
    stopped: asyncio.Event,
    oidc: OidcSettings | None = None,
) -> None:
    """Serve all tenants until `stopped`, with the certificate in `folder`. Raises UsageError if it cannot listen."""
    issuer: OidcIssuer | None = None
    if oidc is not None:
        from cdc.oidc.http_oidc import OidcIssuer

        issuer = OidcIssuer(oidc)
    try:
        listener = BoundedListener("api", check_address(address), LIMITS)
    except OSError as error:
        raise UsageError(f"cannot listen on {address}: {error}", "check that no other gateway is running") from error
    config = uvicorn.Config(
        TenantApis(commands, oidc=issuer), ssl_certfile=str(folder / "cert.pem"), ssl_keyfile=str(folder / "key.pem"),
        log_config=None, access_log=False, server_header=False, lifespan="off", proxy_headers=False,
        timeout_keep_alive=30, timeout_graceful_shutdown=2, http=bounded_protocol(listener),
        h11_max_incomplete_event_size=HEADERS, backlog=ACCEPTED_AT_ONCE,
    )  # fmt: skip
    server = SignallessServer(config)

    async def end() -> None:
        await stopped.wait()
        server.should_exit = True

    ending = asyncio.create_task(end())
    try:
        await server.serve(sockets=[listener])
    finally:
        ending.cancel()
        listener.close()


class SignallessServer(uvicorn.Server):
    """A uvicorn server without handlers for SIGTERM and SIGINT: the gateway handles them and stops the API itself."""

    def install_signal_handlers(self) -> None:
        """Install no handlers."""

    def capture_signals(self) -> Any:
        """Install no handlers."""
        from contextlib import nullcontext

        return nullcontext()
