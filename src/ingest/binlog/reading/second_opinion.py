"""Compare the rows of this library with those of another decoder of the same binlog.

The other decoder (mysql-replication) returns other Python types, and none for some values that MySQL accepts, such as
zero dates. `same` compares the meaning of two values, by the column's type. A value that the other decoder cannot
represent is not compared, and counted.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Literal

from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.flavour import EnumIndex, SetMask
from ingest.binlog.json.jsonb import JSON_NULL
from ingest.binlog.reading.stream import RowBatch

Image = Mapping[str, Any]
Kind = Literal["value", "rows", "missing", "extra", "failed"]
Verdict = Literal["same", "different", "unknown"]
_HIDDEN = "(hidden)"
_LONGEST = 200  # characters of a value that are shown


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRows:
    """One rows event as the other decoder returns it. `end` is the place after the event.

    `rows` are the images of each row in the log's order: one of an insert or a delete, two of an update. `failed` is
    why the other decoder could not read it. Then `table` may be empty: the table is unknown.
    """

    file: str
    end: int
    table: str
    rows: Sequence[tuple[Image, ...]] = ()
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFilter:
    """Decides which tables are compared, by database and table.

    `names`: the texts in lower case, such as `shop.orders` and `crm.*`, to which it is restricted; empty: unknown.
    """

    accepts: Callable[[str, str], bool]
    names: frozenset[str] = frozenset()

    def __call__(self, database: str, table: str) -> bool:
        return self.accepts(database, table)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderDifference:
    """One difference. `place` is file and offset of the rows event, `row` the row's index in it.

    `kind`: another `value`; another number of `rows`; an event that is `missing` in the other decoder's answer, or
    `extra` there; or the other decoder `failed`.
    """

    kind: Kind
    place: str
    table: str
    row: int = 0
    column: str = ""
    ours: str = ""
    theirs: str = ""


@dataclass(slots=True)
class DecoderComparison:
    """Compares events in the log's order, and counts. `hides(table, column)` returns whether a value must not be shown.

    `counts`: rows events, rows and values that were compared; values `not_compared` by column type; `differences`.
    `filtered`: only some tables are compared. Then an event that the other decoder cannot read, of an unknown table,
    is `unreadable` and no difference. If it belongs to a compared table, its rows are `missing`.
    """

    hides: Callable[[str, str], bool] = lambda table, column: False
    filtered: bool = False
    counts: Counter[str] = field(default_factory=Counter)
    not_compared: Counter[str] = field(default_factory=Counter)

    def compare(self, ours: Iterator[RowBatch], theirs: Iterator[OtherRows]) -> Iterator[DecoderDifference]:
        """Yield the differences of two readers of one log. Both must end at the same place."""
        theirs = self._known(theirs) if self.filtered else theirs
        batch, other = next(ours, None), next(theirs, None)
        while batch is not None or other is not None:
            left = place_of(batch) if batch is not None else None
            right = ordered(other.file, other.end) if other is not None else None
            if batch is not None and (right is None or (left is not None and left < right)):
                yield self._noted(
                    DecoderDifference(kind="missing", place=batch.raw.where, table=batch.decoder.table.name)
                )
                batch = next(ours, None)
            elif other is not None and (left is None or (right is not None and right < left)):
                kind: Kind = "failed" if other.failed else "extra"
                place = f"{other.file}, end {other.end}"
                yield self._noted(DecoderDifference(kind=kind, place=place, table=other.table, theirs=other.failed))
                other = next(theirs, None)
            else:
                assert batch is not None, "the places are equal"
                assert other is not None, "the places are equal"
                yield from self._event(batch, other)
                batch, other = next(ours, None), next(theirs, None)

    def _known(self, theirs: Iterator[OtherRows]) -> Iterator[OtherRows]:
        """Yield the events whose table is known, and count the others."""
        for other in theirs:
            if other.table:
                yield other
            else:
                self.counts["unreadable"] += 1

    def _noted(self, difference: DecoderDifference) -> DecoderDifference:
        self.counts["differences"] += 1
        return difference

    def _event(self, batch: RowBatch, other: OtherRows) -> Iterator[DecoderDifference]:
        table, place = batch.decoder.table, batch.raw.where
        self.counts["events"] += 1
        if other.failed:
            yield self._noted(DecoderDifference(kind="failed", place=place, table=table.name, theirs=other.failed))
            return
        ours = [row if batch.operation == "update" else (row,) for row in batch.rows]
        if other.table != table.name or list(map(len, ours)) != list(map(len, other.rows)):
            counted = f"{table.name}: {len(ours)}", f"{other.table}: {len(other.rows)}"
            yield self._noted(
                DecoderDifference(kind="rows", place=place, table=table.name, ours=counted[0], theirs=counted[1])
            )
            return
        self.counts["rows"] += len(ours)
        for at, (images, others) in enumerate(zip(ours, other.rows, strict=True)):
            for image, theirs in zip(images, others, strict=True):
                for column in table.columns:
                    if column.name in image:
                        yield from self._value(table.name, place, at, column, image[column.name], theirs)

    def _value(
        self, table: str, place: str, row: int, column: LoggedColumn, ours: Any, image: Image
    ) -> Iterator[DecoderDifference]:
        theirs = image.get(column.name)
        verdict = same(column, ours, theirs) if column.name in image else "different"
        if verdict == "unknown":
            self.not_compared[column.type.name] += 1
            return
        self.counts["values"] += 1
        if verdict == "different":
            hidden = self.hides(table, column.name)
            shown = (_HIDDEN, _HIDDEN) if hidden else (_shown(ours), _shown(theirs))
            yield self._noted(
                DecoderDifference(kind="value", place=place, table=table, row=row, column=column.name,
                           ours=shown[0], theirs=shown[1])
            )  # fmt: skip


def ordered(file: str, offset: int) -> tuple[int, str, int]:
    """Return a place as a key in the log's order; the number in a file's name may have more digits than before."""
    return len(file), file, offset


def place_of(batch: RowBatch) -> tuple[int, str, int]:
    """Return the place after a rows event, as `ordered`; the place before its transaction if the log has none."""
    return ordered(batch.raw.file, batch.raw.next_position or batch.raw.offset)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


def same(column: LoggedColumn, ours: Any, theirs: Any) -> Verdict:
    """Return whether two values of a column mean the same; unknown if the other decoder cannot represent ours."""
    if ours is None:
        return _verdict(theirs is None)
    if isinstance(ours, EnumIndex | SetMask) or column.type in _NOT_COMPARED:
        return "unknown"
    if theirs is None:
        return "unknown" if _is_lost(column.type, ours) else "different"
    if column.type in _LOST_ZEROS and _is_lost(column.type, ours):
        return "unknown"
    if isinstance(ours, str) and isinstance(theirs, bytes):  # a character set that Python does not know
        return "unknown"
    compared = _BY_TYPE.get(column.type)
    return _verdict(compared(ours, theirs) if compared is not None else _plain(ours, theirs))


def _verdict(equal: bool) -> Verdict:
    return "same" if equal else "different"


def _is_lost(kind: T, ours: Any) -> bool:
    """Return whether the other decoder has no value for ours: dates with zeros, empty sets and JSON's null."""
    if kind in (T.DATE, T.NEWDATE, T.DATETIME, T.DATETIME2, T.TIMESTAMP, T.TIMESTAMP2):
        return "00" in (ours[5:7], ours[8:10]) or ours.startswith("0000")
    if kind is T.YEAR:
        return int(ours) == 0
    return (kind is T.SET and ours == "") or ours is JSON_NULL


def _plain(ours: Any, theirs: Any) -> bool:
    if isinstance(ours, bytes):  # BINARY(n): the log has no zeros at the end
        found = theirs.encode() if isinstance(theirs, str) else theirs
        return isinstance(found, bytes) and ours.rstrip(b"\0") == found.rstrip(b"\0")
    return bool(ours == theirs)


def _float(ours: Any, theirs: Any) -> bool:
    return bool(ours == theirs) or (math.isnan(ours) and math.isnan(theirs))


def _datetime(ours: str, theirs: Any) -> bool:
    return isinstance(theirs, datetime) and datetime.fromisoformat(_six_digits(ours)) == theirs


def _six_digits(text: str) -> str:
    whole, dot, digits = text.partition(".")
    return f"{whole}.{digits:0<6}" if dot else whole


def _time(ours: str, theirs: Any) -> bool:
    hours, minutes, seconds = ours.lstrip("-").split(":")
    span = timedelta(hours=int(hours), minutes=int(minutes)) + timedelta(
        microseconds=int(Decimal(seconds) * 1_000_000)
    )  # fmt: skip
    return bool((-span if ours.startswith("-") else span) == theirs)


def _json(ours: Any, theirs: Any) -> bool:
    return bool(_document(ours) == _document(theirs))


def _document(value: Any) -> Any:
    """Return a document with texts for bytes and opaque values, and None for its null."""
    if value is JSON_NULL:
        return None
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, Mapping):
        return {_document(key): _document(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_document(one) for one in value]
    if isinstance(value, datetime):
        return value.isoformat(" ", "microseconds")
    return str(value) if isinstance(value, date | timedelta) else value


_TIMES = (T.DATETIME, T.DATETIME2, T.TIMESTAMP, T.TIMESTAMP2)
_LOST_ZEROS = frozenset({*_TIMES, T.DATE, T.NEWDATE, T.YEAR})
# types that the other decoder does not know, or returns as they are stored
_NOT_COMPARED = frozenset(
    {T.DECIMAL, T.VECTOR, T.TYPED_ARRAY, T.MARIA_BLOB_COMPRESSED, T.MARIA_VARCHAR_COMPRESSED, T.GEOMETRY}
)
_BY_TYPE: Mapping[T, Callable[[Any, Any], bool]] = {
    T.FLOAT: _float,
    T.DOUBLE: _float,
    T.NEWDECIMAL: lambda ours, theirs: Decimal(ours) == theirs,
    T.DATE: lambda ours, theirs: date.fromisoformat(ours) == theirs,
    T.NEWDATE: lambda ours, theirs: date.fromisoformat(ours) == theirs,
    T.TIME: _time,
    T.TIME2: _time,
    T.BIT: lambda ours, theirs: ours == int(theirs, 2),
    T.SET: lambda ours, theirs: set(ours.split(",")) == theirs,
    T.JSON: _json,
    **dict.fromkeys(_TIMES, _datetime),
}
