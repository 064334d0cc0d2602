"""What a gateway works with and what stands behind it: the fleet's topics, and a stream as the steward has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ingest.fleet.fleet_pb2 import StreamRequest
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.state import FleetState, StateRecord


class StateTopic(Protocol):
    """The fleet's topic; every method raises Retriable while it is away."""

    @property
    def state(self) -> FleetState:
        """What was read so far; never waits."""

    def fresh(self) -> FleetState:
        """What holds now: all that was in the topic when this was called."""

    def write(self, *records: StateRecord) -> FleetState:
        """Write records, and what holds behind them; others' records may stand between."""

    def send(self, record: StateRecord) -> None:
        """Write a record sometime soon, in order behind those that were sent before; never waits."""


class Audit(Protocol):
    """Who did what; each line gets its time here."""

    def line(self, said: Mapping[str, Any]) -> None:
        """Keep a line sometime soon; never waits."""

    def sure(self, said: Mapping[str, Any]) -> None:
        """Keep a line; Retriable where it can not be kept."""

    def newest(self, count: int) -> Sequence[Mapping[str, Any]]:
        """The last lines, oldest first; Retriable while they can not be read."""


class AgentConnection(Protocol):
    """One stream of an agent that wants to be commanded."""

    @property
    def agent(self) -> FleetIdentity: ...

    def say(self, request: StreamRequest) -> None:
        """Send it, before any answer to a lane; never waits: an agent that takes nothing loses its stream."""

    @property
    def full(self) -> bool:
        """Whether it has so much to take that what can wait had better be said later."""

    def end(self, why: str) -> None:
        """End the stream; the agent may dial again."""
