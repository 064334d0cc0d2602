"""One session's lane over a stream: calls that are answered, records that are paid with credit.

The stream's reader tells the lane what it hears, in a thread of its own; one other thread works with the lane.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson

from cdc.model.errors import Retriable, TailorbirdError
from ingest.fleet.answers import error_of
from ingest.fleet.fleet_pb2 import Empty, LogCall, LogReply
from ingest.fleet.wire import FIRST

_TIMEOUT = 120.0  # seconds: the gateway itself waits for Kafka twice


class SessionChannel:
    """Number `number` of a stream; `send` hands a call over to it, and raises Retriable when it has ended."""

    def __init__(
        self, number: int, send: Callable[[LogCall], None], unasked: Callable[[LogReply], None] = lambda reply: None
    ) -> None:
        self.number, self._send, self._unasked = number, send, unasked
        self._heard = threading.Condition()
        self._credit = FIRST
        self._calls = 0
        self._answers: dict[int, bytearray] = {}
        self._done = set[int]()
        self._failures: dict[int, TailorbirdError] = {}
        self._over: TailorbirdError | None = None
        self.uncommitted = False  # whether records were sent that no commit covers

    def report(self, **what: Any) -> None:
        """A call without an answer; raises what ended the lane."""
        if self._over is not None:
            raise self._over
        self._send(LogCall(channel=self.number, **what))

    def ask(self, **what: Any) -> Any:
        """A call's answer; raises what the log raised, or Retriable where none comes in time."""
        return self.answered(self.begin(**what))

    def begin(self, **what: Any) -> int:
        """A call whose answer is fetched later, by its number."""
        with self._heard:
            if self._over is not None:
                raise self._over
            self._calls += 1
            number = self._calls
            self._answers[number] = bytearray()
        self._send(LogCall(channel=self.number, call=number, **what))
        return number

    def answered(self, call: int) -> Any:
        """Wait for the answer of a call that was begun."""
        with self._heard:
            there = self._heard.wait_for(lambda: self.arrived(call), _TIMEOUT)
            failure = self._failures.pop(call, None) or (self._over if call not in self._done else None)
            content = self._answers.pop(call)
            self._done.discard(call)
        if failure is not None:
            raise failure
        if not there:
            raise Retriable("the gateway does not answer")
        return orjson.loads(content)

    def arrived(self, call: int) -> bool:
        """Whether the answer of a call is here, or will never be."""
        return call in self._done or call in self._failures or self._over is not None

    def spend(self, size: int) -> None:
        """Wait until so many bytes may be sent: until any credit is left, so that one piece may overdraw it."""
        with self._heard:
            if not self._heard.wait_for(lambda: self._credit > 0 or self._over is not None, _TIMEOUT):
                raise Retriable("the gateway takes no records")
            if self._over is not None:
                raise self._over
            self._credit -= size

    def close(self) -> None:
        """Have the desk give up what is uncommitted, and forget the lane; also where it has failed."""
        with suppress(TailorbirdError):  # a stream that has ended did so
            self._send(LogCall(channel=self.number, close=Empty()))

    def hear(self, reply: LogReply) -> None:
        """What the gateway says, in order."""
        what = reply.WhichOneof("what")
        if what in ("found", "search_end"):
            self._unasked(reply)
            return
        with self._heard:
            if what == "credit":
                self._credit += reply.credit
            elif what == "part" and reply.call in self._answers:
                self._answers[reply.call] += reply.part.content
                if reply.part.last:
                    self._done.add(reply.call)
            elif what == "failure":
                error = error_of(reply.failure)
                if reply.call in self._answers:
                    self._failures[reply.call] = error
                self._over = self._over or error
            self._heard.notify_all()

    def end(self, error: TailorbirdError) -> None:
        """The stream has ended: nothing is answered any more."""
        with self._heard:
            self._over = self._over or error
            self._heard.notify_all()
