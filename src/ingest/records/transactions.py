"""Turn log events into records: number every change, assign it to its transaction, and track the position.

Tests check these rules. Sequence numbers grow by one per change and never repeat. The position moves only when a
transaction ends. A large transaction may be published in parts; the next part begins at the next row. A row whose key
changed is deleted under the old key and created under the new one. If the new image of a row is refused, the row is
deleted, so that consumers do not keep an outdated one.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

import orjson

from cdc.formats.debezium_bytes import NULL
from cdc.model.errors import Skippable
from cdc.model.event import SourceInfo
from cdc.model.schema import TableId, TableSchema
from ingest.events.changed import TablesChanged
from ingest.events.log_events import (
    LogEvent,
    RowsLogged,
    StatementLogged,
    TableAltered,
    TableDescribed,
    TransactionBegan,
    TransactionEnded,
    TransactionLogged,
)
from ingest.records.capture_interfaces import Record
from ingest.records.images import MAX_IMAGE, check_images, events, shaped
from ingest.records.numbering import Numbering
from ingest.records.records import TableWriter
from ingest.records.rewritten import by_statement, doubted, rekeyed

_dumps, _new = orjson.dumps, tuple.__new__


class Transactions(Numbering):
    """Turns the log events of one stream into records, from a checkpoint on.

    Pass every event to `records`, append what it returns, and commit with `checkpoint`. A new stream (after a lost
    connection) needs a new instance, started from the committed checkpoint.
    """

    def records(self, event: LogEvent, now_ms: int) -> list[Record]:
        """Return the records to append for a log event. `now_ms` becomes `ts_ms` of the envelopes."""
        if isinstance(event, TransactionLogged):
            one_row = self._one_row(event, now_ms)
            if one_row is not None:
                return one_row
            self._begin(event.began)
            records = self._changes(event.rows, now_ms)
            self._end(event.ended)
            return records
        if isinstance(event, RowsLogged):
            return self._changes(event, now_ms)
        match event:
            case TransactionBegan():
                self._begin(event)
            case TransactionEnded():
                self._end(event)
            case StatementLogged():
                return self._statement(event, now_ms)
            case TableDescribed():
                return self.report(event)
            case _:
                return self._other(event, now_ms)
        return []

    def _one_row(self, event: TransactionLogged, now_ms: int) -> list[Record] | None:
        """Return the records of a transaction of one ordinary row. Otherwise change nothing, and return None.

        The result is that of `_begin`, `_changes` and `_end`, without what only larger transactions need.
        """
        began, (table, operation, rows, plain, file, pos), ended = event
        known, writer = self._latest
        if table is not known and (writer := self._writers.get(table)) is not None:
            self._latest = table, writer
        if (
            writer is None
            or writer.shape
            or not plain
            or len(rows) != 1
            or self._open is not None
            or self._resumed is not None
            or (self._windows and table in self._windows)
            or (self._parents and table in self._parents)
            or (self._repaired and table in self._repaired)
        ):
            return None
        (change,), key_of = rows, writer.key
        if operation == "update":
            before, after = change
            key = key_of(after)
            if before is None or key_of(before) != key:
                return None
            op, old, new = b"u", _dumps(before), _dumps(after)
        else:
            key, image = key_of(change), _dumps(change)
            op, old, new = (b"c", NULL, image) if operation == "insert" else (b"d", image, NULL)
        if len(old) + len(new) >= MAX_IMAGE:
            return None
        if file != self._file_named:
            self._file_named, self._file_json = file, _dumps(file)
        name = _dumps(began.gtid or f"{began.file}:{began.pos}")
        gtid, self._ts_ms = name if began.gtid else NULL, began.commit_us // 1000
        self._sequence += 1
        self.changes += 1
        value = writer.one_row(
            op, old, new, self._ts_ms, began.server_id, gtid, self._file_json, pos, self._sequence, now_ms, name,
            partial=bool(self._partial) and table in self._partial,
        )  # fmt: skip
        (self._file, self._pos), self.moved = ended, True
        record = _new(Record, (writer.topic, key, value, None))
        return [record, _new(Record, (writer.topic, key, None, None))] if operation == "delete" else [record]

    def _other(self, event: LogEvent, now_ms: int) -> list[Record]:
        """Return the records of a kind of log event that a subclass handles."""
        return []

    def _changes(self, event: RowsLogged, now_ms: int) -> list[Record]:
        if (self._parents and event.table in self._parents) or (self._repaired and event.table in self._repaired):
            return self._special_changes(event, now_ms)
        return self._rows(event, now_ms)

    def _special_changes(self, event: RowsLogged, now_ms: int) -> list[Record]:
        """Return the records of rows of a table with child tables, or with rows under repair."""
        raise NotImplementedError

    def _statement(self, event: StatementLogged, now_ms: int) -> list[Record]:
        change = self.tables.statement(event, self.next_position())
        before, held = change.before, self._held(change)
        self._phases.end_each({*before, *held, *change.existed})
        records = self._changed(change)
        truncated = {(e.database, e.table) for e in change.effects if e.kind == "truncate"}
        for table, schema in {**before, **held}.items():
            gone = not self.tables.exists(table)
            if self._watcher is not None and gone:
                self._watcher.gone(table)
            if gone or (table in before and (table.database, table.table) in truncated):
                records += self._truncated(table, self._recorder.writer(schema), now_ms)
        self._read_again(by_statement(self.tables, before, change))
        return records

    def _held(self, change: TablesChanged) -> dict[TableId, TableSchema]:
        """Return the tables of a statement that were left out or in quarantine before it. Their topics may hold earlier
        rows."""
        published = self._recorder.published
        return {one: published[one] for one in change.existed if one not in change.before and one in published}

    def _read_again(self, tables: Collection[TableId]) -> None:
        for table in sorted(tables):
            if self._watcher is not None and self.tables.can_be_read and self.tables.exists(table):
                self._touched = True
                self._watcher.start(table, marker=self.number())

    def _truncated(self, table: TableId, writer: TableWriter, now_ms: int) -> list[Record]:
        if self._watcher is not None:
            self._watcher.void(table)
        order = self._counted(table)
        assert self._open is not None, "a statement outside a transaction"
        source = self._source(writer, self._open.file, self._open.pos)
        place = source, self._row, self._sequence, now_ms, self._id, self._total, order
        return [writer.truncated(writer.format.change(b"t", NULL, NULL, *place), self._sequence)]

    def _changed(self, change: TablesChanged) -> list[Record]:
        self._phases.end_each({*change.tables, *(change.refused or ()), *(s.table_id for s in change.schemas)})
        if not change.numbered:
            return []
        self._touched = True
        self._sequence += 1
        if self._watcher is not None:
            for table in change.refused or ():
                self._watcher.void(table)
            for schema in change.schemas:
                known = self._writers.get(schema.table_id)
                (self._watcher.void if known and known.schema.primary_key == schema.primary_key
                 else self._watcher.restart)(schema.table_id)  # fmt: skip
        self._latest = None, None
        for table in change.tables:
            self._writers.pop(table, None)
        published = (self._recorder.schema(schema) for schema in (*change.schemas, *change.merged))
        return [*self._recorder.history(change.history), *published]

    def report(self, event: TableDescribed | TableAltered) -> list[Record]:
        """Return the records of a table's new description, which comes from the log, the server or an operator."""
        before = {schema.table_id: schema for schema in self.tables.publishable(event.table)}
        if isinstance(event, TableAltered):
            doubtful, change = False, self.tables.altered(event, self.next_position())
        else:
            doubtful = doubted(self.tables, event)
            change = self.tables.described(event, self.next_position())
        records = self._changed(change)
        self._read_again({s.table_id for s in change.schemas} if doubtful else rekeyed(before, change))
        return records

    def _writer(self, table: TableId) -> TableWriter | Skippable:
        """Return the writer of a table's records, or why the table is left out."""
        writer = self._writers.get(table)
        if writer is None:
            try:
                writer = self._recorder.writer(self.tables.schema(table), self.tables.shape(table))
                self._writers[table] = writer
            except Skippable as error:  # the caller adds the table to those that are left out
                return error
        return writer

    def _passed_over(self, table: TableId, rows: int, why: Skippable) -> list[Record]:
        """Skip rows of a table that is left out. They still count as rows of their transaction."""
        assert self._open is not None, "rows outside a transaction"
        self._phases.end(table)
        self._touched, self.moved = True, True
        self._row += rows
        self.tables.pass_over(table, why, rows, self._open.commit_us // 1000)
        return []

    def _not_skipped(self, rows: Sequence[Any]) -> Sequence[Any]:
        """Return the rows of an event without those that were published before a restart."""
        skipped = min(self._skip, len(rows))
        self._skip -= skipped
        self._row += skipped
        return rows[skipped:]

    def _rows(self, event: RowsLogged, now_ms: int) -> list[Record]:
        """Return the records of an event's rows: the fast path of nearly all changes, with complete images of normal
        size."""
        rows = self._not_skipped(event.rows) if self._skip else event.rows
        if not rows:
            return []
        opened = self._open
        assert opened is not None, "rows outside a transaction"
        table, operation = event.table, event.operation
        writer = self._writers.get(table) or self._writer(table)
        if isinstance(writer, Skippable):
            return self._passed_over(table, len(rows), writer)
        if writer.shape:
            shaped(writer.shape, event)
        if not event.plain:
            return self._one_by_one(event, rows, writer, now_ms)
        self._touched = True
        self._ts_ms = opened.commit_us // 1000
        row, sequence, total, orders = self._row, self._sequence, self._total, self._orders
        order = orders.get(table, 0) if orders else 0
        key_of, topic, name = writer.key, writer.topic, self._id
        exact = operation != "update" or all(before is not None for before, _ in rows)
        source = self._source(writer, event.file, event.pos, exact=exact)
        write = writer.format.change
        out: list[Record] = []
        largest = 0
        before: Any
        for change in rows:
            before, after = change if operation == "update" else (None, change)
            sequence, total, order = sequence + 1, total + 1, order + 1
            key, image = key_of(after), _dumps(after)
            if operation == "insert":
                op, old, new = b"c", NULL, image
            elif operation == "delete":
                op, old, new = b"d", image, NULL
            else:
                op, old, new = b"u", NULL if before is None else _dumps(before), image
                # the key changed: delete the row under the old key, create it under the new one
                if before is not None and (old_key := key_of(before)) != key:
                    value = write(b"d", old, NULL, source, row, sequence, now_ms, name, total, order)
                    out.append(_new(Record, (topic, old_key, value, None)))
                    out.append(_new(Record, (topic, old_key, None, None)))
                    sequence, total, order = sequence + 1, total + 1, order + 1
                    largest = max(largest, len(value))
                    op, old = b"c", NULL
            value = write(op, old, new, source, row, sequence, now_ms, name, total, order)
            if len(value) > largest:
                largest = len(value)
            out.append(_new(Record, (topic, key, value, None)))
            if operation == "delete":
                out.append(_new(Record, (topic, key, None, None)))
            row += 1
        if largest >= MAX_IMAGE:
            return self._one_by_one(event, rows, writer, now_ms)
        self.changes += total - self._total
        self._row, self._sequence, self._total = row, sequence, total
        orders[table] = order
        if self._windows and table in self._windows:
            self._windows[table].update(record.key for record in out)
        return out

    def _one_by_one(self, event: RowsLogged, rows: Iterable[Any], writer: TableWriter, now_ms: int) -> list[Record]:
        """Return the records of an event's rows, checking each image: some are refused or very large."""
        assert self._open is not None, "rows outside a transaction"
        self._touched = True
        records: list[Record] = []
        source = self._source(writer, event.file, event.pos)
        for change in rows:
            pair = change if event.operation == "update" else (None, change)
            if event.operation == "delete":
                pair = (change, None)
            checked = check_images(writer, *pair)
            records += checked.settled
            for op, old, new in events(
                writer, checked.before, checked.after, unknown=event.operation == "update" and checked.unknown
            ):
                order = self._counted(event.table)
                key = writer.key(new or old or {})
                place = source, self._row, self._sequence, now_ms, self._id, self._total, order
                value = writer.format.change(op, _dumps(old), _dumps(new), *place)
                records.append(Record(writer.topic, key, value))
                if op == b"d":
                    records.append(Record(writer.topic, key, None))
            if checked.refused is not None:
                self.refused += 1
                info = self._info(event.table, event.file, event.pos)
                records.append(self._recorder.dead_letter(checked.refused, writer, info, now_ms))
            self._row += 1
        if event.table in self._windows:
            self._windows[event.table].update(record.key for record in records)
        return records

    def _source(self, writer: TableWriter, file: str, pos: int, *, exact: bool = False) -> bytes:
        """Return the source block of an event's rows; `exact` is as in `TableWriter.logged`."""
        opened = self._open
        assert opened is not None, "rows outside a transaction"
        if file != self._file_named:
            self._file_named, self._file_json = file, _dumps(file)
        partial = bool(self._partial) and writer.schema.table_id in self._partial
        ts_ms = opened.commit_us // 1000
        return writer.logged(ts_ms, opened.server_id, self._gtid, self._file_json, pos, partial=partial, exact=exact)

    def _info(self, table: TableId, file: str, pos: int) -> SourceInfo:
        assert self._open is not None, "rows outside a transaction"
        return SourceInfo(
            table_id=table, ts_ms=self._open.commit_us // 1000, server_id=self._open.server_id,
            gtid=self._open.gtid or None, file=file, pos=pos, row=self._row, sequence=self._sequence,
        )  # fmt: skip
