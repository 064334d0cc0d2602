"""The steward of one gateway: who is there, who may capture what, and what agents are told of it; pure.

One thread calls it. It acts on what the fleet's topic says, and says there what it does: whatever it misses, the next
turn does. So it may die at any moment, and any number of them may work at once (`ingest.fleet.leases`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from ingest.fleet.catalog import unpacked
from ingest.fleet.fleet_pb2 import APPLIED as REPORTED_APPLIED
from ingest.fleet.fleet_pb2 import APPLYING, Assign, Control_Lease, MapPart, Progress, Report, StreamRequest, Withdraw
from ingest.fleet.fleet_pb2 import FAILED as REPORTED_FAILED
from ingest.fleet.leases import Lease, Presence, claims
from ingest.fleet.reported import Applied, Reported
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

BEAT = 5.0  # seconds between a gateway's signs of life
SILENT = 20.0  # seconds without one: its agents are elsewhere, or nowhere
GRACE = 30.0  # seconds that an agent may be away until another one takes its sources
_POSITION = 64 * 1024  # bytes
_MAP, _MAPS = 16 * 1024 * 1024, 64 * 1024 * 1024  # bytes of maps that are half told: of one agent, and of all
_WORDS: dict[Progress, Applied] = {APPLYING: "applying", REPORTED_APPLIED: "applied", REPORTED_FAILED: "failed"}


@dataclass(slots=True)
class _Seated:
    agent_connection: AgentConnection
    presence: Presence
    said: bool = False  # whether the topic says so: what it says otherwise is newer
    assigned: dict[str, tuple[int, int]] = field(default_factory=dict)  # source → epoch and version
    runs: dict[str, int] = field(default_factory=dict)  # source → epoch, as the agent says
    parts: dict[tuple[str, str], bytearray] = field(default_factory=dict)


class Coordinator:
    """Of the gateway `name`, which is unlike that of any other process; `clock` in seconds, `now_ms` since 1970,
    `unique` makes texts that nobody else makes. Every method raises Retriable while Kafka is away.
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
        self._connections: dict[str, _Seated] = {}
        self._beats: dict[str, tuple[int, float]] = {}  # of each gateway: its last one, and when that was read
        self._absent: dict[str, float] = {}  # agents, and since when
        self._beaten = -BEAT

    def joined(
        self,
        agent_connection: AgentConnection,
        labels: dict[str, str],
        version: str,
        places: Collection[tuple[str, str]] = (),
    ) -> None:
        """An agent has a seat; an older one of the same agent is ended. The next turn tells it what to do. `places` are
        the connections and databases that it may tell of: its host's owner may let it tell of fewer than before.
        """
        agent = agent_connection.agent
        if agent.tenant != self.tenant:
            self._refused(agent_connection, "dial", f"tenant {agent.tenant} is not this gateway's")
            agent_connection.end(f"tenant {agent.tenant} is not this gateway's")
            return
        if self._topic.state.is_drained("gateways", plain(self.name)):
            agent_connection.end("this gateway is drained: dial another one")
            return
        before = self._connections.get(agent.name)
        if before is not None:
            before.agent_connection.end("the agent has dialled again")
        presence = Presence(
            agent=agent.name, gateway=self.name, connected=True, version=version, labels=labels, at_ms=self._now_ms()
        )
        self._connections[agent.name] = _Seated(agent_connection, presence)
        for name, connection, database in list(self._topic.state.maps):
            if name == agent.name and (connection, database) not in places:
                self._topic.send(map_over(name, connection, database))

    def left(self, agent_connection: AgentConnection) -> None:
        """A seat's stream has ended; the next turn that Kafka is there for says so."""
        seated = self._connections.get(agent_connection.agent.name)
        if seated is not None and seated.agent_connection is agent_connection:
            del self._connections[agent_connection.agent.name]

    def heard(self, agent_connection: AgentConnection, request: StreamRequest) -> None:
        """What an agent tells of itself."""
        seated = self._connections.get(agent_connection.agent.name)
        if seated is None or seated.agent_connection is not agent_connection:
            return
        if request.HasField("report"):
            self._report(seated, request.report)
        elif request.HasField("map_part"):
            self._map(seated, request.map_part)

    def turn(self) -> None:
        """Do what is due; to be called when the topic has changed, and every second or so."""
        now, state = self._clock(), self._topic.state
        if now - self._beaten >= BEAT:
            self._beaten = now
            self._topic.send(beat_record(self.name, self._now_ms()))
        gone = self._silent(state, now)
        state = self._departures(self._presences(state), gone)
        drained = {name for (role, name), said in state.drained.items() if said and role == "agents"}
        found = claims(
            self.name, state.newest(), state.leases, state.presences,
            drained=drained, gone=gone, unavailable=self._unavailable(state, gone, now),
        )  # fmt: skip
        self._claim(state, [replace(lease, claim=self._unique()) for lease in found])
        self._send_report(self._topic.state)
        if state.is_drained("gateways", plain(self.name)):
            for seated in list(self._connections.values()):
                seated.agent_connection.end("this gateway is drained: dial another one")

    def _claim(self, before: FleetState, made: list[Lease]) -> None:
        """All at once: a gateway that starts may have a thousand agents to serve."""
        if not made:
            return
        state = self._topic.write(*map(lease_record, made))
        for claim in made:
            if state.leases[claim.source] == claim:
                self._line(f"lease of {claim.source}", claim.agent or "nobody", f"epoch {claim.epoch}")
            if claim.source in before.leases:
                self._topic.send(lease_over(before.leases[claim.source]))

    def _silent(self, state: FleetState, now: float) -> set[str]:
        """Gateways that were not heard of for long; none before we have listened for so long ourselves."""
        if now - self._beats.get(self.name, (0, now))[1] > 2 * BEAT:
            # our own is not read either: Kafka is away, and nobody could be heard; all are listened to anew
            self._beats = dict.fromkeys(self._beats, (-1, now))
        for gateway, beat in state.beats.items():
            if self._beats.get(gateway, (None, 0.0))[0] != beat:
                self._beats[gateway] = (beat, now)
        named = {one.gateway for one in state.presences.values()} | {one.gateway for one in state.leases.values()}
        for gateway in named:
            self._beats.setdefault(gateway, (0, now))
        return {name for name, (_, heard) in self._beats.items() if name != self.name and now - heard > SILENT}

    def _presences(self, state: FleetState) -> FleetState:
        """Say that an agent is here, and again where a late word of another gateway says that it has left; end the seat
        of one that has dialled another gateway since.
        """
        due = list[_Seated]()
        for name, seated in list(self._connections.items()):
            presence = state.presences.get(name)
            if seated.said and presence is not None and presence.gateway == self.name and presence.connected:
                continue
            if seated.said and presence is not None and presence.connected:
                del self._connections[name]
                seated.agent_connection.end("the agent has dialled another gateway")
            else:
                due.append(seated)
        if due:
            state = self._topic.write(*(presence_record(seated.presence) for seated in due))
        for seated in due:
            seated.said = True
        return state

    def _departures(self, state: FleetState, gone: set[str]) -> FleetState:
        """Say that agents have left whose streams nobody has: ours, where Kafka was away when they went, or a word
        that they are here came late; those of gateways that are silent, whoever says it first.
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

    def _send_report(self, state: FleetState) -> None:
        """Each agent what it may capture, and no more; and again when the configuration has changed."""
        due: dict[str, dict[str, tuple[int, int]]] = {}
        newest = state.newest()
        for lease in state.leases.values():
            if lease.gateway == self.name and lease.agent in self._connections and newest.get(lease.source) is not None:
                due.setdefault(lease.agent, {})[lease.source] = (lease.epoch, newest[lease.source].version)
        for agent, seated in self._connections.items():
            wanted = due.get(agent, {})
            for source in seated.assigned.keys() - wanted.keys():
                self._withdraw(state, seated, source, seated.assigned.pop(source)[0])
            for source, epoch in list(seated.runs.items()):
                held = state.leases.get(source)
                if held is None or not held.admits(agent, epoch):  # it had it of another gateway, or in another life
                    self._withdraw(state, seated, source, epoch)
            for source, place in wanted.items():
                if seated.agent_connection.full:
                    break  # the next turn tells the rest
                spec = newest[source].spec
                if seated.assigned.get(source) != place and spec is not None:
                    seated.assigned[source] = place
                    seated.agent_connection.say(
                        StreamRequest(type=Control_Lease, assign=self._assign(source, place, spec.to_json()))
                    )

    def _withdraw(self, state: FleetState, seated: _Seated, source: str, epoch: int) -> None:
        seated.runs.pop(source, None)
        ended = Withdraw(source=source, epoch=epoch, why=why_not(state, source, seated.agent_connection.agent.name))
        seated.agent_connection.say(StreamRequest(type=Control_Lease, withdraw=ended))

    def _assign(self, source: str, place: tuple[int, int], spec: dict[str, Any]) -> Assign:
        return Assign(
            source=source, epoch=place[0], version=place[1], spec=orjson.dumps(spec), topology=self._topology
        )  # fmt: skip

    def _report(self, seated: _Seated, sent: Report) -> None:
        agent_connection, state = seated.agent_connection, self._topic.state
        if sent.source not in state.desired:
            self._refused(agent_connection, "report", f"source {sent.source[:80]!r} is none of this agent's")
            return
        lease = state.leases.get(sent.source)
        if lease is None or not lease.admits(agent_connection.agent.name, sent.epoch):
            self._withdraw(state, seated, sent.source, sent.epoch)
            return
        seated.runs[sent.source] = sent.epoch
        try:
            position = orjson.loads(sent.position) if 0 < len(sent.position) <= _POSITION else None
            reported = Reported(
                agent=agent_connection.agent.name, source=sent.source, epoch=sent.epoch, version=sent.version,
                status=_WORDS[sent.progress], reason=sent.reason[:2000], hash=sent.hash[:64], narrowed=sent.narrowed,
                position=position if isinstance(position, dict) else None, at_ms=self._now_ms(),
            )  # fmt: skip
        except (KeyError, ValueError) as error:
            self._refused(agent_connection, "report", f"no report: {error!r}")
            return
        self._topic.send(reported_record(reported))

    def _map(self, seated: _Seated, part: MapPart) -> None:
        agent, place = seated.agent_connection.agent.name, (part.connection, part.database)
        if part.gone:
            self._topic.send(map_over(agent, *place))
            return
        content = seated.parts.setdefault(place, bytearray())
        content += part.content
        own = sum(map(len, seated.parts.values()))
        if own > _MAP or len(seated.parts) > 64 or self._half_reported() > _MAPS:
            self._refused(
                seated.agent_connection, "map", f"more than {_MAP} bytes, or of many at once: {part.database[:80]!r}"
            )
            seated.parts.clear()
            seated.agent_connection.end("its map is too large")
        elif part.last:
            try:
                seen = unpacked(bytes(seated.parts.pop(place)), agent, part.connection)
            except (LookupError, TypeError, ValueError) as error:
                self._refused(seated.agent_connection, "map", f"no map: {error!r}"[:200])
            else:
                self._topic.send(map_record(seen))

    def _half_reported(self) -> int:
        return sum(len(part) for seated in self._connections.values() for part in seated.parts.values())

    def _refused(self, agent_connection: AgentConnection, what: str, why: str) -> None:
        self._audit.line({"what": what, "who": agent_connection.agent.uri, "outcome": "refused", "why": why})

    def _line(self, what: str, on: str, how: str) -> None:
        self._audit.line({"what": what, "who": self.name, "on": on, "outcome": "done", "how": how})


def plain(gateway: str) -> str:
    """A gateway's name without what tells its processes apart."""
    return gateway.partition("#")[0]


def why_not(state: FleetState, source: str, agent: str) -> str:
    """Why an agent has a source no more, in words."""
    spec = state.spec(source)
    if spec is None:
        return "the source is no more"
    if not spec.running:
        return "the source is stopped"
    if agent not in spec.agents:
        return "the source is for other agents"
    return "the agent is drained" if state.is_drained("agents", agent) else "another agent, or gateway, has it"


def claim_again(lease: Lease, claim: str) -> Lease:
    """The same agent at the next epoch: it begins a session anew."""
    return replace(lease, epoch=lease.epoch + 1, claim=claim)
