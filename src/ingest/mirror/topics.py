"""Turn records of topics into log events, each a transaction of its own. A feed supplies the records.

A connector that restarts publishes earlier changes again; each change is published here only once. A record is a
repetition if its position in the database's log is not after the last one in its partition. Snapshot rows have no
position, and are always published.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import orjson

from cdc.model.event import Position
from cdc.model.schema import TableId
from ingest.ddl.catalog import ColumnDefinition, Key, TableDefinition
from ingest.events.log_events import (
    CAUGHT_UP,
    Image,
    LogEvent,
    Operation,
    RefusedImage,
    RowsLogged,
    TableAltered,
    TableEmptied,
    TransactionBegan,
    TransactionEnded,
)
from ingest.events.tables import Tables
from ingest.mirror.connect import columns_of
from ingest.mirror.formats import FORMATS, UpstreamChange
from ingest.mirror.values import Read, reader_of
from ingest.records.capture_interfaces import Checkpoint

LOG = "topics"  # used as the file name of positions
OFFSETS = "offsets"  # key in a checkpoint's state: next offset and last upstream position, by `topic:partition`
_OPERATIONS: Mapping[str, Operation] = {"c": "insert", "r": "insert", "u": "update", "d": "delete"}


class InputRecord(NamedTuple):
    """One record of a topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    ts_ms: int


class PartitionEnd(NamedTuple):
    """The present end of a partition: after its last record there may be offsets without records, up to `offset`."""

    topic: str
    partition: int
    offset: int


_WITHHELD = "not a record of the topic's format; its content is withheld because of the policy of its host"


class TopicFeed(Protocol):
    """Endless iterator over records of topics; it yields None when no record is waiting."""

    def __iter__(self) -> Iterator[InputRecord | PartitionEnd | None]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MirroredTable:
    """The topic of a table, with its columns (empty: those of the inline schema) and its key.

    `exact`: a policy allows the table, so records of another database or table do not belong to it. `shared`: the
    policy has more tables in the topic, so records that name no table do not belong to it either.
    """

    table: TableId
    topic: str
    columns: tuple[tuple[str, str], ...] = ()
    key: tuple[str, ...] = ()
    exact: bool = False
    shared: bool = False

    def contains(self, change: UpstreamChange, *, only: bool) -> bool:
        """Return whether a record of the topic belongs to the table. `only`: the source has no other table in the
        topic."""
        if change.table == (self.table.database, self.table.table):
            return True
        if self.exact:
            return change.table == ("", "") and only and not self.shared
        return only and change.table[1] in ("", self.table.table)


class TableReads(NamedTuple):
    """A table's columns under one schema, and the reader of each column's values."""

    definition: TableDefinition
    reads: tuple[tuple[str, Read], ...]


def reads_of(one: MirroredTable, change: UpstreamChange | None, decimals: str) -> TableReads | None:
    """Return a table's columns: those of the topology, else those of the record's inline schema; None if neither has
    any."""
    if one.columns:
        columns = tuple(
            ColumnDefinition(name=name, column_type=kind, nullable=True, charset=None) for name, kind in one.columns
        )
        reads = tuple((name, reader_of(kind, decimals=decimals)) for name, kind in one.columns)
    elif change is not None and change.schema is not None:
        columns, reads = columns_of(change.schema)
    else:
        return None
    key = one.key or tuple(change.key if change is not None else ())
    keys = (Key(name="PRIMARY", kind="primary", columns=key),) if key else ()
    return TableReads(TableDefinition(columns=columns, keys=keys), reads)


class TopicEvents:
    """Iterator over the log events of one feed, from a checkpoint on.

    `starts` is the first offset of each partition, by `topic:partition`. `form` is the format of the records. `skipped`
    is called for each repetition. `withheld`: records that are not understood are published without
    their content, because it may belong to a table of the topic that hides columns.
    """

    gtid_set = ""

    def __init__(
        self, feed: TopicFeed, tables: Tables, mirrored: tuple[MirroredTable, ...], start: Checkpoint, *,
        starts: Mapping[str, int], form: str, decimals: str, skipped: Callable[[], object] = lambda: None,
        withheld: bool = False,
    ) -> None:  # fmt: skip
        self._feed, self._tables, self._format, self._decimals = feed, tables, FORMATS[form], decimals
        self._by_topic: dict[str, list[MirroredTable]] = {}
        for one in mirrored:
            self._by_topic.setdefault(one.topic, []).append(one)
        known = start.state.get(OFFSETS, {}) if start.position.pos else {}
        self._offsets: dict[str, list[Any]] = {
            name: [offset, known[name][1] if name in known else None] for name, offset in starts.items()
        }
        self._read = sum(starts.values())
        self._known: dict[TableId, TableReads] = {}
        self._schemas: dict[TableId, bytes] = {}
        self.repeated, self._skipped, self._withheld = 0, skipped, withheld

    @property
    def place(self) -> tuple[str, int]:
        """Return the sum of the next offsets of all partitions, in the form of a position."""
        return LOG, self._read

    @property
    def state(self) -> Mapping[str, Any]:
        """Return what a checkpoint needs to resume the stream, in addition to the position. Implements `Stream`."""
        return {OFFSETS: {name: list(entry) for name, entry in self._offsets.items()}}

    def reached(self, position: Position) -> bool:
        """Return whether everything up to a position has been read."""
        return self._read >= position.pos

    def __iter__(self) -> Iterator[LogEvent]:
        for record in self._feed:
            if record is None:
                yield CAUGHT_UP
                continue
            entry = self._offsets[f"{record.topic}:{record.partition}"]
            if isinstance(record, PartitionEnd):
                self._resumes(entry, record.offset)
                continue
            log_events = list(self._log_events(record, entry))
            self._resumes(entry, record.offset + 1)
            if log_events:
                file, pos = f"{record.topic}/{record.partition}", record.offset
                yield TransactionBegan("", (self._ts_ms or record.ts_ms) * 1000, 0, file, pos)
                yield from log_events
                yield TransactionEnded(LOG, self._read)

    def _resumes(self, entry: list[Any], offset: int) -> None:
        self._read += offset - entry[0]
        entry[0] = offset

    def _log_events(self, record: InputRecord, entry: list[Any]) -> Iterator[LogEvent]:
        """Yield the log events of a record. `entry` is its partition's progress, which is updated."""
        self._ts_ms = 0
        candidates = self._by_topic.get(record.topic, [])
        file, pos = f"{record.topic}/{record.partition}", record.offset
        try:
            change = self._format(record.key, record.value)
        except (ValueError, KeyError, TypeError) as error:
            if candidates:
                yield self._refused(candidates[0].table, record, f"not a record of the topic's format: {error}")
            return
        if change is None:
            return
        one = self._named(candidates, change)
        if one is None:
            return
        if change.place is not None:
            if entry[1] is not None and change.place.repeats(*entry[1]):
                self.repeated += 1
                self._skipped()
                return
            entry[1] = [change.place.log, list(change.place.numbers)]
        self._ts_ms = change.ts_ms
        if change.op == "t":
            yield TableEmptied(one.table, file, pos)
            return
        reads = self._reads(one, change)
        if reads is None:
            yield self._refused(one.table, record, "no inline schema, and no `columns:` in the topology")
            return
        if self._tables.catalog.tables.get((one.table.database, one.table.table)) != reads.definition:
            yield TableAltered(one.table, reads.definition)
        yield self._change(one.table, change, reads, file, pos)

    @staticmethod
    def _named(candidates: list[MirroredTable], change: UpstreamChange) -> MirroredTable | None:
        """Return the table of a record: the topic's only table, or the one that the record names."""
        only = len(candidates) == 1
        return next((one for one in candidates if one.contains(change, only=only)), None)

    def _reads(self, one: MirroredTable, change: UpstreamChange) -> TableReads | None:
        known = self._known.get(one.table)
        if change.schema is None or one.columns:
            if known is None and (known := reads_of(one, change, self._decimals)) is not None:
                self._known[one.table] = known
            return known
        schema = orjson.dumps(change.schema)
        if known is None or self._schemas.get(one.table) != schema:
            known = reads_of(one, change, self._decimals)
            assert known is not None, "it has a schema"
            self._known[one.table], self._schemas[one.table] = known, schema
        return known

    def _change(self, table: TableId, change: UpstreamChange, reads: TableReads, file: str, pos: int) -> RowsLogged:
        operation = _OPERATIONS[change.op]
        key = reads.definition.primary_key
        if operation == "delete":
            values = change.before if change.before is not None else change.key
            before = _image(reads, values, key)
            return RowsLogged(table, operation, [before], not isinstance(before, RefusedImage), file, pos)
        after = _image(reads, change.after or {}, None)
        if operation == "insert":
            return RowsLogged(table, operation, [after], not isinstance(after, RefusedImage), file, pos)
        old = None if change.before is None else _image(reads, change.before, key)
        if old is not None and not isinstance(old, RefusedImage) and any(old.get(name) is None for name in key):
            old = None  # Debezium's before image has no key columns if the table does not log old rows
        plain = not isinstance(after, RefusedImage) and not isinstance(old, RefusedImage)
        if isinstance(after, RefusedImage) and old is None:
            old = {name: after.values.get(name) for name in key}
        return RowsLogged(table, operation, [(old, after)], plain, file, pos)

    def _refused(self, table: TableId, record: InputRecord, why: str) -> RowsLogged:
        shown = (
            {}
            if self._withheld
            else {
                name: None if data is None else data[:2000].decode(errors="replace")
                for name, data in (("key", record.key), ("value", record.value))
            }
        )
        image = RefusedImage(values=shown, why=_WITHHELD if self._withheld else why, raw=True)
        return RowsLogged(table, "insert", [image], False, f"{record.topic}/{record.partition}", record.offset)


def _image(reads: TableReads, values: Mapping[str, Any], key: tuple[str, ...] | None) -> Image:
    """Return a row's image. A missing column is omitted from a before image (with `key`), and refused in other
    images."""
    row: dict[str, Any] = {}
    refused: dict[str, str] = {}
    unknown: list[str] = []
    for name, read in reads.reads:
        if name not in values:
            if key is None:
                unknown.append(f"column {name}: missing in the record")
            continue
        value = values[name]
        if value is None:
            row[name] = None
            continue
        try:
            row[name] = read(value)
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            row[name] = value if isinstance(value, str | int | float | bool) else str(value)
            refused[name] = str(error)
    if unknown:  # a column that the record lacks refuses the row
        return RefusedImage(values=row, why="; ".join(unknown), columns=refused)
    return RefusedImage(values=row, columns=refused) if refused else row
