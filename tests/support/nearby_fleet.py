"""The fleet's topics in memory, and agent connections that remember their commands, for tests of coordinators and
commands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc.model.errors import Retriable
from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.state import FleetState, StateRecord, folded


@dataclass
class NearbyTopic:
    """Implements `interfaces.StateTopic` over an append-only list; `before_write` may insert a record before
    another."""

    records: list[StateRecord] = field(default_factory=list)
    unavailable: bool = False
    before_write: Callable[[StateRecord], None] = lambda record: None

    _folded: tuple[int, FleetState] = (0, FleetState())

    @property
    def state(self) -> FleetState:
        read, state = self._folded
        if read < len(self.records):
            self._folded = len(self.records), folded(state, self.records[read:])
        return self._folded[1]

    def fresh(self) -> FleetState:
        self._there()
        return self.state

    def write(self, *records: StateRecord) -> FleetState:
        self._there()
        for record in records:
            self.before_write(record)
        self.records += records
        return self.fresh()

    def send(self, record: StateRecord) -> None:
        self._there()
        self.records.append(record)

    def _there(self) -> None:
        if self.unavailable:
            raise Retriable("Kafka is unavailable")


@dataclass
class NearbyAudit:
    """Implements `interfaces.Audit`."""

    lines: list[Mapping[str, Any]] = field(default_factory=list)
    unavailable: bool = False

    @property
    def outcomes(self) -> list[Mapping[str, Any]]:
        """Return the lines without those that say that a command begins."""
        return [line for line in self.lines if line["outcome"] != "begun"]

    def line(self, said: Mapping[str, Any]) -> None:
        self.lines.append(said)

    def sure(self, said: Mapping[str, Any]) -> None:
        if self.unavailable:
            raise Retriable("Kafka: cannot write to the audit log")
        self.lines.append(said)

    def newest(self, count: int) -> Sequence[Mapping[str, Any]]:
        return self.lines[-count:]


@dataclass
class NearbyConnection:
    """Implements `AgentConnection`; `holds` are the sources that the agent must capture: epoch and
    version."""

    agent: FleetIdentity
    holds: dict[str, tuple[int, int]] = field(default_factory=dict)
    specs: dict[str, bytes] = field(default_factory=dict)
    keys: dict[str, int] = field(default_factory=dict)  # the type of each assignment
    why: dict[str, str] = field(default_factory=dict)
    ended: str = ""
    full: bool = False

    def send(self, request: StreamRequest) -> None:
        if request.HasField("assign"):
            reported = request.assign
            self.holds[reported.source], self.specs[reported.source] = (reported.epoch, reported.version), reported.spec
            self.keys[reported.source] = request.type
        else:
            source = request.withdraw.source
            self.why[source] = request.withdraw.why
            if source in self.holds and self.holds[source][0] <= request.withdraw.epoch:
                del self.holds[source]

    def end(self, why: str) -> None:
        self.ended = why


def agent_connection(name: str, tenant: str = "acme") -> NearbyConnection:
    """Create the connection of an agent."""
    return NearbyConnection(FleetIdentity(tenant, "agents", name))
