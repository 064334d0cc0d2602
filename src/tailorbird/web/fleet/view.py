"""The data of the fleet's page, from the responses of a gateway's API."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

Health = Literal["moving", "waiting", "stuck", "away", "drained", "idle"]
MOST_TABLES = 20  # tables of a source that the page lists: the map finds the others
_SILENT_MS = 30_000  # a gateway sends a heartbeat every few seconds
_QUIET_MS = 180_000  # a source without a report for this long is considered unavailable


@dataclass(frozen=True, slots=True)
class AgentLine:
    """One agent on the page. `why` explains its health; empty if it captures and all is well.

    `drained`: it must not have sources; those that it has move to other agents."""

    name: str
    health: Health
    why: str
    gateway: str
    version: str
    sources: tuple[str, ...]
    drained: bool


@dataclass(frozen=True, slots=True)
class GatewayLine:
    """One gateway on the page, with the number of its agents. `drained`: agents must connect to other gateways."""

    name: str
    health: Health
    agents: int
    drained: bool


@dataclass(frozen=True, slots=True)
class TableLine:
    """A table that an agent sees. `captured` is the source that captures it, or None. `type` is that of sources for it.

    During a snapshot, `read` of about `rows` rows are read. `done`: the snapshot has ended."""

    agent: str
    connection: str
    database: str
    name: str
    rows: int | None
    columns: tuple[tuple[str, str], ...]
    captured: str | None
    read: int | None = None
    done: bool = False
    type: str = "mysql"

    @property
    def full(self) -> str:
        """Return `database.table`."""
        return f"{self.database}.{self.name}"

    @property
    def progress(self) -> float | None:
        """Return the fraction (0 to 1) of the rows that a snapshot has read, by the server's estimate. None without
        one."""
        if self.done:
            return 1.0
        return None if self.read is None else min(0.99, self.read / max(1, self.rows or 0, self.read))


@dataclass(frozen=True, slots=True)
class SourceLine:
    """One source on the page: its configuration and state. `holder` is the agent that captures it.

    `tables` are the first ones, `more` is the number of the others."""

    name: str
    version: int
    connection: str
    agents: tuple[str, ...]
    holder: str
    running: bool
    health: Health
    why: str
    tables: tuple[str, ...]
    position: str
    lag_ms: int | None
    more: int


_NO_NAME = {"", ".", ".."}


def may_ask(method: str, path: Sequence[str]) -> bool:
    """Return whether the page may send a request of this method and path, given as parts, to the gateway's API."""
    match method, path:
        case "POST", ["drain"]:
            return True
        case "PATCH", ["sources", name]:
            return name not in _NO_NAME
        case "GET", ["sources", name, "config" | "positions"]:
            return name not in _NO_NAME
        case "PUT", ["sources", name, "config"]:
            return name not in _NO_NAME
        case "POST", ["sources", name, "stop" | "rollback" | "positions" | "dump"]:
            return name not in _NO_NAME
    return False


def agents_of(agents: Sequence[Mapping[str, Any]]) -> list[AgentLine]:
    """Convert the answer of `GET /v1/agents`."""
    return [_agent(one) for one in agents]


def _agent(one: Mapping[str, Any]) -> AgentLine:
    sources = one["sources"]
    health: Health
    failed = [f"{s['source']}: {s['reason']}" for s in sources if s["status"] == "failed"]
    waits = [f"{s['source']}: {s['reason'] or 'begins'}" for s in sources if s["status"] == "applying"]
    if not one["connected"]:
        health, why = "away", "it is connected to no gateway"
    elif failed:
        health, why = "stuck", failed[0]
    elif waits:
        health, why = "waiting", waits[0]
    elif one["drained"]:
        health, why = "drained", "it must not have sources"
    else:
        health, why = ("moving", "") if sources else ("idle", "it has no source")
    return AgentLine(
        one["agent"], health, why, one["gateway"].partition("#")[0], one["version"],
        tuple(s["source"] for s in sources), one["drained"],
    )  # fmt: skip


def gateways_of(gateways: Sequence[Mapping[str, Any]], now_ms: float) -> list[GatewayLine]:
    """Convert the answer of `GET /v1/gateways`."""
    return [_gateway(one, now_ms) for one in gateways]


def _gateway(one: Mapping[str, Any], now_ms: float) -> GatewayLine:
    health: Health = "moving"
    if now_ms - one["heard_ms"] > _SILENT_MS:
        health = "away"
    elif one["drained"]:
        health = "drained"
    return GatewayLine(one["gateway"], health, one["agents"], one["drained"])


def sources_of(sources: Sequence[Mapping[str, Any]], now_ms: float) -> list[SourceLine]:
    """Convert the answer of `GET /v1/sources`."""
    return [_source(one, now_ms) for one in sources]


def _source(one: Mapping[str, Any], now_ms: float) -> SourceLine:
    spec, reported = one["spec"], one["reported"]
    at = (reported or {}).get("position") or {}
    health: Health
    if not spec["running"]:
        health, why = "idle", "stopped"
    elif reported is None:
        health, why = "waiting", "its agent has not reported yet" if one["agent"] else "no agent has it"
    elif reported["status"] == "failed":
        health, why = "stuck", reported["reason"]
    elif reported["status"] == "applying":
        health, why = "waiting", reported["reason"] or "it begins"
    elif now_ms - reported["at_ms"] > _QUIET_MS:
        health, why = "away", "no report for minutes"
    else:
        health, why = "moving", reported["reason"]
    tables = spec.get("tables") or ()
    place = f"{at['file']}:{at['pos']}" if at.get("file") else ""
    return SourceLine(
        one["source"], one["version"], spec["connection"], tuple(spec["agents"]), one["agent"], spec["running"], health,
        why, tuple(tables)[:MOST_TABLES], place, at.get("lag_ms"), max(0, len(tables) - MOST_TABLES),
    )  # fmt: skip


def tables_of(seen: Iterable[Mapping[str, Any]]) -> list[TableLine]:
    """Convert the response of `GET /v1/map`."""
    return [_table(one) for one in seen]


def _table(one: Mapping[str, Any]) -> TableLine:
    return TableLine(
        one["agent"], one["connection"], one["database"], one["table"], one["rows"],
        tuple((str(n), str(t)) for n, t in one["columns"]), one["captured"], one.get("reading"),
        one.get("done", False), one.get("type", "mysql"),
    )  # fmt: skip


def source_for(table: TableLine, sources: Sequence[SourceLine]) -> str | None:
    """Return the source that can capture a table: it has the same agent and connection. None if there is none."""
    fits = [one.name for one in sources if one.connection == table.connection and table.agent in one.agents]
    return fits[0] if fits else None


def new_source(table: TableLine, sources: Sequence[SourceLine]) -> tuple[str, dict[str, Any]]:
    """Return an unused name and a configuration for a new source, whose first table is `table`."""
    base = re.sub(r"[^a-z0-9_]", "_", table.connection)[:50]
    taken = {one.name for one in sources}
    name = next(
        name
        for number in range(1, len(taken) + 2)
        if (name := base if number == 1 else f"{base}_{number}") not in taken
    )
    spec = {
        "agents": [table.agent],
        "connection": table.connection,
        "database": table.database,
        "tables": {table.full: {}},
        **({} if table.type == "mysql" else {"type": table.type}),
    }
    return name, spec
