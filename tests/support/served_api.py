"""An API on a real port whose commands are a script, with tokens and an audit log in memory."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import typer
import uvicorn

from cdc.oidc.claims import ROLES
from cdc.stored.fields import KIND, UNIQUE_KEY
from ingest.fleet.tokens import Guesses, Token, checked, hashed, written
from ingest.gateway.commands import FleetOperator
from ingest.gateway.http_api import SignallessServer
from ingest.gateway.http_operators import Guard
from tailorbird.cli.api.remote_commands import remote_commands
from tailorbird.cli.app import app as command_line
from tailorbird.client import Client
from tailorbird.web.api.changes import IndexChanges
from tailorbird.web.api.http_app import Api, api_app
from tailorbird.web.api.http_events import EventStreams
from tailorbird.web.api.http_rows import serve_events, serve_rows
from tailorbird.web.api.proc_operations import Operations
from tailorbird.web.api.served import ServedTopology
from tailorbird.web.mcp.searches import Documents, RowsChanged
from tailorbird.web.mcp.tools import Handles, tools_of
from tests.support.nearby_fleet import NearbyAudit
from tests.support.ports import free_port
from tests.tailorbird.test_mcp import FakeAnswers

# prints its arguments, or behaves like a command that fails or takes long
SCRIPT = """
import json, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background processes ignore it otherwise
words = sys.argv[1:]
if words[0] == "wait":
    print("waiting for a commit", file=sys.stderr, flush=True)
    time.sleep(60)
elif words[0] == "explain" and words[-1] == "none":
    print("tailorbird: wide has no row none; run `tailorbird wait` first", file=sys.stderr)
    sys.exit(2)
elif words[0] == "plan":
    for number in range(25):
        print(json.dumps({"step": number}))
else:
    print("one moment", file=sys.stderr, flush=True)
    print(json.dumps({"arguments": words}))
    sys.exit(1 if words[0] == "status" else 0)
"""
SECRETS: dict[str, str] = {role: role[0] * 43 for role in ROLES}
TOKENS: dict[str, str] = {role: written(f"{number:016x}", SECRETS[role]) for number, role in enumerate(ROLES)}


@dataclass
class NearbyTokens:
    """Tokens of each role, and one more operator. Implements `OperatorTokens`."""

    audit: NearbyAudit
    tokens: dict[str, Token] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for number, role in enumerate(ROLES):
            id_ = f"{number:016x}"
            self.tokens[id_] = Token(
                id=id_, name=f"ann-{role}", role=role, sha256=hashed(SECRETS[role]), issued_ms=0, expires_ms=10**15
            )

    def token(self, shown: str) -> Token | str:
        return checked(shown, self.tokens, 1.0)

    def refused(self, who: FleetOperator, what: str, why: str) -> None:
        self.audit.line({"what": what, "who": who.name, "from": who.address, "outcome": "refused", "why": why})


class ChangingAnswers(FakeAnswers):
    """An index with a changed row and a deleted one."""

    def changed(self, asked: RowsChanged) -> Iterator[Documents]:
        yield from super().changed(asked)
        row = {UNIQUE_KEY: "0a", KIND: "row", "name": "Ann", "amount": 2, "secret": "hidden value"}
        yield [row, {UNIQUE_KEY: "0b"}, {UNIQUE_KEY: "probe-x"}]


@dataclass
class ServedApi:
    """A running API, and what it asked and wrote."""

    url: str
    audit: NearbyAudit
    operations: Operations
    answers: ChangingAnswers

    def client(self, role: str = "admin") -> Client:
        return Client(self.url, token=TOKENS.get(role, role))


def script(arguments: Sequence[str]) -> Sequence[str]:
    return [sys.executable, "-ISc", SCRIPT, *arguments]


@contextmanager
def serving(*, running: int = 2, waiting: int = 2, longest: float = 600.0) -> Iterator[ServedApi]:
    """Serve two topologies while the block runs."""
    audit, handles, answers = NearbyAudit(), Handles(lambda: "1"), ChangingAnswers()
    tools = {tool.name: tool for tool in tools_of({"sales": answers}, handles)}
    shop = ServedTopology(
        name="shop", file="shop.yml", audit=audit, tools=tools, dashboards=("sales",),
        feed=lambda _: IndexChanges(answers, handles),
    )  # fmt: skip
    operations = Operations(script, running=running, waiting=waiting)
    api = Api([shop], remote_commands(typer.main.get_command(command_line)), operations)
    app = api_app(api, {"shop": Guard(NearbyTokens(audit), Guesses(), time.monotonic, None)})
    serve_rows(app, api)
    serve_events(app, api, EventStreams(longest=longest))
    port = free_port()
    config = uvicorn.Config(app, host="127.0.0.1", port=port, log_level="critical", timeout_graceful_shutdown=1)
    server = SignallessServer(config)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started and thread.is_alive():
            time.sleep(0.01)
        yield ServedApi(f"http://127.0.0.1:{port}", audit, operations, answers)
    finally:
        server.should_exit = True
        thread.join()
