"""The application of the REST API: operations and reads of commands. Its OpenAPI description is at `/openapi.json`.

Errors are problem details (RFC 9457) with the text of the command line."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Body, FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from cdc.oidc.claims import ROLES
from ingest.fleet.paging import paged
from ingest.gateway.commands import FleetOperator, NotFound
from ingest.gateway.http_api import status_of
from ingest.gateway.http_operators import Guard, asks
from tailorbird.web.api.commands import RemoteCommand
from tailorbird.web.api.http_bodies import Administrating, Paged, Viewing, body_of, counted, guard_of
from tailorbird.web.api.output import Operation, entries_of
from tailorbird.web.api.problems import TYPE, failure, problem
from tailorbird.web.api.proc_operations import Operations, QueueFull
from tailorbird.web.api.served import ServedTopology
from tailorbird.web.mcp.protocol import ToolRefusal

MOST_BODY = 64 * 1024  # bytes
MOST_LINES = 1000  # of output in one response
MOST_READ = 10_000  # entries of a list that are paged
SECONDS_TO_READ = 120.0
_LONGEST_POLL = 25.0  # seconds


class NoAnswer(Retriable):
    """A command that only reads did not end in time."""


class CommandFailed(TailorbirdError):
    """A command that only reads ended with an error. `reported` is its problem."""

    def __init__(self, reported: Mapping[str, Any]) -> None:
        super().__init__(str(reported["detail"]))
        self.reported = dict(reported)


class Api:
    """Parts that the handlers share: topologies by name, commands by name, and the operations."""

    def __init__(
        self, topologies: Sequence[ServedTopology], commands: Sequence[RemoteCommand], operations: Operations
    ) -> None:
        self.topologies = {one.name: one for one in topologies}
        self.commands = {one.name: one for one in commands}
        self.operations = operations

    def topology(self, name: str) -> ServedTopology:
        """Return a topology. Raises NotFound, which lists the names."""
        if name not in self.topologies:
            raise NotFound(f"no topology {name[:80]}", f"one of {', '.join(self.topologies)}")
        return self.topologies[name]

    def start(self, who: FleetOperator, name: str, command: str, options: Mapping[str, Any]) -> Operation:
        """Start a command, after its audit line. Raises NotFound, UsageError, QueueFull, and Retriable while the audit
        log of a command that writes is unavailable."""
        served, chosen = self.topology(name), self.commands[command]
        given = {key: value for key, value in options.items() if key != "text"}
        arguments = chosen.arguments(served.file, given, text=bool(options.get("text")), role=who.role)
        line = served.begin(who, command, chosen.audited(given)) if chosen.is_audited else None
        operation = Operation(
            id=secrets.token_hex(8), topology=name, command=command, by=who.name, arguments=arguments,
            created_ms=time.time_ns() // 1_000_000, long=chosen.is_long, ended=lambda one: served.end(line, one),
        )  # fmt: skip
        try:
            return self.operations.start(operation)
        except QueueFull as error:
            if line is not None:
                served.audit.line({**line, "outcome": "refused", "why": error.message})
            raise

    def operation(self, who: FleetOperator, name: str, id_: str) -> Operation:
        """Return an operation that an operator may see: one's own, or any for the role `admin`."""
        found = self.operations.get(self.topology(name).name, id_)
        if found is None or (found.by != who.name and who.role != ROLES[-1]):
            raise NotFound(f"no operation {id_[:80]}", "it may be another operator's, or it ended long ago")
        return found

    def read(self, who: FleetOperator, name: str, command: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Run a command that only reads, and return its entries, messages and exit code."""
        operation = self.start(who, name, command, options)
        if not self.operations.wait(operation, SECONDS_TO_READ):
            with contextlib.suppress(UsageError):
                self.operations.cancel(operation)
            raise NoAnswer(f"{command} did not end within {SECONDS_TO_READ:.0f} s", "run it as an operation")
        lines = self.operations.lines(operation, 0, len(operation.lines))
        if (failed := failure(lines, operation.exit_code)) is not None:
            raise CommandFailed(failed)
        messages = [line.text for line in lines if line.stream == "err"]
        return {"entries": entries_of(lines), "messages": messages, "exit_code": operation.exit_code}


def api_app(api: Api, guards: Mapping[str, Guard]) -> FastAPI:
    """Return the application. `guards` authenticate the operators of each topology."""

    @asynccontextmanager
    async def running(_: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.to_thread(api.operations.close)

    app = FastAPI(title="Tailorbird", version=version("tailorbird"), docs_url=None, redoc_url=None, lifespan=running)
    app.state.guards, app.state.api = dict(guards), api
    _errors(app)
    _reads(app, api)
    _operations(app, api)
    for command in api.commands.values():
        _starts(app, api, command)
    return app


def _errors(app: FastAPI) -> None:
    def answer(status: int, detail: str, remedy: str = "", headers: Mapping[str, str] | None = None) -> JSONResponse:
        return JSONResponse(problem(status, detail, remedy=remedy), status, headers, media_type=TYPE)

    @app.exception_handler(TailorbirdError)
    async def known(request: Request, error: TailorbirdError) -> JSONResponse:
        if isinstance(error, CommandFailed):
            return JSONResponse(error.reported, error.reported["status"], media_type=TYPE)
        status = 429 if isinstance(error, QueueFull) else 504 if isinstance(error, NoAnswer) else status_of(error)
        wait = {"Retry-After": str(int(error.retry_after) + 1)} if isinstance(error, Retriable) else None
        return answer(status, str(error), error.hint, wait)

    @app.exception_handler(ToolRefusal)
    async def refused_arguments(request: Request, error: ToolRefusal) -> JSONResponse:
        return answer(400, str(error))

    @app.exception_handler(HTTPException)
    async def refused(request: Request, error: HTTPException) -> JSONResponse:
        return answer(error.status_code, str(error.detail), headers=error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        return answer(400, f"{'.'.join(map(str, first['loc']))}: {first['msg']}"[:500], "see /openapi.json")

    @app.middleware("http")
    async def bounded(request: Request, call_next: Any) -> Any:
        length = request.headers.get("content-length")
        if request.method in ("POST", "PUT", "PATCH") and (length is None or not length.isdigit()):
            return answer(411, "the body has no length", "send Content-Length")
        if int(length or 0) > MOST_BODY:
            return answer(413, f"the body has more than {MOST_BODY} bytes", "send less at a time")
        return await call_next(request)


def _reads(app: FastAPI, api: Api) -> None:
    @app.get("/v1/topologies")
    def topologies(request: Request, who: Viewing) -> list[str]:
        """List the topologies that the token may see."""
        guard = guard_of(request)
        same = {name for name, one in app.state.guards.items() if one is guard or one.knows(_token(request))}
        return [name for name in api.topologies if name in same]

    @app.get("/v1/topologies/{topology}/status")
    def status(topology: str, who: Viewing, page: Paged, response: Response) -> dict[str, Any]:
        """Show processes, indexes and missing rows, as `tailorbird status --json` does. Its exit code is 1 if something
        is not well."""
        return _entries(api.read(who, topology, "status", {"search": page.search}), page, response)

    @app.get("/v1/topologies/{topology}/plan")
    def plan(topology: str, who: Viewing, page: Paged, response: Response) -> dict[str, Any]:
        """Show what an apply would do, as `tailorbird plan --json` does."""
        return _entries(api.read(who, topology, "plan", {}), page, response)

    @app.get("/v1/topologies/{topology}/dead-letters")
    def dead_letters(
        topology: str, who: Viewing, page: Paged, response: Response, settled: bool = False
    ) -> dict[str, Any]:
        """List dead-letter records. Only the role `admin` sees keys and reasons."""
        asked = {"limit": MOST_READ, "settled": settled}
        return _entries(api.read(who, topology, "dead-letters list", asked), page, response)

    @app.get("/v1/topologies/{topology}/explain")
    def explain(
        topology: str,
        who: Administrating,
        table: str,
        key: str,
        column: Annotated[list[str] | None, Query(max_length=100)] = None,
    ) -> dict[str, Any]:
        """Show which source events the cells of a joined row come from, with all values."""
        found = api.read(who, topology, "explain", {"table": table, "key": key, "column": column})
        return {**found["entries"][0], "exit_code": found["exit_code"]}


def _token(request: Request) -> str:
    return request.headers.get("authorization", "").removeprefix("Bearer ")


def _entries(found: dict[str, Any], page: Any, response: Response) -> dict[str, Any]:
    """Return a page of the entries of a command's answer. A search finds an entry by its JSON text."""
    chosen = paged(found["entries"], page, str, lambda one: one)
    return {**found, "entries": counted(chosen, response)}


def _operations(app: FastAPI, api: Api) -> None:
    @app.get("/v1/topologies/{topology}/operations")
    def operations(topology: str, who: Viewing, page: Paged, response: Response) -> list[Any]:
        """List operations, the newest first, without their output."""
        every = api.operations.of(api.topology(topology).name)
        return counted(paged(every, page, lambda one: f"{one.id} {one.command} {one.by} {one.state}", _shown), response)

    @app.get("/v1/topologies/{topology}/operations/{operation}")
    def operation(topology: str, operation: str, who: Viewing) -> dict[str, Any]:
        """Show an operation of one's own: its state, exit code and progress."""
        return api.operation(who, topology, operation).shown()

    @app.get("/v1/topologies/{topology}/operations/{operation}/output")
    async def output(
        topology: str,
        operation: str,
        who: Viewing,
        after: Annotated[int, Query(ge=0, description="Number of the last line that is known.")] = 0,
        wait: Annotated[float, Query(ge=0, le=_LONGEST_POLL, description="Seconds to wait for a further line.")] = 0.0,
    ) -> dict[str, Any]:
        """Return lines of output, at most a thousand, and the operation. `wait` waits for further ones."""
        found = api.operation(who, topology, operation)
        deadline = time.monotonic() + wait
        while not (over := found.over) and len(found.lines) <= after and time.monotonic() < deadline:
            await asyncio.sleep(0.05)
        lines = api.operations.lines(found, after, MOST_LINES)
        return {"lines": [line.to_json() for line in lines], "over": over, "operation": found.shown()}

    @app.delete("/v1/topologies/{topology}/operations/{operation}")
    def cancel(topology: str, operation: str, who: Viewing) -> dict[str, Any]:
        """Cancel an operation of one's own, like Ctrl-C; with the role `admin`, any."""
        found = api.operation(who, topology, operation)
        api.topology(topology).audit.line(
            {"what": "api cancel", "who": who.name, "from": who.address, "on": found.id, "outcome": "done"}
        )
        api.operations.cancel(found)
        return found.shown()


def _shown(one: Operation) -> dict[str, Any]:
    return {**one.shown(), "progress": ""}


def _starts(app: FastAPI, api: Api, command: RemoteCommand) -> None:
    """Add the request that starts a command. Its body has the options of the command line."""

    def start(topology: str, who: Any, body: Any, response: Response) -> dict[str, Any]:
        operation = api.start(who, topology, command.name, body.model_dump())
        response.headers["Location"] = f"/v1/topologies/{topology}/operations/{operation.id}"
        return operation.shown()

    # FastAPI reads the types of a handler's parameters here; those of the body depend on the command
    start.__annotations__ |= {
        "who": Annotated[FleetOperator, asks(command.role, guard_of)],
        "body": Annotated[body_of(command), Body()],
        "response": Response,
        "topology": str,
        "return": dict[str, Any],
    }
    path = "/".join(command.name.split())
    about = f"{command.about} Needs the role `{command.role}`. Answers with an operation."
    app.post(
        f"/v1/topologies/{{topology}}/operations/{path}", status_code=202, summary=command.name, description=about,
        operation_id=command.name.replace(" ", "_").replace("-", "_"),
    )(start)  # fmt: skip
