"""Change log of an agent: it implements `ChangeLog` by calls to a gateway, over a session channel of the agent's
stream.

The gateway's session handler provides exactly-once delivery: it owns the Kafka log (`ingest.log.kafka_log`), where
`recover` fences every earlier writer, and `commit` is answered after Kafka has committed. If the channel ends, the
session ends, too. The next session recovers, whether or not the last commit succeeded. The agent stores no records:
changes that are not committed are read from the database again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from cdc.model.errors import Fatal, Retriable, TailorbirdError
from cdc.model.history import Record as HistoryRecord
from ingest.capture.signals import Signal, signal_of
from ingest.fleet.answers import checkpoint_bytes, error_of, recovered_of
from ingest.fleet.fleet_pb2 import Commit, Empty, FoundRecord, LogReply, Records, Signals
from ingest.fleet.fleet_pb2 import Search as SearchCall
from ingest.fleet.frames import LONGEST, SAME, FrameWriter, zipped
from ingest.fleet.stored_records import received, recovered_from
from ingest.fleet.wire import MESSAGE
from ingest.gateway_client.grpc_channel import SessionChannel
from ingest.records.capture_interfaces import Checkpoint, Record, Recovered
from ingest.records.checkpoint_changes import changes_bytes, split
from ingest.records.findings import Search

_EMPTY = Empty()
_PART = 512 * 1024  # bytes of a checkpoint in one message
_WHOLE = MESSAGE - 16 * 1024  # bytes of a checkpoint that a gateway of the previous release accepts
_UNANSWERED = 500  # topics that are requested at most before an answer: a gateway ends streams with too many calls


class SessionChannels(Protocol):
    """A connection to a gateway that carries a session channel per source."""

    def channel(self, source: str, unasked: Callable[[LogReply], None]) -> SessionChannel:
        """Open a session channel for a source. `unasked` receives replies that are no answer to a call."""

    def leave(self, channel: SessionChannel) -> None:
        """Drop a session channel, so that later replies to it are ignored."""


class GatewayLog:
    """Change log of one source, for one session."""

    def __init__(self, stream: SessionChannels, source: str) -> None:
        self._stream, self._source = stream, source
        self._channel = stream.channel(source, self._heard)
        self._frames = FrameWriter()
        self._searches: dict[int, Search] = {}
        self._parts: dict[int, bytearray] = {}  # parts of a long record that have arrived, by search
        self._asked = 0
        self._ensured = set[str]()
        self._committed: Checkpoint | None = None  # this session's last one
        self._signals: int | None = None
        self._closed = False

    def recover(self) -> Recovered:
        """Fence all earlier writers of this source, then return what they committed. Implements `ChangeLog`."""
        if not self._channel.takes_records:
            return recovered_of(self._channel.ask(recover=_EMPTY))
        call = self._channel.begin(recover_records=_EMPTY)
        rest = self._channel.answered(call)
        return recovered_from(rest, self._channel.records(call))

    def ensure_topic(self, name: str) -> None:
        """Implements `OpenLog.ensure_topic`. Mostly does not wait; if the source may not use the topic, a later call
        raises Fatal."""
        if name in self._ensured:
            return
        self._ensured.add(name)
        # a gateway of the previous release creates each topic by itself, so that others would wait in its queue
        if not self._channel.takes_parts or len(self._ensured) % _UNANSWERED == 0:
            self._channel.ask(ensure_topic=name)
        else:
            self._channel.report(ensure_topic=name)

    def append(self, record: Record) -> None:
        """Implements `ChangeLog.append`; waits while the gateway gives no credit."""
        self.extend((record,))

    def extend(self, records: Iterable[Record]) -> None:
        """Implements `ChangeLog.extend`; waits while the gateway gives no credit."""
        try:
            for piece in self._frames.write(records):
                self._send(piece)
        except ValueError as error:
            raise Fatal(f"a gateway does not accept a record with {error}") from error

    def commit(self, checkpoint: Checkpoint) -> None:
        """Implements `ChangeLog.commit`. A checkpoint that does not fit into one message is sent in parts. After the
        session's first commit, only what changed is sent."""
        self._flush()
        known = self._committed if self._channel.takes_parts else None
        if known is None:
            content = checkpoint_bytes(checkpoint, self._source)
        else:
            content = changes_bytes(known, checkpoint, self._source)
        *parts, last = split(content, _PART if self._channel.takes_parts else _WHOLE)
        if parts and not self._channel.takes_parts:
            what = f"the gateway does not accept a checkpoint of {len(content)} bytes"
            raise Retriable(what, "update the gateway: this version sends it in parts", retry_after=30.0)
        for part in parts:
            self._channel.ask(commit=Commit(checkpoint=part, more=True))
        changes = known is not None
        self._channel.ask(commit=Commit(records=self._frames.records, checkpoint=last, changes=changes))
        self._channel.uncommitted, self._committed = False, checkpoint

    def kept(self) -> list[Mapping[str, Any]]:
        """Return all committed records of this source in the quarantine topic, in order. Implements `ChangeLog`."""
        found: list[Mapping[str, Any]] = self._channel.ask(kept=_EMPTY)
        return found

    def history(self) -> tuple[HistoryRecord, ...]:
        """Return the committed schema history of this source, in order, since the last `restate`."""
        if not self._channel.takes_records:
            return tuple((key, value) for key, value in self._channel.ask(history=_EMPTY))
        call = self._channel.begin(history_records=_EMPTY)
        self._channel.answered(call)
        return received(self._channel.records(call))[0]

    def restate(self, records: Iterable[Record]) -> None:
        """Append records that contain the whole history. Implements `ChangeLog`."""
        self._flush()
        self._channel.uncommitted = True
        self._channel.report(restate=_EMPTY)
        self.extend(records)

    def search(self, search: Search) -> None:
        """Implements `ChangeLog.search`. The gateway reads the topic and sends its records over the stream."""
        number = self._asked = self._asked + 1
        self._searches[number] = search
        self._channel.report(search=SearchCall(number=number, topic=search.topic, begin=search.begin))

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        """Implements `Signals.read`. The first call waits for the answer; later calls return what has arrived since."""
        if self._signals is None:
            self._signals = self._channel.begin(signals=Signals(start=start))
        elif start is not None and not self._channel.arrived(self._signals):
            return [], start
        answer = self._channel.answered(self._signals)
        self._signals = self._channel.begin(signals=Signals(start=answer["next"]))
        return [signal_of(value) for value in answer["values"]], answer["next"]

    def abort(self) -> None:
        """Discard what was appended since the last commit. Implements `ChangeLog`."""
        self._frames = FrameWriter()  # the gateway's reader of signals starts again, too
        self._give_up(abort=_EMPTY)
        self._channel.uncommitted = False

    def close(self) -> None:
        """Abort uncommitted records and leave the session channel. Safe to call at any time."""
        if self._closed:
            return
        self._closed = True
        for search in list(self._searches.values()):
            search.given_up = True
        self._channel.close()
        self._stream.leave(self._channel)

    def _give_up(self, **what: Any) -> None:
        try:
            self._channel.report(**what)
        except TailorbirdError:
            return  # the channel has ended, so the gateway has aborted the transaction

    def _flush(self) -> None:
        for piece in self._frames.rest():
            self._send(piece)

    def _send(self, piece: bytes) -> None:
        self._channel.uncommitted = True
        self._channel.spend(len(piece))
        self._channel.report(records=Records(frames=zipped(piece), size=len(piece)))

    def _heard(self, reply: LogReply) -> None:
        """Handle a reply to a search, in the stream's reader thread."""
        number = reply.found.search if reply.HasField("found") else reply.search_end.search
        search = self._searches[number]
        if reply.HasField("found"):
            try:
                for one in reply.found.records:
                    self._seen(number, search, one)
            except Exception as error:  # noqa: BLE001  # the search raises it later: other sources share the stream
                search.given_up = True
                search.failed = error
            if search.full or search.given_up:
                self._give_up(stop_search=number)
            return
        self._parts.pop(number, None)
        del self._searches[number]
        if reply.search_end.HasField("failure"):
            search.failed = error_of(reply.search_end.failure)
        elif search.failed is None:
            search.begin, search.done = dict(reply.search_end.begin), True

    def _seen(self, number: int, search: Search, one: FoundRecord) -> None:
        """Pass a found record to its search, once all parts of a long record have arrived."""
        if one.more or number in self._parts:
            whole = self._parts.setdefault(number, bytearray())
            whole += one.value
            if len(whole) > LONGEST:
                raise Fatal(f"a record of {len(whole)} bytes in topic {search.topic}", SAME)
            if one.more:
                return
            search.see(one.partition, one.key, bytes(self._parts.pop(number)))
        elif not search.given_up:
            search.see(one.partition, one.key, one.value if one.HasField("value") else None)
