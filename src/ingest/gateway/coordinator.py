"""Coordinator of one gateway: it knows the connected agents, claims leases for them, and sends them their assignments.

One thread calls it. It reads the state from the fleet's topic and writes its decisions there. What fails is repeated at
the next turn. So it may crash at any moment, and any number of coordinators may run at once (`ingest.fleet.leases`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from ingest.fleet.catalog import unpacked
from ingest.fleet.fleet_pb2 import APPLIED as REPORTED_APPLIED
from ingest.fleet.fleet_pb2 import APPLYING, Assign, MapPart, Progress, Report, RequestType, StreamRequest, Withdraw
from ingest.fleet.fleet_pb2 import FAILED as REPORTED_FAILED
from ingest.fleet.leases import Lease, Presence, claims
from ingest.fleet.reported import Applied, SourceReport
from ingest.fleet.request_types import CATALOGS, capture_key, type_name
from ingest.fleet.state import (
    FleetState,
    beat_record,
    lease_over,
    lease_record,
    map_over,
    map_record,
    presence_record,
    reported_record,
)
from ingest.gateway.gateway_interfaces import AgentConnection, Audit, StateTopic

BEAT = 5.0  # seconds between a gateway's heartbeats
SILENT = 20.0  # seconds without a heartbeat until a gateway counts as gone
GRACE = 30.0  # seconds that an agent may be disconnected before another one takes its sources
_POSITION = 64 * 1024  # bytes
# maximum bytes of catalogs that have arrived in part: of one agent, and of all
_MAP, _MAPS = 16 * 1024 * 1024, 64 * 1024 * 1024
_STATUS: dict[Progress, Applied] = {APPLYING: "applying", REPORTED_APPLIED: "applied", REPORTED_FAILED: "failed"}


@dataclass(slots=True)
class _ConnectedAgent:
    agent_connection: AgentConnection
    presence: Presence
    announced: bool = False  # the presence is in the topic: another one there is newer
    assigned: dict[str, tuple[int, int]] = field(default_factory=dict)  # source → epoch and version
    runs: dict[str, int] = field(default_factory=dict)  # source → epoch, as the agent reports
    parts: dict[tuple[str, str], bytearray] = field(default_factory=dict)


class Coordinator:
    """Coordinator of the gateway `name`, which is unique per process.

    `clock` returns seconds, `now_ms` milliseconds since 1970, `unique` a new unique text. Every method raises Retriable
    while Kafka is unavailable.
    """

    def __init__(
        self,
        name: str,
        tenant: str,
        topology: str,
        topic: StateTopic,
        audit: Audit,
        *,
        clock: Callable[[], float],
        now_ms: Callable[[], int],
        unique: Callable[[], str],
    ) -> None:
        self.name, self.tenant, self._topology = name, tenant, topology
        self._topic, self._audit = topic, audit
        self._clock, self._now_ms, self._unique = clock, now_ms, unique
        self._connections: dict[str, _ConnectedAgent] = {}
        # by gateway: number of its last heartbeat, and when that was read
        self._beats: dict[str, tuple[int, float]] = {}
        self._absent: dict[str, float] = {}  # when each absent agent was last present
        self._beaten = -BEAT

    def joined(
        self,
        agent_connection: AgentConnection,
        labels: dict[str, str],
        version: str,
        places: Collection[tuple[str, str]] = (),
    ) -> None:
        """Register an agent that has connected, and end its older stream. The next turn sends its assignments.

        `places` are (connection, database) of its present catalog. Other entries of this agent are removed from the
        stored catalog, because its policy may have changed.
        """
        agent = agent_connection.agent
        if agent.tenant != self.tenant:
            self._refused(agent_connection, "dial", f"this gateway does not serve tenant {agent.tenant}")
            agent_connection.end(f"this gateway does not serve tenant {agent.tenant}")
            return
        if self._topic.state.is_drained("gateways", plain(self.name)):
            agent_connection.end("this gateway is drained: connect to another one")
            return
        before = self._connections.get(agent.name)
        if before is not None:
            before.agent_connection.end("the agent has connected again")
        presence = Presence(
            agent=agent.name, gateway=self.name, connected=True, version=version, labels=labels, at_ms=self._now_ms()
        )
        self._connections[agent.name] = _ConnectedAgent(agent_connection, presence)
        for name, connection, database in list(self._topic.state.maps):
            if name == agent.name and (connection, database) not in places:
                self._topic.send(map_over(name, connection, database))

    def left(self, agent_connection: AgentConnection) -> None:
        """Remove an agent whose stream has ended. The next turn writes that to the topic."""
        connected = self._connections.get(agent_connection.agent.name)
        if connected is not None and connected.agent_connection is agent_connection:
            del self._connections[agent_connection.agent.name]

    def heard(self, agent_connection: AgentConnection, request: StreamRequest) -> None:
        """Process a status report, or a part of the catalog, from an agent."""
        connected = self._connections.get(agent_connection.agent.name)
        if connected is None or connected.agent_connection is not agent_connection:
            return
        if request.HasField("report"):
            self._report(connected, request.report)
        elif request.HasField("map_part"):
            self._map(connected, request.map_part, request.type)

    def turn(self) -> None:
        """Compare the topic's state with the agents and act on it. Call it after changes of the topic, and about every
        second."""
        now, state = self._clock(), self._topic.state
        if now - self._beaten >= BEAT:
            self._beaten = now
            self._topic.send(beat_record(self.name, self._now_ms()))
        gone = self._silent(state, now)
        state = self._departures(self._presences(state), gone)
        drained = {name for (role, name), value in state.drained.items() if value and role == "agents"}
        found = claims(
            self.name, state.newest(), state.leases, state.presences,
            drained=drained, gone=gone, unavailable=self._unavailable(state, gone, now),
        )  # fmt: skip
        self._claim(state, [replace(lease, claim=self._unique()) for lease in found])
        self._send_assignments(self._topic.state)
        if state.is_drained("gateways", plain(self.name)):
            for connected in list(self._connections.values()):
                connected.agent_connection.end("this gateway is drained: connect to another one")

    def _claim(self, before: FleetState, made: list[Lease]) -> None:
        """Write all new leases at once, because a gateway that starts may serve a thousand agents."""
        if not made:
            return
        state = self._topic.write(*map(lease_record, made))
        for claim in made:
            if state.leases[claim.source] == claim:
                self._line(f"lease of {claim.source}", claim.agent or "no agent", f"epoch {claim.epoch}")
            if claim.source in before.leases:
                self._topic.send(lease_over(before.leases[claim.source]))

    def _silent(self, state: FleetState, now: float) -> set[str]:
        """Return the gateways from which no heartbeat was read for `SILENT` seconds."""
        if now - self._beats.get(self.name, (0, now))[1] > 2 * BEAT:
            # the own heartbeat is missing, too, so Kafka was unavailable: restart the wait for all gateways
            self._beats = dict.fromkeys(self._beats, (-1, now))
        for gateway, beat in state.beats.items():
            if self._beats.get(gateway, (None, 0.0))[0] != beat:
                self._beats[gateway] = (beat, now)
        named = {one.gateway for one in state.presences.values()} | {one.gateway for one in state.leases.values()}
        for gateway in named:
            self._beats.setdefault(gateway, (0, now))
        return {name for name, (_, heard) in self._beats.items() if name != self.name and now - heard > SILENT}

    def _presences(self, state: FleetState) -> FleetState:
        """Write which agents are connected to this gateway.

        It is written again if a late record of another gateway says that the agent has left. If an agent has since
        connected to another gateway, its stream here is ended.
        """
        due = list[_ConnectedAgent]()
        for name, connected in list(self._connections.items()):
            presence = state.presences.get(name)
            if connected.announced and presence is not None and presence.gateway == self.name and presence.connected:
                continue
            if connected.announced and presence is not None and presence.connected:
                del self._connections[name]
                connected.agent_connection.end("the agent has connected to another gateway")
            else:
                due.append(connected)
        if due:
            state = self._topic.write(*(presence_record(connected.presence) for connected in due))
        for connected in due:
            connected.announced = True
        return state

    def _departures(self, state: FleetState, gone: set[str]) -> FleetState:
        """Write which agents have no stream any more.

        These are agents of this gateway whose departure is not in the topic, or was overwritten by a late record, and
        agents of silent gateways.
        """
        left = [
            presence for name, presence in state.presences.items()
            if presence.connected
            and (presence.gateway in gone or (presence.gateway == self.name and name not in self._connections))
        ]  # fmt: skip
        if not left:
            return state
        now = self._now_ms()
        return self._topic.write(*(presence_record(replace(presence, connected=False, at_ms=now)) for presence in left))

    def _unavailable(self, state: FleetState, gone: set[str], now: float) -> set[str]:
        named = {agent for newest in state.newest().values() if newest.spec for agent in newest.spec.agents}
        present = {one.agent for one in state.presences.values() if one.connected and one.gateway not in gone}
        self._absent = {agent: self._absent.get(agent, now) for agent in named - present}
        return {agent for agent, since in self._absent.items() if now - since > GRACE}

    def _send_assignments(self, state: FleetState) -> None:
        """Send each agent its new and changed assignments, and withdraw others."""
        due: dict[str, dict[str, tuple[int, int]]] = {}
        newest = state.newest()
        for lease in state.leases.values():
            if lease.gateway == self.name and lease.agent in self._connections and newest.get(lease.source) is not None:
                due.setdefault(lease.agent, {})[lease.source] = (lease.epoch, newest[lease.source].version)
        for agent, connected in self._connections.items():
            wanted = due.get(agent, {})
            for source in connected.assigned.keys() - wanted.keys():
                self._withdraw(state, connected, source, connected.assigned.pop(source)[0])
            for source, epoch in list(connected.runs.items()):
                held = state.leases.get(source)
                # assigned by another gateway, or by an earlier process of this one
                if held is None or not held.admits(agent, epoch):
                    self._withdraw(state, connected, source, epoch)
            for source, place in wanted.items():
                if connected.agent_connection.full:
                    break  # the next turn sends the rest
                spec = newest[source].spec
                if connected.assigned.get(source) != place and spec is not None:
                    connected.assigned[source] = place
                    assign = self._assign(source, place, spec.to_json())
                    connected.agent_connection.send(StreamRequest(type=capture_key(spec.type), assign=assign))

    def _withdraw(self, state: FleetState, connected: _ConnectedAgent, source: str, epoch: int) -> None:
        connected.runs.pop(source, None)
        ended = Withdraw(source=source, epoch=epoch, why=why_not(state, source, connected.agent_connection.agent.name))
        connected.agent_connection.send(StreamRequest(withdraw=ended))

    def _assign(self, source: str, place: tuple[int, int], spec: dict[str, Any]) -> Assign:
        return Assign(
            source=source, epoch=place[0], version=place[1], spec=orjson.dumps(spec), topology=self._topology
        )  # fmt: skip

    def _report(self, connected: _ConnectedAgent, sent: Report) -> None:
        agent_connection, state = connected.agent_connection, self._topic.state
        if sent.source not in state.desired:
            self._refused(agent_connection, "report", f"source {sent.source[:80]!r} is not assigned to this agent")
            return
        lease = state.leases.get(sent.source)
        if lease is None or not lease.admits(agent_connection.agent.name, sent.epoch):
            self._withdraw(state, connected, sent.source, sent.epoch)
            return
        connected.runs[sent.source] = sent.epoch
        try:
            position = orjson.loads(sent.position) if 0 < len(sent.position) <= _POSITION else None
            report = SourceReport(
                agent=agent_connection.agent.name, source=sent.source, epoch=sent.epoch, version=sent.version,
                status=_STATUS[sent.progress], reason=sent.reason[:2000], hash=sent.hash[:64], narrowed=sent.narrowed,
                position=position if isinstance(position, dict) else None, at_ms=self._now_ms(),
            )  # fmt: skip
        except (KeyError, ValueError) as error:
            self._refused(agent_connection, "report", f"invalid report: {error!r}")
            return
        self._topic.send(reported_record(report))

    def _map(self, connected: _ConnectedAgent, part: MapPart, key: RequestType) -> None:
        agent, place = connected.agent_connection.agent.name, (part.connection, part.database)
        if part.gone:
            self._topic.send(map_over(agent, *place))
            return
        content = connected.parts.setdefault(place, bytearray())
        content += part.content
        own = sum(map(len, connected.parts.values()))
        if own > _MAP or len(connected.parts) > 64 or self._partly_received() > _MAPS:
            self._refused(connected.agent_connection, "map", f"more than {_MAP} bytes in total: {part.database[:80]!r}")
            connected.parts.clear()
            connected.agent_connection.end("its catalog is too large")
        elif part.last:
            try:
                seen = unpacked(bytes(connected.parts.pop(place)), agent, part.connection)
            except (LookupError, TypeError, ValueError) as error:
                self._refused(connected.agent_connection, "map", f"invalid catalog: {error!r}"[:200])
                return
            # an agent of the previous release sends no type of a plugin
            if seen.type not in CATALOGS.get(key, (seen.type,)):
                why = f"a catalog of type {seen.type} in a message of type {type_name(key)}"
                self._refused(connected.agent_connection, "map", why)
                connected.agent_connection.end(why)
            else:
                self._topic.send(map_record(seen))
                if seen.omitted:
                    self._refused(connected.agent_connection, "map", f"{part.database[:80]!r}: {seen.omitted}")

    def _partly_received(self) -> int:
        return sum(len(part) for connected in self._connections.values() for part in connected.parts.values())

    def _refused(self, agent_connection: AgentConnection, what: str, why: str) -> None:
        self._audit.line({"what": what, "who": agent_connection.agent.uri, "outcome": "refused", "why": why})

    def _line(self, what: str, on: str, how: str) -> None:
        self._audit.line({"what": what, "who": self.name, "on": on, "outcome": "done", "how": how})


def plain(gateway: str) -> str:
    """Return a gateway's name without the suffix that makes it unique per process."""
    return gateway.partition("#")[0]


def why_not(state: FleetState, source: str, agent: str) -> str:
    """Return why a source was withdrawn from an agent."""
    spec = state.spec(source)
    if spec is None:
        return "the source was removed"
    if not spec.running:
        return "the source is stopped"
    if agent not in spec.agents:
        return "the source is assigned to other agents"
    return "the agent is drained" if state.is_drained("agents", agent) else "another agent or gateway has it"


def claim_again(lease: Lease, claim: str) -> Lease:
    """Return a claim of the next epoch for the same agent, which makes it start a new session."""
    return replace(lease, epoch=lease.epoch + 1, claim=claim)
