"""Session handler of a gateway: it executes the calls of one session of one source on the Kafka change log.

The change log provides exactly-once delivery (`ingest.log.kafka_log`). The session handler verifies the transport. It
ends the session if a commit covers another number of records than arrived, or an incomplete record, and if a record is
not one that the source may write. It has its own thread, because the change log blocks and the stream must not.
"""

from __future__ import annotations

import queue
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, Protocol

import structlog

from cdc.model.errors import Fatal, Retriable, TailorbirdError
from cdc.model.event import Position
from ingest.fleet.answers import checkpoint_of, failure_of, parts_of, recovered_json
from ingest.fleet.fleet_pb2 import Commit, Found, FoundRecord, LogCall, LogReply, Records, SearchEnd
from ingest.fleet.frames import PIECE, SAME, FrameReader, unzipped
from ingest.fleet.permits import Permits
from ingest.fleet.stored_records import rest_json, sent
from ingest.gateway.proc_credit import ChannelCredit, CreditBudget
from ingest.records.capture_interfaces import Checkpoint, OpenLog, Record, Recovered, SessionLog
from ingest.records.checkpoint_changes import changed_checkpoint
from ingest.records.findings import Search

Reply = Callable[[LogReply], None]  # sends a reply; raises Retriable if the agent has disconnected
_FOUND = 256 * 1024  # maximum bytes of records in one message, and of a record's value
_HEAD = 16  # bytes of overhead of a record
# maximum number of queued calls, and maximum bytes of queued calls that contain no records
_CALLS, _CALLED = 1024, 4 * 1024 * 1024
_ZIPPED = 1024  # bytes
TIMEOUT, _POLL = 30.0, 0.05  # seconds
_SEARCHES = 64  # at a time
LONGEST_CHECKPOINT = 8 * 1024 * 1024  # bytes
_LOOK = "see the gateway's log"
_NOTHING = Checkpoint(position=Position(file="", pos=0, gtid_set="", sequence=0), snapshot="done", ts_ms=0)

_lines = structlog.get_logger()


class ProtocolViolation(Fatal):
    """A call that a correct agent never makes. It ends the session and is audited."""


class SignalValues(Protocol):
    """The signals to a source as JSON values, which the agent decodes."""

    def values(self, start: int | None) -> tuple[list[Mapping[str, Any]], int | None]:
        """Return the signals since an offset (None: only new ones) and the next offset, as `signals.Signals.read`
        does."""

    def close(self) -> None:
        """Close the connection."""


class ServedSource(Protocol):
    """A source that the gateway writes to Kafka. `log` is opened once per session.

    If `log` or `signals` raises UsageError, the agent receives it.
    """

    @property
    def name(self) -> str: ...

    @property
    def permits(self) -> Permits: ...

    def log(self) -> SessionLog: ...

    def signals(self) -> SignalValues: ...


class SessionHandler:
    """Handler of one session channel. `reply` sends an answer; `refused` audits the reason of each refused call."""

    def __init__(
        self, source: ServedSource, channel: int, reply: Reply, refused: Callable[[str], None], budget: CreditBudget
    ) -> None:
        self._source, self._channel, self._reply, self._refused = source, channel, reply, refused
        self._calls: queue.SimpleQueue[LogCall | None] = queue.SimpleQueue()
        self._credit = ChannelCredit(budget)
        # bytes of queued calls without records: added by one thread, removed by another
        self._received, self._done = 0, 0
        self._frames = FrameReader()
        self._checkpoint, self._committed = bytearray(), _NOTHING  # parts of the next one; the session's last one
        self._log: SessionLog | None = None
        self._signals: SignalValues | None = None
        self._searches: dict[int, Relay] = {}
        self._known = range(1, 1)  # numbers of all searches
        self._left = False
        self.uncommitted = False  # the log contains records that are not committed

    @property
    def source(self) -> str:
        """Return the source's name."""
        return self._source.name

    def put(self, call: LogCall | None) -> str:
        """Queue the next call without blocking; None: the stream has ended.

        Returns why the agent has exceeded a limit; empty if it has not.
        """
        if call is None:
            self._left = True
            self._calls.put(None)
            return ""
        if call.WhichOneof("what") == "records":
            size, sent = call.records.size, len(call.records.frames)
            if not self._credit.receive(size) or sent > size + size // 128 + _ZIPPED:  # zstd's worst case
                return "records without credit"
        else:
            self._left = self._left or call.WhichOneof("what") == "close"
            self._received += call.ByteSize()
        if self._received - self._done > _CALLED or self._calls.qsize() >= _CALLS:
            return "too many queued calls on a session channel"
        self._calls.put(call)
        return ""

    def run(self) -> None:
        """Execute calls until the channel is closed or fails. Then abort records that are not committed."""
        try:
            while (call := self._calls.get()) is not None and call.WhichOneof("what") != "close":
                try:
                    self._do(call)
                    if call.WhichOneof("what") != "records":
                        self._done += call.ByteSize()
                except TailorbirdError as error:
                    if isinstance(error, ProtocolViolation):
                        self._refused(error.message)
                    self._send(call.call, failure=failure_of(error))
                    return
                except Exception as error:  # noqa: BLE001  # reported: its agent waits for an answer
                    _lines.exception("a session ended: internal error", source=self._source.name)
                    self._send(call.call, failure=failure_of(Retriable(f"{type(error).__name__}: {_LOOK}")))
                    return
        except Retriable:
            return  # the agent has disconnected
        finally:
            for relay in self._searches.values():
                relay.given_up = True
            for opened in (self._log, self._signals):
                if opened is not None:
                    opened.close()
            self._credit.close()

    def _send(self, call: int, **what: Any) -> None:
        self._reply(LogReply(channel=self._channel, call=call, **what))

    def _do(self, call: LogCall) -> None:
        what = call.WhichOneof("what")
        if what == "recover":  # an agent of the previous release
            self._answer(call, recovered_json(self._recover(), self._source.name))
        elif what == "recover_records":
            found = self._recover()
            self._send_stored(call, sent(found.history, found.schemas.values()))
            self._answer(call, rest_json(found, self._source.name))
        elif what == "signals":
            self._signals = self._signals or self._source.signals()
            values, following = self._signals.values(call.signals.start if call.signals.HasField("start") else None)
            self._answer(call, {"values": values, "next": following})
        elif what == "stop_search":
            if call.stop_search not in self._known:
                raise ProtocolViolation(f"there is no search {call.stop_search}")
            if (relay := self._searches.get(call.stop_search)) is not None:
                relay.given_up = True
        else:
            self._work(call, what, self._opened)

    def _recover(self) -> Recovered:
        """Open the log and return what is committed."""
        if self._log is not None:
            raise ProtocolViolation("a session must recover only once")
        self._log = self._source.log()
        if self._left:  # Kafka was unavailable for long: do not fence a newer session that may have begun
            raise Retriable("its agent has disconnected")
        return self._log.recover()

    def _send_stored(self, call: LogCall, messages: Iterable[Records]) -> None:
        for records in messages:
            self._send(call.call, records=records)

    @property
    def _opened(self) -> SessionLog:
        if self._log is None:
            raise ProtocolViolation("a session must recover first")
        return self._log

    def _work(self, call: LogCall, what: str | None, log: SessionLog) -> None:
        if what == "records":
            self._take(call.records.frames, call.records.size, log)
        elif what == "commit" and call.commit.more:
            self._add_part(call.commit.checkpoint)
            self._answer(call, None)
        elif what == "commit":
            if call.commit.records != self._frames.records or not self._frames.complete:
                mismatch = f"{call.commit.records} records were sent, {self._frames.records} have arrived"
                if not self._frames.complete:
                    mismatch += ", and one is incomplete"
                self._refused(mismatch)
                raise Retriable(f"{mismatch}: the session starts again")
            checkpoint = self._whole(call.commit)
            log.commit(checkpoint)
            self._committed = checkpoint
            self._credit.delivered(self._frames.records)
            self._credit.commit()
            self.uncommitted = False
            self._answer(call, None)
        elif what == "restate":
            self.uncommitted = True
            log.restate(())
        elif what == "history":
            self._answer(call, log.history())
        elif what == "history_records":
            self._send_stored(call, sent(log.history()))
            self._answer(call, None)
        elif what == "kept":
            self._answer(call, log.kept())
        elif what == "ensure_topic":
            if not self._source.permits.topic(call.ensure_topic):
                self._refuse(f"topic {call.ensure_topic}")
            log.ensure_topic(call.ensure_topic)
            if call.call:  # an agent of the previous release waits
                self._answer(call, None)
        elif what == "search":
            self._search(call, log)
        elif what == "abort":
            log.abort()
            self.uncommitted = False
            self._credit.dropped()
            self._frames = FrameReader()
            self._checkpoint.clear()
        else:
            raise ProtocolViolation(f"this gateway does not know the call {what}", "update the gateway")

    def _take(self, frames: bytes, size: int, log: SessionLog) -> None:
        if not 0 < size <= PIECE:
            raise ProtocolViolation(f"a message has {size} bytes of records", f"send at most {PIECE} at a time")
        try:
            piece = unzipped(frames, size)
        except ValueError as error:
            raise ProtocolViolation("the bytes on the stream are not records", SAME) from error
        records = self._records(piece)
        permitted = self._source.permits.record
        for record in records:
            if not permitted(record):
                self._refuse(f"a record of topic {record.topic} under key {record.key[:80]!r}")
        self.uncommitted = True
        log.extend(records)
        unfinished = 0 if self._frames.complete else 1  # the last record has arrived only in part
        if credit := self._credit.accept(size, self._frames.records + unfinished):
            self._send(0, credit=credit)
        self._await_delivery(log)

    def _await_delivery(self, log: SessionLog) -> None:
        """Wait until unconfirmed records fit into the gateway's budget. A few may always be in flight per channel."""
        deadline = time.monotonic() + TIMEOUT
        self._credit.delivered(self._frames.records - log.undelivered())
        while self._credit.must_wait and (left := log.undelivered(_POLL)):
            self._credit.delivered(self._frames.records - left)
            if time.monotonic() > deadline:
                raise Retriable("Kafka accepts no records")

    def _add_part(self, part: bytes) -> None:
        """Add a part to the checkpoint of the next commit."""
        if len(self._checkpoint) + len(part) > LONGEST_CHECKPOINT:
            what = f"a checkpoint has more than {LONGEST_CHECKPOINT} bytes"
            raise ProtocolViolation(what, "capture fewer tables per source")
        self._checkpoint += part

    def _whole(self, commit: Commit) -> Checkpoint:
        """Return the checkpoint of a commit, with what other messages contained of it."""
        self._add_part(commit.checkpoint)
        content = bytes(self._checkpoint)
        self._checkpoint.clear()
        try:
            return changed_checkpoint(self._committed, content) if commit.changes else checkpoint_of(content)
        except (LookupError, TypeError, ValueError) as error:
            raise ProtocolViolation(f"a commit has an invalid position: {error!r}"[:300], SAME) from error

    def _records(self, piece: bytes) -> list[Record]:
        try:
            return self._frames.read(piece)
        except Fatal as error:
            raise ProtocolViolation(error.message, error.hint) from error

    def _refuse(self, what: str) -> NoReturn:
        raise ProtocolViolation(f"source {self._source.name} may not write {what[:300]}", "see the gateway's topology")

    def _search(self, call: LogCall, log: OpenLog) -> None:
        asked = call.search
        if not self._source.permits.topic(asked.topic):
            self._refuse(f"or read topic {asked.topic}")
        if asked.number != self._known.stop:
            raise ProtocolViolation(f"search {asked.number} follows search {self._known.stop - 1}", SAME)
        self._known = range(1, asked.number + 1)
        self._searches = {number: one for number, one in self._searches.items() if not one.ended}
        if len(self._searches) >= _SEARCHES:
            raise ProtocolViolation(f"a session may run {_SEARCHES} searches at a time")
        relay = Relay(asked.topic, asked.number, lambda **what: self._send(0, **what))
        relay.begin = dict(asked.begin)
        self._searches[asked.number] = relay
        log.search(relay)

    def _answer(self, call: LogCall, answer: Any) -> None:
        for part in parts_of(answer):
            self._send(call.call, part=part)


class Relay(Search):
    """A search that sends the topic's records to the agent, which evaluates them there."""

    def __init__(self, topic: str, number: int, send: Callable[..., None]) -> None:
        self._number, self._send = number, send
        self._records, self._size = list[FoundRecord](), 0
        self._done = False
        self._failed: BaseException | None = None
        super().__init__(topic, (), (), 0)

    def see(self, partition: int, key: bytes, value: bytes | None) -> None:
        """Send a record, in parts if it is large."""
        at, whole = 0, len(value or b"")
        while True:
            part = None if value is None else value[at : at + _FOUND]
            at += _FOUND
            self._records.append(FoundRecord(partition=partition, key=key, value=part, more=at < whole))
            self._size += len(key) + len(part or b"") + _HEAD
            if self._size > _FOUND:
                self._flush()
            if at >= whole or self.given_up:
                return

    def _flush(self) -> None:
        records, self._records, self._size = self._records, [], 0
        if not records:
            return
        try:
            self._send(found=Found(search=self._number, records=records))
        except Retriable:
            self.given_up = True

    @property
    def ended(self) -> bool:
        """Return whether the agent has stopped this search, or it has failed or finished."""
        return self._done or self._failed is not None

    @property
    def done(self) -> bool:
        """Return whether the topic was read to its end. Its reader sets it."""
        return self._done

    @done.setter
    def done(self, done: bool) -> None:
        """Note that the topic was read to its end, and send the end offsets to the agent."""
        self._done = done
        if done:
            self._flush()
            self._end(SearchEnd(search=self._number, begin=self.begin))

    @property
    def failed(self) -> BaseException | None:
        """Return the error with which reading the topic failed; None if there is none. The topic's reader sets it."""
        return self._failed

    @failed.setter
    def failed(self, error: BaseException | None) -> None:
        """Note an error of the reader, and send it to the agent."""
        self._failed = error
        if error is not None:
            known = error if isinstance(error, TailorbirdError) else Fatal(f"search {self.topic}: {error!r}")
            self._end(SearchEnd(search=self._number, failure=failure_of(known)))

    def _end(self, end: SearchEnd) -> None:
        try:
            self._send(search_end=end)
        except Retriable:
            self.given_up = True
