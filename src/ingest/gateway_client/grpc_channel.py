"""Session channel on a stream: calls with answers, and records whose flow the gateway limits by credit.

The stream's reader thread passes replies to the channel. One other thread makes the calls.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import orjson

from cdc.model.errors import Fatal, Retriable, TailorbirdError
from ingest.fleet.answers import error_of
from ingest.fleet.fleet_pb2 import Empty, LogCall, LogReply, Records
from ingest.fleet.wire import FIRST

MOST_BYTES = 64 * 1024 * 1024  # of one answer, unless a policy sets another limit
_RAISE = "if this gateway is correct, raise answer_bytes under limits: in the agent's policy"
_NO_POLICY = "if this gateway is correct, capture the source with `tailorbird agent`: its policy sets answer_bytes"
_UNZIPPED = 16  # times as many bytes may records contain that are sent compressed
_TIMEOUT = 120.0  # seconds to wait for an answer: within a call, the gateway may wait for Kafka twice


class SessionChannel:
    """Channel `number` of a stream. `send` sends a call, and raises Retriable if the stream has ended.

    `unasked` receives replies that are no answer to a call. `most` is the policy's limit for the bytes of an answer;
    without a policy it is `MOST_BYTES`.
    """

    def __init__(
        self,
        number: int,
        send: Callable[[LogCall], None],
        unasked: Callable[[LogReply], None] = lambda reply: None,
        most: int | None = None,
    ) -> None:
        self.number, self._send, self._unasked = number, send, unasked
        self._most, self._remedy = (MOST_BYTES, _NO_POLICY) if most is None else (most, _RAISE)
        self._heard = threading.Condition()
        self._credit = FIRST
        self._calls = 0
        self._answers: dict[int, bytearray] = {}
        # messages of records before an answer, and the bytes that they have and that they contain
        self._records: dict[int, deque[Records]] = {}
        self._sizes: dict[int, tuple[int, int]] = {}
        self._done = set[int]()
        self._failures: dict[int, TailorbirdError] = {}
        self._over: TailorbirdError | None = None
        self.uncommitted = False  # records were sent since the last commit
        self.takes_parts = False  # the gateway accepts checkpoints in parts
        self.takes_records = False  # the gateway sends the history and the schemas as records

    def report(self, **what: Any) -> None:
        """Send a call that has no answer. Raises the error that ended the channel, if any."""
        if self._over is not None:
            raise self._over
        self._send(LogCall(channel=self.number, **what))

    def ask(self, **what: Any) -> Any:
        """Make a call and return its answer. Raises the error that the gateway returns, or Retriable after a
        timeout."""
        return self.answered(self.begin(**what))

    def begin(self, **what: Any) -> int:
        """Send a call and return its number, for `answered`."""
        with self._heard:
            if self._over is not None:
                raise self._over
            self._calls += 1
            number = self._calls
            self._answers[number] = bytearray()
        self._send(LogCall(channel=self.number, call=number, **what))
        return number

    def answered(self, call: int) -> Any:
        """Wait for the answer to a call, and return it.

        Raises the error that the gateway answers, or Retriable if no answer arrives in time.
        """
        with self._heard:
            in_time = self._heard.wait_for(lambda: self.arrived(call), _TIMEOUT)
            failure = self._failures.pop(call, None) or (self._over if call not in self._done else None)
            content = self._answers.pop(call)
            self._done.discard(call)
        if failure is not None:
            raise failure
        if not in_time:
            raise Retriable("the gateway does not answer")
        return orjson.loads(content)

    def records(self, call: int) -> Iterator[Records]:
        """Yield the messages of records that arrived before the answer to a call, and forget them one by one."""
        found = self._records.pop(call, deque[Records]())
        self._sizes.pop(call, None)
        while found:
            yield found.popleft()

    def arrived(self, call: int) -> bool:
        """Return whether the answer to a call has arrived, or can no longer arrive."""
        return call in self._done or call in self._failures or self._over is not None

    def spend(self, size: int) -> None:
        """Wait until credit is left, then subtract `size` bytes from it. One message may make the credit negative.

        Raises Retriable if no credit arrives in time, or the error that ended the channel.
        """
        with self._heard:
            if not self._heard.wait_for(lambda: self._credit > 0 or self._over is not None, _TIMEOUT):
                raise Retriable("the gateway accepts no records")
            if self._over is not None:
                raise self._over
            self._credit -= size

    def close(self) -> None:
        """Close the channel, also after a failure. The gateway aborts records that are not committed."""
        with suppress(TailorbirdError):  # the end of a stream has the same effect
            self._send(LogCall(channel=self.number, close=Empty()))

    def hear(self, reply: LogReply) -> None:
        """Process a reply of the gateway. Call it in the order of arrival."""
        what = reply.WhichOneof("what")
        if what in ("found", "search_end"):
            self._unasked(reply)
            return
        with self._heard:
            if what == "credit":
                self._credit += reply.credit
            elif what == "part" and reply.call in self._answers:
                answer = self._answers[reply.call]
                if len(answer) + len(reply.part.content) > self._most:
                    answer.clear()
                    self._refuse(self._most)
                elif self._over is None and reply.call not in self._done:
                    answer += reply.part.content
                if reply.part.last and self._over is None:  # otherwise the answer may be incomplete
                    self._done.add(reply.call)
            elif what == "records" and reply.call in self._answers and reply.call not in self._done:
                self._keep(reply.call, reply.records)
            elif what == "failure":
                error = error_of(reply.failure)
                if reply.call in self._answers:
                    self._failures[reply.call] = error
                self._over = self._over or error
            self._heard.notify_all()

    def _keep(self, call: int, records: Records) -> None:
        """Keep a message of records. Compressed, all of an answer may have as many bytes as any answer."""
        size, contained = self._sizes.get(call, (0, 0))
        size, contained = self._sizes[call] = size + len(records.frames), contained + records.size
        if size > self._most or contained > _UNZIPPED * self._most:
            self._records.pop(call, None)
            self._refuse(self._most if size > self._most else _UNZIPPED * self._most)
        elif self._over is None:
            self._records.setdefault(call, deque()).append(records)

    def _refuse(self, most: int) -> None:
        self._over = self._over or Fatal(f"an answer of the gateway has more than {most} bytes", self._remedy)

    def end(self, error: TailorbirdError) -> None:
        """Fail all calls, because the stream has ended."""
        with self._heard:
            self._over = self._over or error
            self._heard.notify_all()
