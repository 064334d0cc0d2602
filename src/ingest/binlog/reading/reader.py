"""Read a binlog quickly: row batches, statements and transaction ends, with a checkpoint after each.

`BinlogReader.changes` creates no typed events: it decodes only what a consumer of row changes needs. Resuming at a
checkpoint neither repeats nor loses anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from struct import error as StructError
from typing import Final, NamedTuple, Protocol

from ingest.binlog.format.codes import HEADER_SIZE, ROWS_EVENTS, EventType
from ingest.binlog.format.errors import BinlogError, ConnectionLost, UnsupportedEvent
from ingest.binlog.format.gtid import AnyGtidSet
from ingest.binlog.reading.effects import changes_rows
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.parse import query_text
from ingest.binlog.reading.position import BETWEEN_TRANSACTIONS, GTID_EVENTS, BinlogPosition, identity_of
from ingest.binlog.reading.stream import Committed, EventStream, Packet, RowBatch, StreamOptions
from ingest.binlog.reading.whole import ReadBuffer, WholeTransactions

T = EventType


class Transport(Protocol):
    """Source of packets, such as a file or a server."""

    @property
    def checksum(self) -> int:
        """Return the checksum algorithm of packets before the first format description: 0 none, 1 CRC32."""
        ...

    @property
    def reconnects(self) -> bool:
        """Return whether a reader should call `packets` again after ConnectionLost."""
        ...

    @property
    def selects_gtids(self) -> bool:
        """Return whether `packets` itself skips transactions of the checkpoint's GTID set, as servers do."""
        ...

    @property
    def buffer(self) -> ReadBuffer | None:
        """Return the received bytes that were not yielded yet, between two packets; None if there is no such buffer."""
        ...

    def packets(self, start: BinlogPosition) -> Iterator[Packet]:
        """Yield all packets from the checkpoint's transaction on. At a file's begin, earlier packets may come first."""
        ...

    def wait(self, attempt: int) -> None:
        """Wait before `packets` is called for the `attempt`-th time after a lost connection."""
        ...

    def close(self) -> None:
        """Release the connection or the file; `packets` ends."""
        ...


class Statement(NamedTuple):
    """A statement other than BEGIN, COMMIT and the like: for example DDL or GRANT."""

    database: str
    text: str
    raw: RawEvent


Change = RowBatch | Statement | Committed
_new = tuple.__new__
_QUERIES: Final = frozenset({int(T.QUERY), int(T.MARIA_QUERY_COMPRESSED)})


class BinlogReader:
    """Reader of one transport from a checkpoint on. Not thread-safe. `checkpoint` may be read between any two
    changes."""

    def __init__(
        self, transport: Transport, start: BinlogPosition | None = None, options: StreamOptions | None = None
    ) -> None:
        self._transport = transport
        self._start = start or BinlogPosition()
        self.stream = EventStream(self._start, options, checksum=transport.checksum)
        self.whole = WholeTransactions(self.stream)

    @property
    def checkpoint(self) -> BinlogPosition:
        """Return the position at which to resume after everything that was yielded so far."""
        return self.stream.progress.checkpoint

    def raw_events(self) -> Iterator[RawEvent]:
        """Yield every event, also those inside compressed transactions, and advance the position after each.

        A lost connection is resumed at the checkpoint, and events of the open transaction are not repeated. Raises
        ConnectionLost only if the transport does not reconnect.
        """
        progress = self.stream.progress
        attempt = 0
        self._open_events = repeated = 0
        self._ended = progress.transactions
        start = self._start
        stream, transport = self.stream, self._transport
        receive, observe = stream.receive, progress.observe
        while True:
            done = None if transport.selects_gtids else start.gtids
            try:
                for packet in transport.packets(start):
                    raw = receive(packet)
                    del packet
                    if done is not None and self._is_done(raw, done):
                        continue
                    if raw[0] == 40:  # TRANSACTION_PAYLOAD
                        yield raw
                        yield from self._unfolded(raw)
                        continue
                    try:
                        observe(raw)
                    except (StructError, IndexError, ValueError, BinlogError) as error:
                        raise stream.broken(raw, error) from error
                    attempt = 0
                    if progress.transactions != self._ended:
                        self._ended = progress.transactions
                        self._open_events = repeated = 0
                    elif not progress.in_transaction:
                        pass  # a new connection begins with its own events, before the transaction is repeated
                    elif repeated:
                        repeated -= 1
                        if raw[0] == 19:  # the decoder was dropped with the old connection
                            stream.map_table(raw)
                        continue
                    else:
                        self._open_events += 1
                    yield raw
                return
            except ConnectionLost:
                if not transport.reconnects:
                    raise
                attempt += 1
                transport.wait(attempt)
                start, repeated = replace(progress.checkpoint, batches=0), self._open_events
                stream.checksum = transport.checksum

    def whole_buffer(self) -> ReadBuffer | None:
        """Return the buffer of received bytes while no transaction is open; None if events must be read one by one.

        A caller that takes transactions out must call `took_whole` before it requests the next raw event.
        """
        selected = self._transport.selects_gtids or self._start.gtids is None
        return self._transport.buffer if selected else None

    def took_whole(self) -> None:
        """Note that transactions were taken out of the buffer."""
        self._ended = self.stream.progress.transactions

    def _unfolded(self, raw: RawEvent) -> Iterator[RawEvent]:
        """Yield the events of a compressed transaction. It is one packet, so the connection cannot be lost within
        it."""
        for inner in self.stream.unfold(raw):
            self.stream.observe(inner)
            yield inner

    def _is_done(self, raw: RawEvent, done: AnyGtidSet) -> bool:
        """Return whether a transaction is in the GTID set of the start. (Only files contain such transactions.)"""
        if raw.code in GTID_EVENTS:
            identity = identity_of(raw)
            self._skipping = identity is not None and done.holds(identity)
        elif raw.code in BETWEEN_TRANSACTIONS:
            self._skipping = False
        return self._skipping

    _skipping = False
    _open_events = _ended = 0

    def changes(self) -> Iterator[Change]:
        """Yield row batches, statements and transaction ends in commit order.

        Raises UnsupportedEvent if row changes are logged as statements, or in an unknown form.
        """
        stream, progress = self.stream, self.stream.progress
        skip = self._start.batches
        open_before = False
        progress.batches = 0
        for raw in self.raw_events():
            code = raw.code
            if code in ROWS_EVENTS:
                progress.batches += 1
                if skip:
                    skip -= 1
                    continue
                decoder = stream.decoder_of(raw)
                if decoder.wanted:
                    yield stream.batch(raw, decoder)
            elif code == 19:  # TABLE_MAP
                stream.map_table(raw)
            elif code == 16 or code == 38:  # XID, XA_PREPARE
                open_before, skip = False, 0
                yield _new(Committed, (progress.ended, raw))
                buffer = self.whole_buffer()
                if buffer is not None:
                    del raw
                    yield from self.whole.changes(buffer)
                    self.took_whole()
            elif code in _QUERIES:
                if progress.framing:
                    open_before = True
                    continue
                statement = self._statement(raw)
                if statement is not None and not skip:
                    yield statement
                if not progress.in_transaction and (open_before or statement is not None):
                    skip = 0
                    yield _new(Committed, (progress.ended, raw))
                open_before = progress.in_transaction
            else:
                stream.check_known(raw)
                open_before = progress.in_transaction

    def _statement(self, raw: RawEvent) -> Statement | None:
        try:
            database, text = query_text(raw.data[HEADER_SIZE:], raw.code != T.QUERY)
        except (StructError, IndexError, ValueError, BinlogError) as error:
            raise self.stream.broken(raw, error) from error
        if text in ("BEGIN", "COMMIT"):
            return None
        if changes_rows(text):
            raise UnsupportedEvent(
                f"a statement changed rows without logging them: {text[:80]}",
                "set binlog_format=ROW on the server, and start after this position",
                where=raw.where,
            )
        word = text[:12].lstrip().upper()
        if word.startswith(("SAVEPOINT", "ROLLBACK", "RELEASE", "XA START", "XA END", "XA PREPARE")):
            return None
        return Statement(database, text, raw)

    def close(self) -> None:
        """Stop reading. The checkpoint is kept."""
        self._transport.close()
