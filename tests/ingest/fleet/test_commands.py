"""Commands of operators are written, audited, or refused with the reason; by REST as well."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import httpx
import pytest

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from cdc.oidc.claims import Role
from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.fleet.desired import DesiredSource, SourceSpec
from ingest.fleet.leases import Lease, Presence
from ingest.fleet.reported import SourceReport
from ingest.fleet.state import (
    VERSIONS,
    FleetState,
    beat_record,
    desired_record,
    folded,
    lease_record,
    map_record,
    presence_record,
    reported_record,
    token_record,
)
from ingest.fleet.tokens import Token, hashed, written
from ingest.gateway import commands
from ingest.gateway.commands import FleetCommands, FleetOperator, NotFound, VersionConflict
from ingest.gateway.http_api import fleet_api
from tests.support.nearby_fleet import NearbyAudit, NearbyTopic

WHO = FleetOperator("ops", "10.0.0.1")
SPEC: dict[str, Any] = {"agents": ["a1"], "connection": "db", "database": "d", "tables": {"t": {}}}


class Positions:
    """Implements `commands.FleetSources`."""

    def __init__(self) -> None:
        self.signals: list[tuple[str, str, Sequence[str], str]] = []

    def positions(self, source: str, spec: SourceSpec) -> Sequence[Mapping[str, Any]]:
        return [{"sequence": 1}]

    def set_back(self, source: str, spec: SourceSpec, sequence: int | None, ts_ms: float | None) -> Mapping[str, Any]:
        if sequence is None:
            raise UsageError("no stored position is so old")
        return {"sequence": sequence}

    def signal(self, source: str, kind: str, tables: Sequence[str], where: str) -> None:
        self.signals.append((source, kind, tables, where))


class SessionHandler:
    """Commands over a topic in memory."""

    def __init__(self) -> None:
        self.topic, self.audit, self.kafka = NearbyTopic(), NearbyAudit(), Positions()
        numbers = itertools.count(1)
        self.commands = FleetCommands(
            self.topic, self.audit, "t", self.kafka,
            now_ms=lambda: 1000, number=lambda: f"{next(numbers):016x}", secret=lambda: "s" * 43,
        )  # fmt: skip

    def spec(self, source: str = "s") -> SourceSpec | None:
        return self.topic.state.spec(source)

    @property
    def last(self) -> Mapping[str, Any]:
        return self.audit.lines[-1]


@pytest.fixture
def session_handler() -> SessionHandler:
    return SessionHandler()


def test_a_tenant_has_so_many_sources_at_most(session_handler: SessionHandler, monkeypatch: pytest.MonkeyPatch) -> None:
    """A removed source frees a place. A rollback does not restore it if no place is free."""
    monkeypatch.setattr(commands, "SOURCES", 1)
    session_handler.commands.add(WHO, "s", SPEC)
    with pytest.raises(UsageError, match="the limit is 1"):
        session_handler.commands.add(WHO, "u", SPEC)
    session_handler.commands.remove(WHO, "s")
    session_handler.commands.add(WHO, "u", SPEC)
    with pytest.raises(UsageError, match="the limit is 1"):
        session_handler.commands.roll_back(WHO, "s", 1)


def test_a_source_is_added_changed_rolled_back_and_removed(session_handler: SessionHandler) -> None:
    """Each change is a version with its author, and an audit line."""
    commands = session_handler.commands
    assert commands.add(WHO, "s", SPEC)["version"] == 1
    commands.configure(WHO, "s", {"agents": ["a2"], "snapshot_mode": "never"}, change=True)
    commands.configure(WHO, "s", {"snapshot_mode": None}, change=True)
    commands.configure(WHO, "s", {**SPEC, "connection": "other"})
    assert commands.roll_back(WHO, "s", 2)["of"] == 2
    spec = session_handler.spec()
    assert spec is not None
    assert (spec.agents, spec.connection, spec.keys["snapshot_mode"]) == (("a2",), "db", "never")
    shown = commands.config("s", 4)
    assert (shown["spec"]["connection"], [one["version"] for one in shown["versions"]]) == ("other", [1, 2, 3, 4, 5])
    commands.remove(WHO, "s")
    assert (session_handler.spec(), commands.lists.sources().entries) == (None, [])
    commands.roll_back(WHO, "s", 1)
    assert session_handler.spec() is not None
    lines = [(line["what"], line["who"], line["outcome"], line["version"]) for line in session_handler.audit.outcomes]
    names = ["source add", "source set", "source set", "config set", "config rollback", "source rm", "config rollback"]
    assert lines == [(name, "ops", "done", number) for number, name in enumerate(names, 1)]


def test_tables_are_started_stopped_and_read_again(session_handler: SessionHandler) -> None:
    """Tables are named by one or two parts. The settings of a listed table are replaced."""
    commands = session_handler.commands
    commands.add(WHO, "s", {**SPEC, "tables": {}})
    commands.start(WHO, "s", {"t": {}, "e.u": {"mask": {"a": "redact"}}})
    commands.start(WHO, "s", {"d.t": {"ignored_columns": ["x"]}})
    spec = session_handler.spec()
    assert spec is not None
    assert spec.tables == {"t": {"ignored_columns": ["x"]}, "e.u": {"mask": {"a": "redact"}}}
    commands.dump(WHO, "s", ["t"], "id > 3")
    assert session_handler.kafka.signals == [("s", "execute-snapshot", ["d.t"], "id > 3")]
    commands.stop(WHO, "s", ["d.t"])
    commands.stop(WHO, "s", ["e.u"])
    spec = session_handler.spec()
    assert spec is not None
    assert (spec.tables, spec.captures) == ({}, False)


def test_a_stream_has_no_tables_to_dump(session_handler: SessionHandler) -> None:
    """Nothing reads a topic again, so the command would have no effect."""
    commands = session_handler.commands
    commands.add(WHO, "k", {"agents": ["a1"], "connection": "db", "type": "kafka", "database": "d", "tables": ["t"]})
    with pytest.raises(UsageError, match="source k is a stream"):
        commands.dump(WHO, "k", ["t"], "")
    assert session_handler.kafka.signals == []


@pytest.mark.parametrize(
    ("do", "why"),
    [
        (lambda c: c.add(WHO, "s", SPEC), "source s exists already"),
        (lambda c: c.add(WHO, "x", {**SPEC, "hostname": "evil"}), "cannot be set by the gateway"),
        (lambda c: c.add(WHO, "../x", SPEC), "is not a valid source name"),
        (lambda c: c.configure(WHO, "x", SPEC), "the fleet has no source x"),
        (lambda c: c.configure(WHO, "s", {"password": "p"}, change=True), "password cannot be set by the gateway"),
        (lambda c: c.configure(WHO, "s", [1]), "not a configuration"),
        (lambda c: c.roll_back(WHO, "s", 9), "has no version 9"),
        (lambda c: c.remove(WHO, "x"), "the fleet has no source x"),
        (lambda c: c.start(WHO, "s", {"u": {"hidden": 1}}), "unknown key hidden"),
        (lambda c: c.stop(WHO, "s", ["nope"]), "is not captured"),
        (lambda c: c.dump(WHO, "s", ["nope"], ""), "is not captured"),
        (lambda c: c.set_position(WHO, "s", None, 5.0), "is so old"),
        (lambda c: c.drain(WHO, "agents", "nobody", True), "no agent nobody"),
        (lambda c: c.drain(WHO, "gateways", "nobody", True), "no gateway nobody"),
        (lambda c: c.drain(WHO, "agents", "../x", True), "is not a valid"),
        (lambda c: c.issue(WHO, "x", "god", 1), "role 'god'"),
        (lambda c: c.issue(WHO, "x", "view", 0), "for 0 days"),
        (lambda c: c.revoke(WHO, "x"), "no token x"),
    ],
)
def test_invalid_commands_are_refused(
    session_handler: SessionHandler, do: Callable[[FleetCommands], object], why: str
) -> None:
    """Each is refused with the reason and one audit line, and nothing is written."""
    session_handler.commands.add(WHO, "s", SPEC)
    before = list(session_handler.topic.records)
    with pytest.raises(TailorbirdError, match=why):
        do(session_handler.commands)
    assert session_handler.topic.records == before
    assert (len(session_handler.audit.outcomes), session_handler.last["outcome"]) == (2, "refused")
    assert why in session_handler.last["why"]


def test_of_two_commands_at_once_one_fails(session_handler: SessionHandler) -> None:
    """Another gateway has just written the same version. That one wins, and this command fails."""
    session_handler.commands.add(WHO, "s", SPEC)
    other = DesiredSource(
        source="s", version=2, spec=SourceSpec(agents=("a9",), connection="db", keys={"database": "d"})
    )

    def first(record: Any) -> None:
        if desired_record(other, "theirs") not in session_handler.topic.records:
            session_handler.topic.records.append(desired_record(other, "theirs"))

    session_handler.topic.before_write = first
    with pytest.raises(VersionConflict, match="another command has written version 2"):
        session_handler.commands.configure(WHO, "s", {"agents": ["a2"]}, change=True)
    assert session_handler.spec() == other.spec
    session_handler.commands.configure(WHO, "s", {"agents": ["a2"]}, change=True)
    assert [one.version for one in session_handler.topic.state.desired["s"]] == [1, 2, 3]


def test_the_newest_versions_are_kept(session_handler: SessionHandler) -> None:
    """A configuration that changes hourly for a year fills no gateway and no topic: old versions are removed."""
    session_handler.commands.add(WHO, "s", SPEC)
    for number in range(VERSIONS + 20):
        session_handler.commands.configure(WHO, "s", {"connection": f"c{number}"}, change=True)
    kept = session_handler.topic.state.desired["s"]
    assert [one.version for one in kept] == list(range(22, VERSIONS + 22))
    left = {key: value for key, value in dict(session_handler.topic.records).items() if value is not None}
    assert sum(key.startswith(b'["desired"') for key in left) == VERSIONS
    assert folded(FleetState(), left.items()).desired["s"] == kept
    with pytest.raises(NotFound, match="has no version 21"):
        session_handler.commands.roll_back(WHO, "s", 21)
    assert session_handler.commands.roll_back(WHO, "s", 22)["version"] == VERSIONS + 22


def test_a_source_that_is_set_back_starts_a_new_session(session_handler: SessionHandler) -> None:
    """The same agent captures it, at the next epoch."""
    session_handler.commands.add(WHO, "s", SPEC)
    session_handler.topic.write(lease_record(Lease(source="s", epoch=4, agent="a1", gateway="g1#1", claim="c")))
    assert session_handler.commands.set_position(WHO, "s", 7, None) == {"sequence": 7}
    lease = session_handler.topic.state.leases["s"]
    assert (lease.agent, lease.gateway, lease.epoch) == ("a1", "g1#1", 5)


def test_agents_sources_and_the_map(session_handler: SessionHandler) -> None:
    """Queries return agents with their sources, and tables with the sources that capture them."""
    session_handler.commands.add(WHO, "s", SPEC)
    tables = (TableSeen(name="t", rows=5, columns=(("id", "int"),)), TableSeen(name="u", rows=None, columns=()))
    session_handler.topic.write(
        presence_record(Presence(agent="a1", gateway="g1#1", connected=True, labels={"site": "x"})),
        beat_record("g1#1", 1),
        lease_record(Lease(source="s", epoch=1, agent="a1", gateway="g1#1", claim="c")),
        map_record(DatabaseSeen(agent="a1", connection="db", database="d", tables=tables)),
        map_record(DatabaseSeen(agent="a2", connection="db", database="d", tables=tables)),
    )
    (agent,) = session_handler.commands.lists.agents().entries
    assert agent["sources"][0]["reason"] == "no report yet"
    session_handler.topic.write(
        reported_record(
            SourceReport(agent="a1", source="s", epoch=1, version=1, status="applied", hash="h", narrowed=True)
        )
    )
    (agent,) = session_handler.commands.lists.agents().entries
    assert (agent["connected"], agent["labels"], agent["sources"][0]["status"]) == (True, {"site": "x"}, "applied")
    (source,) = session_handler.commands.lists.sources().entries
    assert (source["agent"], source["reported"]["narrowed"]) == ("a1", True)
    tables_seen = session_handler.commands.lists.map().entries
    seen = {(one["agent"], one["table"]): (one["captured"], one["rows"]) for one in tables_seen}
    assert seen == {("a1", "t"): ("s", 5), ("a1", "u"): (None, None), ("a2", "t"): (None, 5), ("a2", "u"): (None, None)}
    assert {one["agent"] for one in session_handler.commands.lists.map("a2").entries} == {"a2"}
    session_handler.commands.drain(WHO, "agents", "a1", True)
    session_handler.commands.drain(WHO, "gateways", "g1", True)
    assert session_handler.topic.state.is_drained("agents", "a1")
    gateways = session_handler.commands.lists.gateways().entries
    assert gateways == [{"gateway": "g1", "heard_ms": 1, "agents": 1, "drained": True}]


def test_long_lists_are_searched_and_paged(client: Client) -> None:
    """No part is larger than asked for, the parts are the whole, and words find a table on any page."""
    topic = client.session_handler.topic
    tables = tuple(TableSeen(name=f"t{n:05}", rows=n, columns=(("id", "int"),)) for n in range(500))
    topic.write(map_record(DatabaseSeen(agent="a1", connection="db", database="d", tables=tables)))
    client.ask("POST", "/v1/sources/s", "operate", {**SPEC, "tables": {"t00499": {}}})
    topic.write(
        presence_record(Presence(agent="a1", gateway="g1#1", connected=True)),
        lease_record(Lease(source="s", epoch=1, agent="a1", gateway="g1#1", claim="c")),
        reported_record(
            SourceReport(
                agent="a1", source="s", epoch=1, version=1, status="applied",
                position={"reading": {"d.t00499": 7, "d.t00498": "many"}},
            )
        ),
    )  # fmt: skip
    parts = [client.ask("GET", f"/v1/map?limit=200&offset={n}", "view") for n in (0, 200, 400)]
    assert {part.headers["X-Total-Count"] for part in parts} == {"500"}
    assert [one["table"] for part in parts for one in part.json()] == [table.name for table in tables]
    found = client.ask("GET", "/v1/map?search=A1+T00499&limit=10", "view")
    assert [(one["captured"], one["reading"], one["done"]) for one in found.json()] == [("s", 7, False)]
    assert found.headers["X-Total-Count"] == "1"
    assert [one["source"] for one in client.ask("GET", "/v1/sources?search=t00499", "view").json()] == ["s"]
    assert client.ask("GET", "/v1/agents?search=a1+s&limit=1", "view").json()[0]["agent"] == "a1"
    assert client.ask("GET", "/v1/agents?offset=1", "view").headers["X-Total-Count"] == "1"
    assert client.ask("GET", "/v1/map?limit=0", "view").status_code == 400


def test_while_kafka_is_unavailable_a_command_fails_with_the_reason(session_handler: SessionHandler) -> None:
    """It has failed and is not refused: it may succeed later."""
    session_handler.topic.unavailable = True
    with pytest.raises(Retriable):
        session_handler.commands.add(WHO, "s", SPEC)
    assert session_handler.last["outcome"] == "failed"


EFFECTS: dict[str, Callable[[FleetCommands], object]] = {
    "add": lambda c: c.add(WHO, "new", SPEC),
    "configure": lambda c: c.configure(WHO, "s", {**SPEC, "connection": "other"}),
    "remove": lambda c: c.remove(WHO, "s"),
    "roll back": lambda c: c.roll_back(WHO, "s", 1),
    "start": lambda c: c.start(WHO, "s", {"u": {}}),
    "stop": lambda c: c.stop(WHO, "s", ["t"]),
    "dump": lambda c: c.dump(WHO, "s", ["t"], ""),
    "set position": lambda c: c.set_position(WHO, "s", 1, None),
    "drain": lambda c: c.drain(WHO, "agents", "a1", True),
    "issue": lambda c: c.issue(WHO, "eve", "admin", 1),
    "revoke": lambda c: c.revoke(WHO, "0000000000000000"),
    "revoke certificate": lambda c: c.revoke_certificate(WHO, "0a"),
}


@pytest.mark.parametrize("name", EFFECTS)
def test_without_an_audit_line_nothing_happens(session_handler: SessionHandler, name: str) -> None:
    """While the audit topic is unavailable, every command fails without effect. Later its line precedes its effect."""
    token = Token(id="0" * 16, name="old", role="view", sha256="", issued_ms=0, expires_ms=2**53)
    session_handler.topic.write(
        presence_record(Presence(agent="a1", gateway="g1#1", connected=True)), token_record(token)
    )
    session_handler.commands.add(WHO, "s", SPEC)
    before = list(session_handler.topic.records)
    session_handler.audit.unavailable = True
    with pytest.raises(Retriable, match="audit log"):
        EFFECTS[name](session_handler.commands)
    assert (session_handler.topic.records, session_handler.kafka.signals) == (before, [])
    session_handler.audit.unavailable = False
    first = list[tuple[int, Any]]()
    session_handler.topic.before_write = lambda record: first.append((len(session_handler.audit.lines), record))
    lines = len(session_handler.audit.lines)
    EFFECTS[name](session_handler.commands)
    assert [line["outcome"] for line in session_handler.audit.lines[lines:]] == ["begun", "done"]
    assert {count for count, _ in first} <= {lines + 1}, "it was written before its line"


def test_no_two_valid_tokens_have_one_name(session_handler: SessionHandler) -> None:
    """A name is free again once its token is revoked. Agents may have two tokens, to replace one."""
    commands = session_handler.commands
    first = commands.issue(WHO, "anna", "view", 1)
    with pytest.raises(UsageError, match=f"anna already has the valid token {first['id']}"):
        commands.issue(WHO, "anna", "admin", 1)
    commands.revoke(WHO, first["id"])
    assert commands.issue(WHO, "anna", "admin", 1)["role"] == "admin"
    commands.issue(WHO, "paris", "agent", 1)
    commands.issue(WHO, "paris", "agent", 1)


def test_of_two_tokens_of_one_name_at_once_none_is_valid(session_handler: SessionHandler) -> None:
    """Another gateway issues a token of the name at the same moment."""
    other = Token(id="f" * 16, name="anna", role="admin", sha256="", issued_ms=0, expires_ms=2**53)

    def first(record: Any) -> None:
        session_handler.topic.before_write = lambda record: None
        session_handler.topic.records.append(token_record(other))

    session_handler.topic.before_write = first
    with pytest.raises(UsageError, match="anna already has"):
        session_handler.commands.issue(WHO, "anna", "view", 1)
    mine = [one for one in session_handler.commands.tokens.values() if one.id != other.id]
    assert [one.revoked for one in mine] == [True]


class Http:
    """Calls an application without a socket."""

    def __init__(self, app: Any) -> None:
        self._app = app

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="https://gateway") as client:
                return await client.request(method, path, **more)

        return asyncio.run(ask())


class Client:
    """A client of the API, with a token of each role."""

    def __init__(self, session_handler: SessionHandler) -> None:
        self.now = 0.0
        self.session_handler, self.http = session_handler, Http(fleet_api(session_handler.commands, lambda: self.now))
        roles: tuple[Role, ...] = ("view", "operate", "admin")
        for place, role in enumerate(roles):
            token = Token(
                id=f"{place:016d}", name=f"the-{role}", role=role, sha256=hashed(role[0] * 43), issued_ms=0,
                expires_ms=2**53,
            )  # fmt: skip
            session_handler.topic.write(token_record(token))
        self.shown = {role: written(f"{place:016d}", role[0] * 43) for place, role in enumerate(roles)}

    def ask(self, method: str, path: str, role: Role = "admin", body: Any = None, token: str | None = None) -> Any:
        shown = token if token is not None else self.shown[role]
        return self.http.request(method, path, json=body, headers={"Authorization": f"Bearer {shown}"})


@pytest.fixture
def client(session_handler: SessionHandler) -> Client:
    return Client(session_handler)


def test_rest_does_what_commands_do(client: Client) -> None:
    """From a source to a table in sync, and back."""
    assert client.ask("POST", "/v1/sources/s", "operate", {**SPEC, "tables": {}}).status_code == 201
    assert client.ask("POST", "/v1/sources/s/start", "operate", {"tables": {"t": {}}}).json()["version"] == 2
    assert client.ask("PATCH", "/v1/sources/s", "operate", {"snapshot_mode": "never"}).json()["version"] == 3
    assert client.ask("PUT", "/v1/sources/s/config", "operate", SPEC).json()["version"] == 4
    assert client.ask("POST", "/v1/sources/s/rollback", "operate", {"version": 3}).json()["of"] == 3
    assert client.ask("POST", "/v1/sources/s/dump", "operate", {"tables": ["t"]}).json()["tables"] == ["d.t"]
    assert client.ask("POST", "/v1/sources/s/positions", "operate", {"sequence": 1}).json() == {"sequence": 1}
    assert client.ask("GET", "/v1/sources/s/positions", "view").json() == [{"sequence": 1}]
    assert client.ask("GET", "/v1/sources/s/config?version=2", "view").json()["version"] == 2
    assert [one["source"] for one in client.ask("GET", "/v1/sources", "view").json()] == ["s"]
    assert client.ask("GET", "/v1/gateways", "view").json() == []
    assert client.ask("GET", "/v1/agents", "view").json() == client.ask("GET", "/v1/map?agent=a", "view").json() == []
    assert client.ask("POST", "/v1/sources/s/stop", "operate", {"tables": ["t"]}).status_code == 200
    assert client.ask("DELETE", "/v1/sources/s").json()["spec"] is None
    lines = client.ask("GET", "/v1/audit?last=3").json()
    assert [(line["what"], line["who"], line["from"], line["outcome"]) for line in lines] == [
        ("sync stop", "the-operate", "127.0.0.1", "done"), ("source rm", "the-admin", "127.0.0.1", "begun"),
        ("source rm", "the-admin", "127.0.0.1", "done"),
    ]  # fmt: skip


def test_tokens_are_issued_used_and_revoked(client: Client) -> None:
    """A token is returned once, stored as a hash, and invalid as soon as it is revoked."""
    reported = client.ask("POST", "/v1/tokens", body={"name": "ci", "role": "view", "days": 1}).json()
    assert client.ask("GET", "/v1/agents", token=reported["token"]).status_code == 200
    listed = client.ask("GET", "/v1/tokens").text
    assert reported["id"] in listed
    assert "sha256" not in listed
    secret = reported["token"].rpartition("_")[2]
    assert not any(secret.encode() in (value or b"") for _, value in client.session_handler.topic.records)
    assert not any(reported["token"] in str(line) for line in client.session_handler.audit.lines)
    assert client.ask("DELETE", f"/v1/tokens/{reported['id']}").json()["revoked"] is True
    refused = client.ask("GET", "/v1/agents", token=reported["token"])
    assert (refused.status_code, "was revoked" in refused.json()["error"]) == (401, True)


def test_certificates_are_revoked_for_good(client: Client) -> None:
    """A certificate is revoked by its number in any format, once, with an audit line. An agent's token cannot do it."""
    reported = client.ask("PUT", "/v1/revoked-certificates/0A:B1", body={}).json()
    assert reported == {"serial": "ab1", "by": "the-admin", "at_ms": 1000}
    client.ask("PUT", "/v1/revoked-certificates/ab1", "admin", {})
    assert client.ask("GET", "/v1/revoked-certificates").json() == [reported]
    assert [line["what"] for line in client.session_handler.audit.outcomes] == ["certificate revoke"] * 2
    for wrong in ("xyz", "0", "a" * 41, "sh%D0%BEp"):
        assert client.ask("PUT", f"/v1/revoked-certificates/{wrong}", body={}).status_code == 400
    agent = client.ask("POST", "/v1/tokens", body={"name": "paris", "role": "agent", "days": 1}).json()["token"]
    assert client.ask("GET", "/v1/agents", token=agent).status_code == 403


@pytest.mark.parametrize(
    ("method", "path", "role"),
    [
        ("POST", "/v1/sources/s", "view"), ("PATCH", "/v1/sources/s", "view"), ("PUT", "/v1/sources/s/config", "view"),
        ("DELETE", "/v1/sources/s", "operate"), ("GET", "/v1/audit", "operate"), ("GET", "/v1/tokens", "operate"),
("POST", "/v1/tokens", "operate"), ("DELETE", "/v1/tokens/x", "operate"), ("POST", "/v1/drain", "view"),
        ("POST", "/v1/sources/s/start", "view"), ("POST", "/v1/sources/s/dump", "view"),
        ("POST", "/v1/sources/s/positions", "view"), ("POST", "/v1/sources/s/rollback", "view"),
        ("POST", "/v1/sources/s/stop", "view"), ("PUT", "/v1/revoked-certificates/a", "operate"),
    ],
)  # fmt: skip
def test_a_role_that_is_too_small_is_refused(client: Client, method: str, path: str, role: Role) -> None:
    """It is refused whatever the body contains, with one audit line, and nothing is written."""
    before = list(client.session_handler.topic.records)
    assert client.ask(method, path, role, {}).status_code == 403
    assert (client.session_handler.topic.records, len(client.session_handler.audit.lines)) == (before, 1)
    assert (client.session_handler.last["who"], client.session_handler.last["outcome"]) == (f"the-{role}", "refused")


def test_every_route_asks_for_a_token(client: Client) -> None:
    """All routes in OpenAPI have the same security scheme."""
    api = client.http.request("GET", "/openapi.json").json()
    routes = [(path, method) for path, methods in api["paths"].items() for method in methods]
    assert len(routes) > 15
    for path, method in routes:
        assert api["paths"][path][method]["security"] == [{"HTTPBearer": []}]
        client.now += 1000.0  # otherwise the address would be refused
        assert client.http.request(
            method, path.replace("{source}", "s").replace("{number}", "x").replace("{serial}", "a")
        ).status_code in (
            401,
            411,
        )


def test_failed_attempts_are_limited(client: Client) -> None:
    """Ten of a hundred attempts receive 401 and are audited, and one line reports that the address is refused.

    Valid tokens of that address work all the time.
    """
    codes = [client.ask("GET", "/v1/agents", token=f"tb_{n:016x}_{'x' * 43}").status_code for n in range(100)]
    assert codes == [401] * 10 + [429] * 90
    assert len(client.session_handler.audit.lines) == 11
    assert client.ask("GET", "/v1/agents", "view").status_code == 200
    late = client.ask("GET", "/v1/agents", token=f"tb_{100:016x}_{'x' * 43}")
    assert (late.status_code, int(late.headers["retry-after"]) > 0) == (429, True)
    client.now += 61.0
    assert client.ask("GET", "/v1/agents", token=f"tb_{100:016x}_{'x' * 43}").status_code == 401


@pytest.mark.parametrize(
    ("method", "path", "body", "code"),
    [
        ("POST", "/v1/sources/..%2Fx", SPEC, 404), ("POST", "/v1/sources/x%00", SPEC, 400),
        ("POST", f"/v1/sources/{'x' * 300}", SPEC, 400), ("POST", "/v1/sources/sh%D0%BEp", SPEC, 400),
        ("POST", "/v1/sources/s", {**SPEC, "hostname": "evil"}, 400), ("POST", "/v1/sources/s", [], 400),
        ("POST", "/v1/sources/s", {**SPEC, "database": "${file:/etc/passwd}"}, 400),
        ("PATCH", "/v1/sources/none", {}, 404), ("POST", "/v1/sources/s/start", {"tables": {}}, 400),
        ("POST", "/v1/sources/s/start", {"tables": {"t": {}}, "more": 1}, 400),
        ("POST", "/v1/drain", {"role": "tenants", "name": "x"}, 400),
        ("POST", "/v1/tokens", {"name": "x", "role": "god"}, 400), ("GET", "/v1/sources/none/config", None, 404),
        ("POST", "/v1/sources/s", {**SPEC, "server_id": 2**70}, 400),
        ("GET", "/v1/nothing", None, 404), ("POST", "/v1/sources/s", {"agents": "x" * 2_000_000}, 413),
    ],
)  # fmt: skip
def test_bad_input_has_its_status(client: Client, method: str, path: str, body: Any, code: int) -> None:
    """Bad input receives its status, and nothing is written."""
    before = list(client.session_handler.topic.records)
    answer = client.ask(method, path, body=body)
    assert answer.status_code == code, answer.text
    assert answer.json()["error"]
    assert client.session_handler.topic.records == before


def test_an_unavailable_kafka_is_503(client: Client) -> None:
    """So that a client may try again."""
    client.session_handler.topic.unavailable = True
    assert client.ask("POST", "/v1/sources/s", body=SPEC).status_code == 503


def test_not_found_is_a_kind_of_usage_error() -> None:
    """The CLI exits with 2 for both."""
    assert NotFound("x").exit_code == VersionConflict("x").exit_code == 2
