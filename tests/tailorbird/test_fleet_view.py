"""Contents of the fleet's page: health means progress, the map is searchable, the first table creates a source."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

from cdc.model.errors import UsageError
from tailorbird.web.fleet.http_fleet_page import FleetSessions, serve_fleet_page
from tailorbird.web.fleet.view import (
    SourceLine,
    agents_of,
    gateways_of,
    may_ask,
    new_source,
    source_for,
    sources_of,
    tables_of,
)

NOW = 1_000_000.0


def reported_now(**said: Any) -> dict[str, Any]:
    return {
        "status": "applied",
        "reason": "",
        "at_ms": NOW,
        "position": {"file": "b.1", "pos": 4, "lag_ms": 20},
        **said,
    }


def source(name: str = "shop", reported: Any = None, **spec: Any) -> dict[str, Any]:
    whole = {"agents": ["paris"], "connection": "db", "running": True, "tables": {"d.t": {}}, **spec}
    return {"source": name, "version": 3, "agent": "paris", "spec": whole, "reported": reported}


def seen(table: str = "t", captured: str | None = None, **said: Any) -> dict[str, Any]:
    return {
        "agent": "paris", "connection": "db", "database": "d", "table": table, "rows": 100,
        "columns": [["id", "int"], ["mail", "text"]], "captured": captured, **said,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("one", "health", "why"),
    [
        (source(reported=reported_now()), "moving", ""),
        (source(reported=reported_now(at_ms=NOW - 600_000)), "away", "no report for minutes"),
        (source(reported=reported_now(status="failed", reason="no grant")), "stuck", "no grant"),
        (source(reported=reported_now(status="applying", reason="waiting: Kafka")), "waiting", "waiting: Kafka"),
        (source(), "waiting", "its agent has not reported yet"),
        ({**source(), "agent": ""}, "waiting", "no agent has it"),
        (source(reported=reported_now(), running=False), "idle", "stopped"),
    ],
)
def test_a_sources_health(one: dict[str, Any], health: str, why: str) -> None:
    """Health means progress, not a running process; otherwise it has a reason."""
    [line] = sources_of([one], NOW)
    assert (line.health, line.why) == (health, why)


@pytest.mark.parametrize(
    ("said", "health"),
    [
        ({"connected": False}, "away"), ({"drained": True, "sources": []}, "drained"), ({"sources": []}, "idle"),
        ({}, "moving"),
        ({"sources": [{"source": "s", "status": "failed", "reason": "x"}]}, "stuck"),
        ({"sources": [{"source": "s", "status": "applying", "reason": ""}]}, "waiting"),
    ],
)  # fmt: skip
def test_an_agents_health(said: dict[str, Any], health: str) -> None:
    """The worst of its sources."""
    whole = {
        "agent": "paris", "connected": True, "gateway": "g1#ab", "version": "1", "drained": False,
        "sources": [{"source": "s", "status": "applied", "reason": ""}],
    }  # fmt: skip
    [line] = agents_of([{**whole, **said}])
    assert (line.health, line.gateway) == (health, "g1")


def test_a_gateways_health() -> None:
    """It says every few seconds that it is there."""
    reported_now = {"gateway": "g1", "heard_ms": NOW - 5000, "agents": 2, "drained": False}
    every = [reported_now, {**reported_now, "drained": True}, {**reported_now, "heard_ms": NOW - 60_000}]
    assert [one.health for one in gateways_of(every, NOW)] == ["moving", "drained", "away"]


def test_a_snapshots_progress() -> None:
    """Progress is relative to an estimate and never complete before the end."""
    t, u, v = tables_of(
        [seen("t", "shop", reading=50, done=False), seen("u", "shop"), seen("v", "shop", reading=None, done=True)]
    )
    assert (t.progress, t.read, t.done) == (0.5, 50, False)
    assert u.progress is None
    assert (v.progress, v.done) == (1.0, True)
    assert tables_of([seen(captured="shop", rows=10, reading=50)])[0].progress == 0.99


def test_a_source_with_many_tables_lists_the_first_ones() -> None:
    """The others are counted, and found in the map."""
    [line] = sources_of([source(tables={f"d.t{n}": {} for n in range(20_000)})], NOW)
    assert (line.tables[-1], len(line.tables), line.more) == ("d.t19", 20, 19_980)


class Lists:
    """A gateway's lists with 20,000 tables and 1,000 agents, which returns at most 1,000 entries at a time."""

    def __init__(self) -> None:
        self.commands: list[tuple[str, str, Any]] = []
        self.whole: dict[str, list[Any]] = {
            "map": [seen(f"t{n:05}") for n in range(20_000)],
            "sources": [],
            "gateways": [],
        }
        self.whole["agents"] = [
            {"agent": f"a{n:04}", "connected": True, "gateway": "g", "version": "1", "drained": False, "sources": []}
            for n in range(1000)
        ]

    def page(self, path: str, *, search: str = "", offset: int = 0, limit: int = 1000, **_: Any) -> Any:
        assert limit <= 1000, "a page never asks for a whole list"
        found = [
            one for one in self.whole[path] if all(word in " ".join(map(str, one.values())) for word in search.split())
        ]
        return found[offset : offset + limit], len(found)

    def every(self, path: str, **query: Any) -> Any:
        return self.page(path, **query)[0]

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        self.commands.append((method, path, body))
        return {}


async def asked(app: FastAPI, method: str, path: str, session: str, body: Any = None) -> Any:
    transport = httpx.ASGITransport(app=app)
    async with httpx.AsyncClient(transport=transport, base_url="http://page") as client:
        answer = await client.request(method, path, json=body, headers={"X-Tailorbird-Session": session})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_the_page_shows_parts_of_long_lists() -> None:
    """Each list has its own offset; the last table is found by its name and captured, although no page shows it."""
    lists = Lists()
    app = FastAPI()
    sessions = FleetSessions(lambda token: lists)  # type: ignore[arg-type, return-value]
    serve_fleet_page(app, sessions)
    session = sessions.enter("token")
    state = asyncio.run(asked(app, "GET", "/api/state?tables=400&agents=50", session))
    assert [one["name"] for one in state["tables"]["entries"]] == [f"t{n:05}" for n in range(400, 600)]
    assert (state["tables"]["total"], state["agents"]["total"]) == (20_000, 1000)
    assert state["agents"]["entries"][0]["name"] == "a0050"
    state = asyncio.run(asked(app, "GET", "/api/state?q=t19999", session))
    assert ([one["name"] for one in state["tables"]["entries"]], state["tables"]["total"]) == (["t19999"], 1)
    place = {"agent": "paris", "connection": "db", "database": "d", "name": "t19999"}
    asyncio.run(asked(app, "POST", "/api/sync", session, place))
    assert lists.commands[-1][2]["tables"] == {"d.t19999": {}}


def test_the_first_table_of_a_connection_makes_a_source() -> None:
    """Under a name that no source has; later ones go to the source that is there."""
    [table] = tables_of([seen(connection="shop-db")])
    assert source_for(table, []) is None
    name, spec = new_source(table, [])
    assert (name, spec["tables"], spec["agents"]) == ("shop_db", {"d.t": {}}, ["paris"])
    assert "type" not in spec
    assert new_source(tables_of([seen(type="postgresql")])[0], [])[1]["type"] == "postgresql"
    other: list[SourceLine] = sources_of([source("shop_db", agents=["lyon"], connection="shop-db")], NOW)
    assert source_for(table, other) is None, "another agent's"
    assert new_source(table, other)[0] == "shop_db_2"
    ours = sources_of([source("x", connection="shop-db")], NOW)
    assert source_for(table, ours) == "x"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "tokens"),
        ("POST", "tokens"),
        ("GET", "audit"),
        ("DELETE", "sources/shop"),
        ("POST", "sources/shop"),
        ("PUT", "sources/shop"),
        ("GET", "sources/../config"),
        ("GET", "sources//config"),
        ("GET", "sources/shop/config/"),
        ("POST", "sources/shop/../../tokens/stop"),
        ("POST", "drain/x"),
        ("POST", ""),
    ],
)
def test_the_page_forwards_its_own_requests_only(method: str, path: str) -> None:
    """What the page has no button for is not forwarded, whatever the token allows."""
    assert not may_ask(method, path.split("/"))
    assert may_ask("POST", ["drain"])
    assert may_ask("PATCH", ["sources", "shop"])
    assert may_ask("GET", ["sources", "shop", "positions"])
    assert may_ask("PUT", ["sources", "shop", "config"])
    assert may_ask("POST", ["sources", "shop", "rollback"])


class Gateway:
    """A gateway's API that knows one token."""

    def __init__(self, token: str) -> None:
        self.token = token

    def ask(self, *_: object) -> None:
        if self.token != "right":
            raise UsageError("no such token", "")


def test_a_session_ends_and_a_wrong_token_begins_none() -> None:
    """A session belongs to one token and ends after twelve hours; texts that are no token are not sent."""
    now = [0.0]
    sessions = FleetSessions(lambda token: Gateway(token), lambda: now[0])  # type: ignore[arg-type, return-value]
    for token in ("", "wrong", "ri\nght", "rïght", "x" * 1_001):
        with pytest.raises(UsageError, match="token"):
            sessions.enter(token)
    first, second = sessions.enter("right"), sessions.enter("right")
    assert first != second
    assert isinstance(sessions.api(first), Gateway)
    assert sessions.api("") is None
    assert sessions.api(first[:-1]) is None
    now[0] = 12 * 3600
    assert sessions.api(first) is None


def test_a_ticket_of_a_login_is_valid_once_for_a_minute() -> None:
    """The browser's cookie ends by itself then, but someone may have copied it."""
    now = [0.0]
    sessions = FleetSessions(lambda token: Gateway(token), lambda: now[0])  # type: ignore[arg-type, return-value]
    used, late = sessions.ticket("first"), sessions.ticket("second")
    now[0] = 59.0
    assert (sessions.redeem(used), sessions.redeem(used), sessions.redeem("")) == ("first", None, None)
    now[0] = 60.0
    assert sessions.redeem(late) is None
    kept = [sessions.ticket(str(number)) for number in range(1_001)]
    assert (sessions.redeem(kept[0]), sessions.redeem(kept[1])) == (None, "1"), "a thousand are kept"
