"""Lists of a fleet for operators, searched and paged: agents, gateways, sources, and the tables that agents see.

The cost of a page does not grow with the square of agents, sources or tables."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, NamedTuple

from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.fleet.desired import DesiredSource, source_of
from ingest.fleet.leases import Lease, Presence
from ingest.fleet.paging import WHOLE, Page, PagedList, paged
from ingest.fleet.state import FleetState
from ingest.gateway.coordinator import plain
from ingest.gateway.gateway_interfaces import StateTopic
from ingest.gateway.shown import running, version_shown

Listed = PagedList[dict[str, Any]]


class _SeenTable(NamedTuple):
    """A table of an agent's catalog, and the source that captures it, if any."""

    seen: DatabaseSeen
    table: TableSeen
    captured: str | None


class FleetLists:
    """The lists of one tenant, from the state in the fleet's topic. `topology` is the tenant's name."""

    def __init__(self, topic: StateTopic, topology: str) -> None:
        self._topic, self._topology = topic, topology
        self._parsed: dict[str, tuple[DesiredSource, Source]] = {}

    def agents(self, page: Page = WHOLE) -> Listed:
        """Return the agents that ever connected, with their gateways and sources."""
        state = self._topic.state
        held = defaultdict[str, list[Lease]](list)
        for lease in state.leases.values():
            held[lease.agent].append(lease)

        def show(one: Presence) -> dict[str, Any]:
            leases = sorted(held[one.agent], key=lambda lease: lease.source)
            return {
                "agent": one.agent, "connected": one.connected, "gateway": one.gateway, "version": one.version,
                "labels": dict(one.labels or {}), "since_ms": one.at_ms,
                "drained": state.is_drained("agents", one.agent),
                "sources": [running(state, lease.source, one.agent, lease.epoch) for lease in leases],
            }  # fmt: skip

        def text(one: Presence) -> str:
            labels = (f"{name}={value}" for name, value in (one.labels or {}).items())
            return " ".join([one.agent, one.gateway, *labels, *(lease.source for lease in held[one.agent])])

        return paged([one for _, one in sorted(state.presences.items())], page, text, show)

    def gateways(self, page: Page = WHOLE) -> Listed:
        """Return the known gateways: the last heartbeat, the number of agents, and whether it is drained."""
        state = self._topic.state
        beats = dict[str, int]()
        for gateway, beat in state.beats.items():
            beats[plain(gateway)] = max(beat, beats.get(plain(gateway), 0))
        here = Counter(plain(one.gateway) for one in state.presences.values() if one.connected)

        def show(name: str) -> dict[str, Any]:
            drained = state.is_drained("gateways", name)
            return {"gateway": name, "heard_ms": beats[name], "agents": here[name], "drained": drained}

        return paged(sorted(beats), page, str, show)

    def sources(self, page: Page = WHOLE) -> Listed:
        """Return the sources of the fleet: the desired state, the agent, and the agent's report."""
        state = self._topic.state

        def text(one: DesiredSource) -> str:
            assert one.spec is not None
            lease = state.leases.get(one.source)
            return " ".join(
                [one.source, one.spec.connection, *one.spec.agents, lease.agent if lease else "", *one.spec.tables]
            )

        def show(one: DesiredSource) -> dict[str, Any]:
            return _source_shown(state, one)

        return paged([one for _, one in sorted(state.newest().items()) if one.spec], page, text, show)

    def map(self, agent: str | None = None, page: Page = WHOLE) -> Listed:
        """Return the tables that agents see (None: of all agents): columns, estimated rows, the source that captures
        it, if any, and the progress of its snapshot."""
        state = self._topic.state

        def text(one: _SeenTable) -> str:
            columns = " ".join(name for name, _ in one.table.columns)
            seen = one.seen
            place = f"{seen.agent} {seen.connection} {seen.database}.{one.table.name}"
            return f"{place} {columns} {one.captured or ''}"

        return paged(self._tables(state, agent), page, text, lambda one: _table_shown(state, one))

    def _tables(self, state: FleetState, agent: str | None) -> Iterator[_SeenTable]:
        over = self._captures(state)
        for (name, connection, database), seen in sorted(state.maps.items()):
            if agent not in (None, name):
                continue
            sources = over.get((name, connection), ())
            for table in seen.tables:
                by = next(
                    (
                        one.name for one in sources
                        if one.captures(TableId(source=one.name, database=database, table=table.name))
                    ),
                    None,
                )  # fmt: skip
                yield _SeenTable(seen, table, by)

    def _captures(self, state: FleetState) -> Mapping[tuple[str, str], list[Source]]:
        """Return the sources by agent and connection. A configuration is parsed once, because it may list thousands of
        tables."""
        found, parsed = defaultdict[tuple[str, str], list[Source]](list), dict[str, tuple[DesiredSource, Source]]()
        for name, newest in state.newest().items():
            if newest.spec is None:
                continue
            known = self._parsed.get(name)
            if known is None or known[0] is not newest:
                known = newest, source_of(newest.spec, self._topology, name)
            parsed[name] = known
            for agent in newest.spec.agents:
                found[agent, newest.spec.connection].append(known[1])
        self._parsed = parsed
        return found


def _table_shown(state: FleetState, one: _SeenTable) -> dict[str, Any]:
    seen, table = one.seen, one.table
    shown = {
        "agent": seen.agent, "connection": seen.connection, "database": seen.database, "table": table.name,
        "rows": table.rows, "columns": [list(column) for column in table.columns], "captured": one.captured,
        "type": seen.type, **({"omitted": seen.omitted} if seen.omitted else {}),
    }  # fmt: skip
    lease = state.leases.get(one.captured or "")
    report = state.reported.get((lease.agent, lease.source)) if lease else None
    if lease is None or report is None or report.epoch != lease.epoch:
        return shown
    name = f"{seen.database}.{table.name}"
    reading, read = (_rows(report.position, key, name) for key in ("reading", "read"))
    return {**shown, "reading": reading, "done": reading is None and read is not None}


def _rows(position: Mapping[str, Any] | None, key: str, table: str) -> int | None:
    """Return an agent's number of rows of a table. None if it is not reported, or no number."""
    counts = (position or {}).get(key)
    rows = counts.get(table) if isinstance(counts, Mapping) else None
    return rows if isinstance(rows, int) else None


def _source_shown(state: FleetState, newest: DesiredSource) -> dict[str, Any]:
    name = newest.source
    lease = state.leases.get(name)
    shown = {**version_shown(newest), "agent": lease.agent if lease else "", "epoch": lease.epoch if lease else 0}
    report = state.reported.get((lease.agent, name)) if lease else None
    current = report is not None and lease is not None and report.epoch == lease.epoch
    return {**shown, "reported": asdict(report) if report is not None and current else None}
