"""Interfaces inside a gateway: the fleet's topics, and the stream of an agent as the coordinator uses it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.state import FleetState, StateRecord


class StateTopic(Protocol):
    """The fleet's topic. Every method raises Retriable while Kafka is unavailable."""

    @property
    def state(self) -> FleetState:
        """Return the state after the records read so far. Never blocks."""

    def fresh(self) -> FleetState:
        """Wait until all records that the topic contains now are read, and return the state."""

    def write(self, *records: StateRecord) -> FleetState:
        """Write records, wait until they are read back, and return the state. Other gateways' records may be in
        between."""

    def send(self, record: StateRecord) -> None:
        """Write a record asynchronously, after all records sent before; never blocks."""


class Audit(Protocol):
    """The audit log. It adds the time to each line."""

    def line(self, entry: Mapping[str, Any]) -> None:
        """Write a line asynchronously. Never blocks."""

    def sure(self, entry: Mapping[str, Any]) -> None:
        """Write a line and wait until Kafka has stored it. Raises Retriable if that fails."""

    def newest(self, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the last `count` lines, oldest first. Raises Retriable if they cannot be read."""


class AgentConnection(Protocol):
    """The stream of an agent that accepts assignments."""

    @property
    def agent(self) -> FleetIdentity: ...

    def send(self, request: StreamRequest) -> None:
        """Send a command; it overtakes answers to session channels.

        Never blocks. If the agent does not read, its stream is ended.
        """

    @property
    def full(self) -> bool:
        """Return whether so much is queued for the agent that further commands should wait."""

    def end(self, why: str) -> None:
        """End the stream. The agent may connect again."""
