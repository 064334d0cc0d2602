"""Number the changes of a stream, assign them to transactions, and track the position."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import orjson

from cdc.formats.debezium_bytes import NULL
from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.events.left_out import quarantined_tables
from ingest.events.log_events import TransactionBegan, TransactionEnded
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Checkpoint, Stream, Watcher
from ingest.records.records import Recorder, TableWriter

_dumps = orjson.dumps


def name_of(began: TransactionBegan) -> str:
    """Return the unique name of a transaction: its GTID, or its begin in the log as `file:pos`."""
    return began.gtid or f"{began.file}:{began.pos}"


def part_of(began: TransactionBegan, total: int, orders: Mapping[TableId, int]) -> dict[str, Any]:
    """Return `Checkpoint.open`: the transaction's name, its number of published changes, and the numbers per table."""
    return {
        "id": name_of(began),
        "total_order": total,
        "orders": [[table.database, table.table, number] for table, number in orders.items()],
    }


def orders_of(part: Mapping[str, Any], source: str) -> dict[TableId, int]:
    """Return the number of published changes of each table, from the result of `part_of`."""
    return {TableId(source=source, database=d, table=t): number for d, t, number in part["orders"]}


class Numbering:
    """Position, open transaction and sequence numbers of one stream, from a checkpoint on."""

    def __init__(self, recorder: Recorder, tables: Tables, start: Checkpoint, watcher: Watcher | None = None) -> None:
        self._watcher = watcher
        self._windows, self._partial = ({}, set[TableId]()) if watcher is None else (watcher.windows, watcher.partial)
        self._parents: Collection[TableId] = ()
        self._repaired: Collection[TableId] = ()
        self._recorder, self.tables, self._start, self.values = recorder, tables, start, recorder.refused
        self._phases = recorder.phases
        self.values.load(start.state)
        self._file, self._pos = start.position.file, start.position.pos
        self._sequence = start.position.sequence
        self._ts_ms = start.ts_ms
        self._open: TransactionBegan | None = None
        self._row = self._total = self._skip = 0
        # JSON texts: GTID and name of the open transaction, and the last file name.
        self._gtid = self._id = self._file_json = NULL
        self._file_named = ""
        self._touched = False
        self._orders: dict[TableId, int] = {}
        self._resumed = start.open
        self._writers: dict[TableId, TableWriter] = {}
        # The table of the last transaction of one row, and its writer: hashing a table takes longer than comparing it.
        self._latest: tuple[TableId | None, TableWriter | None] = None, None
        self.changes = 0
        self.refused = self.quarantined = 0  # row images that became dead letters; events in quarantine
        self.kept = quarantined_tables(start.state)
        self.moved = False

    @property
    def whole(self) -> bool:
        """Return whether no transaction is open."""
        return self._open is None

    @property
    def clean(self) -> bool:
        """Return whether no record of the open transaction was created yet."""
        return self._open is None or not self._touched

    def checkpoint(self, stream: Stream) -> Checkpoint:
        """Return the checkpoint after the records so far, and reset `moved`.

        Inside a transaction, it contains how many of its changes are published.
        """
        self.moved = False
        row, counted = (self._start.position.row, self._resumed) if self._resumed else (0, None)
        if not self.clean:
            assert self._open is not None, "only an open transaction is not clean"
            row = self._row
            counted = part_of(self._open, self._total, self._orders)
        state, place = self.values.state({**self._start.state, **stream.state}), self.place(stream, row)
        return replace(self._start, position=place, ts_ms=self._ts_ms, open=counted, state=state)

    def rest(self, stream: Stream) -> None:
        """Move the position of an idle source to the end of its log, so that the server may purge earlier files."""
        awaited = self._resumed is not None  # published in part; the server may take long to decode the rest
        if self._open is None and not awaited and (place := stream.place) != (self._file, self._pos):
            (self._file, self._pos), self.moved = place, True

    def count_on(self, number: int) -> None:
        """Use only numbers above this one from now on: a replay has reached the position from before the rewind."""
        self._sequence, self.moved = max(number, self._sequence), True

    def place(self, stream: Stream, row: int = 0) -> Position:
        """Return the position after the last transaction that ended. `row` counts published changes of the open one."""
        return Position(file=self._file, pos=self._pos, gtid_set=stream.gtid_set, sequence=self._sequence, row=row)

    def _begin(self, event: TransactionBegan) -> None:
        if self._open is not None and self._orders:
            self._missing(self._orders)  # the previous transaction, published in part, has no end in the log
        self._open, self._touched = event, False
        self._row = self._total = self._skip = 0
        self._orders.clear()
        if event.gtid:
            self._gtid = self._id = _dumps(event.gtid)
        else:
            self._gtid, self._id = NULL, _dumps(f"{event.file}:{event.pos}")
        if self._resumed is None:
            return
        resumed, self._resumed = self._resumed, None
        orders = orders_of(resumed, self.tables.source)
        if name_of(event) != resumed["id"]:
            self._missing(orders)  # after a fail-over the server lacks a transaction that was published in part
            return
        self._skip, self._total, self._orders = self._start.position.row, resumed["total_order"], orders
        self._touched = True

    def _end(self, event: TransactionEnded) -> None:
        assert self._open is not None, "a transaction ended that had not begun"
        if self._skip:  # the transaction now has fewer rows than were published
            self._skip = 0
            self._missing(self._orders)
        self._file, self._pos = event.file, event.pos
        self._open, self.moved = None, True

    def _missing(self, tables: Iterable[TableId]) -> None:
        """Re-read tables of which rows were published that the source may not have committed."""
        raise NotImplementedError

    def next_position(self) -> Position:
        """Return the position after a change with the next sequence number."""
        return Position(file=self._file, pos=self._pos, gtid_set="", sequence=self._sequence + 1)

    def number(self) -> int:
        """Take the next sequence number and return it. All earlier changes have smaller ones."""
        self._sequence, self.moved = self._sequence + 1, True
        return self._sequence

    def _counted(self, table: TableId) -> int:
        """Number the next change of a table, and return its number among the table's changes in the transaction."""
        assert self._open is not None, "a change outside a transaction"
        self._touched = True
        self._sequence += 1
        self.changes += 1
        self._total += 1
        self._ts_ms = self._open.commit_us // 1000
        order = self._orders[table] = self._orders.get(table, 0) + 1
        return order
