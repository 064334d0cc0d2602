"""A desk: does for one session of one source, at its lane's end, what its agent asks of the log.

The log behind it carries the guarantee (`ingest.log.kafka_log`). The desk adds that nothing passes in silence: a commit
that does not cover as many records as have come, or half of one, gives up the session; so does a record that the source
may not write. It works in a thread of its own, since the log waits, and the stream must not.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

import structlog

from cdc.model.errors import Fatal, Retriable, TailorbirdError
from ingest.fleet.answers import checkpoint_of, failure_of, parts_of, recovered_json
from ingest.fleet.fleet_pb2 import Found, FoundRecord, LogCall, LogReply, SearchEnd
from ingest.fleet.frames import PIECE, SAME, FrameReader, unzipped
from ingest.fleet.permits import Permits
from ingest.gateway.proc_credit import ChannelCredit, CreditBudget
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record
from ingest.records.findings import Search

Reply = Callable[[LogReply], None]  # raises Retriable when the agent is gone
_FOUND = 256 * 1024  # bytes of records in one message, and of a record's value
_HEAD = 16  # bytes that a record costs beside its key and value
_CALLS, _CALLED = 1024, 4 * 1024 * 1024  # calls that wait, and bytes of those that are no records
_ZIPPED = 1024  # bytes
TIMEOUT, _POLL = 30.0, 0.05  # seconds
_SEARCHES = 64  # under way at a time
_LOOK = "look into the gateway's log"

_lines = structlog.get_logger()


class Improper(Fatal):
    """What no agent of ours would ask: it ends the session, and has its line in the audit."""


class SignalValues(Protocol):
    """Where the signals to a source come from, as they were written."""

    def values(self, start: int | None) -> tuple[list[Mapping[str, Any]], int | None]:
        """As `signals.Signals.read`, unread."""

    def close(self) -> None:
        """Forget the connection."""


class SessionLog(OpenLog, Protocol):
    """A log that tells how much of what it has taken is still on its way."""

    def undelivered(self, seconds: float = 0.0) -> int:
        """Records that are not safe in the log yet, after waiting so long at most that some become so."""


class Opened(Protocol):
    """A source of the gateway's: its log opens once per session; UsageError from `log` and `signals` is the agent's."""

    @property
    def name(self) -> str: ...

    @property
    def permits(self) -> Permits: ...

    def log(self) -> SessionLog: ...

    def signals(self) -> SignalValues: ...


class SessionHandler:
    """Of one lane; `refused` is told what was not done, and why, for the audit."""

    def __init__(
        self, source: Opened, channel: int, reply: Reply, refused: Callable[[str], None], budget: CreditBudget
    ) -> None:
        self._source, self._channel, self._reply, self._refused = source, channel, reply, refused
        self._calls: queue.SimpleQueue[LogCall | None] = queue.SimpleQueue()
        self._credit = ChannelCredit(budget)
        self._came, self._done = 0, 0  # bytes of calls that are no records; each is counted in one thread
        self._frames = FrameReader()
        self._log: SessionLog | None = None
        self._signals: SignalValues | None = None
        self._searches: dict[int, Relay] = {}
        self._known = range(1, 1)  # numbers of searches so far
        self._left = False
        self.uncommitted = False  # whether the log has records that wait for their commit

    @property
    def source(self) -> str:
        """The source's name."""
        return self._source.name

    def put(self, call: LogCall | None) -> str:
        """Hand the next call over, never waiting; None: the stream has ended. Why it is too much; empty: it is not."""
        if call is None:
            self._left = True
            self._calls.put(None)
            return ""
        if call.WhichOneof("what") == "records":
            size, sent = call.records.size, len(call.records.frames)
            if not self._credit.came(size) or sent > size + size // 128 + _ZIPPED:  # so much longer it can become
                return "records without credit"
        else:
            self._left = self._left or call.WhichOneof("what") == "close"
            self._came += call.ByteSize()
        if self._came - self._done > _CALLED or self._calls.qsize() >= _CALLS:
            return "more calls than a lane may have"
        self._calls.put(call)
        return ""

    def run(self) -> None:
        """Work until the lane is closed or fails; what is uncommitted then is given up."""
        try:
            while (call := self._calls.get()) is not None and call.WhichOneof("what") != "close":
                try:
                    self._do(call)
                    if call.WhichOneof("what") != "records":
                        self._done += call.ByteSize()
                except TailorbirdError as error:
                    if isinstance(error, Improper):
                        self._refused(error.message)
                    self._say(call.call, failure=failure_of(error))
                    return
                except Exception as error:  # noqa: BLE001  # told: its agent would wait for an answer in vain
                    _lines.exception("a session ended of a bug", source=self._source.name)
                    self._say(call.call, failure=failure_of(Retriable(f"{type(error).__name__}, a bug: {_LOOK}")))
                    return
        except Retriable:
            return  # nobody is there to be told
        finally:
            for relay in self._searches.values():
                relay.given_up = True
            for opened in (self._log, self._signals):
                if opened is not None:
                    opened.close()
            self._credit.close()

    def _say(self, call: int, **what: Any) -> None:
        self._reply(LogReply(channel=self._channel, call=call, **what))

    def _do(self, call: LogCall) -> None:
        what = call.WhichOneof("what")
        if what == "recover":
            if self._log is not None:
                raise Improper("a session recovers once")
            self._log = self._source.log()
            if self._left:  # Kafka was away for long: whoever came since must not be locked out by this one
                raise Retriable("its agent has left")
            self._answer(call, recovered_json(self._log.recover(), self._source.name))
        elif what == "signals":
            self._signals = self._signals or self._source.signals()
            values, behind = self._signals.values(call.signals.start if call.signals.HasField("start") else None)
            self._answer(call, {"values": values, "next": behind})
        elif what == "stop_search":
            if call.stop_search not in self._known:
                raise Improper(f"no search has number {call.stop_search}")
            if (relay := self._searches.get(call.stop_search)) is not None:
                relay.given_up = True
        else:
            self._work(call, what, self._opened)

    @property
    def _opened(self) -> SessionLog:
        if self._log is None:
            raise Improper("a session recovers before anything else")
        return self._log

    def _work(self, call: LogCall, what: str | None, log: SessionLog) -> None:
        if what == "records":
            self._take(call.records.frames, call.records.size, log)
        elif what == "commit":
            if call.commit.records != self._frames.records or not self._frames.complete:
                reported = f"{call.commit.records} records were sent, {self._frames.records} have come"
                if not self._frames.complete:
                    reported += ", and half of one"
                self._refused(reported)
                raise Retriable(f"{reported}: the session begins anew")
            log.commit(self._checkpoint(call.commit.checkpoint))
            self._credit.delivered(self._frames.records)
            self._credit.paused()
            self.uncommitted = False
            self._answer(call, None)
        elif what == "restate":
            self.uncommitted = True
            log.restate(())
        elif what == "history":
            self._answer(call, log.history())
        elif what == "kept":
            self._answer(call, log.kept())
        elif what == "ensure_topic":
            if not self._source.permits.topic(call.ensure_topic):
                self._refuse(f"topic {call.ensure_topic}")
            log.ensure_topic(call.ensure_topic)
            self._answer(call, None)
        elif what == "search":
            self._search(call, log)
        elif what == "abort":
            log.abort()
            self.uncommitted = False
            self._credit.dropped()
            self._frames = FrameReader()
        else:
            raise Improper(f"this gateway knows no call {what}", "update the gateway")

    def _take(self, frames: bytes, size: int, log: SessionLog) -> None:
        if not 0 < size <= PIECE:
            raise Improper(f"a message of {size} bytes of records", f"at most {PIECE} are taken at a time")
        try:
            piece = unzipped(frames, size)
        except ValueError as error:
            raise Improper("what came over the stream are no records", SAME) from error
        records = self._records(piece)
        permitted = self._source.permits.record
        for record in records:
            if not permitted(record):
                self._refuse(f"a record of topic {record.topic} under key {record.key[:80]!r}")
        self.uncommitted = True
        log.extend(records)
        unfinished = 0 if self._frames.complete else 1  # a record of which there is only a part
        if credit := self._credit.taken(size, self._frames.records + unfinished):
            self._say(0, credit=credit)
        self._settle(log)

    def _settle(self, log: SessionLog) -> None:
        """Wait until Kafka has so much that the gateway's budget holds the rest; some is always let be on its way."""
        deadline = time.monotonic() + TIMEOUT
        self._credit.delivered(self._frames.records - log.undelivered())
        while self._credit.must_wait and (left := log.undelivered(_POLL)):
            self._credit.delivered(self._frames.records - left)
            if time.monotonic() > deadline:
                raise Retriable("Kafka takes no records")

    def _checkpoint(self, reported: bytes) -> Checkpoint:
        try:
            return checkpoint_of(reported)
        except (LookupError, TypeError, ValueError) as error:
            raise Improper(f"a commit at no position: {error!r}"[:300], SAME) from error

    def _records(self, piece: bytes) -> list[Record]:
        try:
            return self._frames.read(piece)
        except Fatal as error:
            raise Improper(error.message, error.hint) from error

    def _refuse(self, what: str) -> NoReturn:
        raise Improper(f"source {self._source.name} may not write {what[:300]}", "see the gateway's topology")

    def _search(self, call: LogCall, log: OpenLog) -> None:
        asked = call.search
        if not self._source.permits.topic(asked.topic):
            self._refuse(f"or read topic {asked.topic}")
        if asked.number != self._known.stop:
            raise Improper(f"search {asked.number} behind {self._known.stop - 1}", SAME)
        self._known = range(1, asked.number + 1)
        self._searches = {number: one for number, one in self._searches.items() if not one.ended}
        if len(self._searches) >= _SEARCHES:
            raise Improper(f"more than {_SEARCHES} searches at a time")
        relay = Relay(asked.topic, asked.number, lambda **what: self._say(0, **what))
        relay.begin = dict(asked.begin)
        self._searches[asked.number] = relay
        log.search(relay)

    def _answer(self, call: LogCall, answer: Any) -> None:
        for part in parts_of(answer):
            self._say(call.call, part=part)


class Relay(Search):
    """A search whose records go to the agent that looks for something in them."""

    def __init__(self, topic: str, number: int, say: Callable[..., None]) -> None:
        self._number, self._say = number, say
        self._records, self._size = list[FoundRecord](), 0
        self._done = False
        self._failed: BaseException | None = None
        super().__init__(topic, (), (), 0)

    def see(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Every record goes on, in parts where it is large."""
        at, whole = 0, len(value or b"")
        while True:
            part = None if value is None else value[at : at + _FOUND]
            at += _FOUND
            self._records.append(FoundRecord(partition=partition, key=key, value=part, more=at < whole))
            self._size += len(key) + len(part or b"") + _HEAD
            if self._size > _FOUND:
                self._reported()
            if at >= whole or self.given_up:
                return

    def _reported(self) -> None:
        records, self._records, self._size = self._records, [], 0
        if not records:
            return
        try:
            self._say(found=Found(search=self._number, records=records))
        except Retriable:
            self.given_up = True

    @property
    def ended(self) -> bool:
        """Whether nobody reads for it any more."""
        return self._done or self._failed is not None

    @property
    def done(self) -> bool:
        """Set by whoever has read the topic: then the agent is told where it ended."""
        return self._done

    @done.setter
    def done(self, done: bool) -> None:
        self._done = done
        if done:
            self._reported()
            self._end(SearchEnd(search=self._number, begin=self.begin))

    @property
    def failed(self) -> BaseException | None:
        """Set by whoever could not read it."""
        return self._failed

    @failed.setter
    def failed(self, error: BaseException | None) -> None:
        self._failed = error
        if error is not None:
            known = error if isinstance(error, TailorbirdError) else Fatal(f"search {self.topic}: {error!r}")
            self._end(SearchEnd(search=self._number, failure=failure_of(known)))

    def _end(self, end: SearchEnd) -> None:
        try:
            self._say(search_end=end)
        except Retriable:
            self.given_up = True
