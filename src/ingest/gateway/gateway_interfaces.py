"""Interfaces of a gateway: the fleet's topics, and an agent's stream as the coordinator uses it."""

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
        """Return the state read so far; never blocks."""

    def fresh(self) -> FleetState:
        """Wait for all records that the topic contains now, and return the state."""

    def write(self, *records: StateRecord) -> FleetState:
        """Write records and return the state after them. Records of other gateways may be in between."""

    def send(self, record: StateRecord) -> None:
        """Write a record asynchronously, after all records sent before; never blocks."""


class Audit(Protocol):
    """The audit log. It adds the time to each line."""

    def line(self, entry: Mapping[str, Any]) -> None:
        """Write a line asynchronously; never blocks."""

    def sure(self, entry: Mapping[str, Any]) -> None:
        """Write a line and wait for it. Raises Retriable if it cannot be written."""

    def newest(self, count: int) -> Sequence[Mapping[str, Any]]:
        """Return the last lines, oldest first. Raises Retriable while they cannot be read."""


class AgentConnection(Protocol):
    """The stream of an agent that accepts assignments."""

    @property
    def agent(self) -> FleetIdentity: ...

    def send(self, request: StreamRequest) -> None:
        """Send a command, before any answer to a session channel.

        Never blocks. The stream of an agent that reads nothing ends.
        """

    @property
    def full(self) -> bool:
        """Return whether so much is queued that further commands should wait."""

    def end(self, why: str) -> None:
        """End the stream. The agent may connect again."""
