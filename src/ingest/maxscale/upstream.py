"""Convert the lines of a MaxScale to log events. Each row is a transaction, as are the two rows of an update.

Resuming needs the last row from the log that was published: its GTID, its number in that transaction, and the number of
snapshot rows after it. The new stream begins at that GTID, and rows up to that row are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import orjson

from cdc.formats.maxscale import TransactionNumber
from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from ingest.events.log_events import (
    CAUGHT_UP,
    Image,
    LogEvent,
    Operation,
    RefusedImage,
    RowsLogged,
    TableAltered,
    TransactionBegan,
    TransactionEnded,
)
from ingest.events.tables import Tables
from ingest.maxscale.upstream_values import reads_reported
from ingest.mirror.topics import TableReads
from ingest.records.capture_interfaces import Checkpoint, PositionLost

LOG = "maxscale"
MARKS = "marks"  # key in a checkpoint's state: the last row by `database.table`
_OPERATIONS: Mapping[str, Operation] = {"insert": "insert", "update_after": "update", "delete": "delete"}


class UpstreamLine(NamedTuple):
    """One line of a table's stream."""

    table: TableId
    data: bytes


class UpstreamFeed(Protocol):
    """Endless iterator over lines; it yields None when no line is waiting."""

    def __iter__(self) -> Iterator[UpstreamLine | None]: ...


class UpstreamMark(NamedTuple):
    """The last row from the log that was published, and `behind`, the number of snapshot rows published after it."""

    domain: int
    server_id: int
    sequence: int
    event_number: int
    behind: int = 0

    @property
    def gtid(self) -> TransactionNumber:
        """Return the GTID from which to request a stream that contains the row."""
        return TransactionNumber(self.domain, self.server_id, self.sequence)


@dataclass(slots=True)
class _Progress:
    """Progress of one table.

    `mark` is the last published row. `awaited` is the row after which a resumed stream continues, and `passing` the
    number of snapshot rows to skip after it. `before` is the first row of an update.
    """

    mark: UpstreamMark | None
    awaited: UpstreamMark | None = field(init=False)
    passing: int = field(init=False)
    before: Mapping[str, Any] | None = None
    reads: TableReads | None = None

    def __post_init__(self) -> None:
        self.awaited, self.passing = self.mark, self.mark.behind if self.mark is not None else 0


class UpstreamEvents:
    """Iterator over the log events of one feed, from a checkpoint on. `rules` contain the key columns of each table."""

    gtid_set = ""

    def __init__(
        self, feed: UpstreamFeed, tables: Tables, rules: Mapping[TableId, TableRule], start: Checkpoint
    ) -> None:
        self._feed, self._tables, self._rules = feed, tables, rules
        marks = marks_of(start)
        self._tables_of = {table: _Progress(marks.get(table_name(table))) for table in rules}
        self._count = start.position.pos

    @property
    def place(self) -> tuple[str, int]:
        """Return the number of changes so far, in the form of a position."""
        return LOG, self._count

    @property
    def state(self) -> Mapping[str, Any]:
        """Return what a checkpoint needs to resume the stream, in addition to the position. Implements `Stream`."""
        known = {table_name(table): one.mark for table, one in self._tables_of.items()}
        return {MARKS: {name: list(mark) for name, mark in known.items() if mark is not None}}

    def reached(self, position: Position) -> bool:
        """Return whether at least as many changes were returned as the position counts."""
        return self._count >= position.pos

    def __iter__(self) -> Iterator[LogEvent]:
        for line in self._feed:
            if line is None:
                yield CAUGHT_UP
                continue
            progress = self._tables_of[line.table]
            try:
                values = orjson.loads(line.data)
                if "fields" in values:
                    progress.reads = reads_reported(values, self._rules[line.table])
                    continue
                mark = UpstreamMark(
                    int(values["domain"]),
                    int(values["server_id"]),
                    int(values["sequence"]),
                    int(values["event_number"]),
                )
                kind, seconds = values["event_type"], int(values["timestamp"])
            except (ValueError, KeyError, TypeError) as error:
                why = f"neither a schema nor a row: {error}"
                shown = {"line": line.data[:2000].decode(errors="replace")}
                yield from self._alone(line.table, RefusedImage(values=shown, why=why, raw=True), 0, 0)
                continue
            if self._was_returned(line.table, progress, mark):
                continue
            if kind == "update_before":
                progress.before = values
                continue
            if not self._must_skip(progress):
                yield from self._change(line.table, progress, kind, values, mark, seconds)
            progress.before = None

    @staticmethod
    def _was_returned(table: TableId, progress: _Progress, mark: UpstreamMark) -> bool:
        """Return whether a row was published before the stream resumed."""
        awaited = progress.awaited
        if awaited is None:
            return False
        if mark[:4] == awaited[:4]:
            progress.awaited = None
        elif mark.server_id and mark.domain == awaited.domain and mark.sequence > awaited.sequence:
            raise PositionLost(
                f"{table}: the stream continues at {mark.gtid} without event {awaited.event_number} of {awaited.gtid}",
                "set `position_lost: resnapshot` to read everything that it has again",
            )
        return True

    @staticmethod
    def _must_skip(progress: _Progress) -> bool:
        """Return whether a snapshot row was published before the stream resumed."""
        if progress.passing == 0:
            return False
        progress.passing -= 1
        return True

    def _change(
        self,
        table: TableId,
        progress: _Progress,
        kind: str,
        values: Mapping[str, Any],
        mark: UpstreamMark,
        seconds: int,
    ) -> Iterator[LogEvent]:
        if mark.server_id:
            progress.mark = mark
        elif progress.mark is not None:
            progress.mark = progress.mark._replace(behind=progress.mark.behind + 1)
        reads = progress.reads
        if reads is None or kind not in _OPERATIONS:
            why = "a row before its schema" if reads is None else f"event_type {kind!r}"
            yield from self._alone(table, RefusedImage(values=dict(values), why=why, raw=True), seconds, mark.server_id)
            return
        if self._tables.catalog.tables.get((table.database, table.table)) != reads.definition:
            yield TableAltered(table, reads.definition)
        after, before = _image(reads, values), None if progress.before is None else _image(reads, progress.before)
        plain = not isinstance(after, RefusedImage) and not isinstance(before, RefusedImage)
        self._count += 1
        images: list[Any] = [(before, after)] if kind == "update_after" else [after]
        yield TransactionBegan("", seconds * 1_000_000, mark.server_id, LOG, self._count)
        yield RowsLogged(table, _OPERATIONS[kind], images, plain, LOG, self._count)
        yield TransactionEnded(LOG, self._count)

    def _alone(self, table: TableId, image: RefusedImage, seconds: int, server_id: int) -> Iterator[LogEvent]:
        self._count += 1
        yield TransactionBegan("", seconds * 1_000_000, server_id, LOG, self._count)
        yield RowsLogged(table, "insert", [image], False, LOG, self._count)
        yield TransactionEnded(LOG, self._count)


def marks_of(start: Checkpoint) -> dict[str, UpstreamMark]:
    """Return the last published row of each table, by `database.table`, from a checkpoint. New tables have none."""
    known = start.state.get(MARKS, {}) if start.position.pos else {}
    return {name: UpstreamMark(*mark) for name, mark in known.items()}


def table_name(table: TableId) -> str:
    """Return the name of a table in the protocol."""
    return f"{table.database}.{table.table}"


def _image(reads: TableReads, values: Mapping[str, Any]) -> Image:
    row, refused = dict[str, Any](), dict[str, str]()
    for name, read in reads.reads:
        value = values.get(name)
        try:
            row[name] = None if value is None else read(value)
        except (ValueError, KeyError, TypeError, ArithmeticError) as error:
            row[name] = value if isinstance(value, str | int | float | bool) else str(value)
            refused[name] = str(error)
    return RefusedImage(values=row, columns=refused) if refused else row
