"""Turn rows of the result into HBase puts and deletes, dead letters, and a report for the driver.

A batch has one timestamp. Deletes have that timestamp, puts the next millisecond. So a repeated batch writes
identical cells, a delayed write of an older batch loses, and a delete and insert in one batch ends as the insert."""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import orjson

from cdc.model.dead_letter_end import KEY, settled_row
from cdc.stored.cells import Barrier, RowCodec
from joins.runtime.cuts import Offsets, Positions
from joins.runtime.records import (
    LATE,
    ROW_GONE,
    ROW_PUT,
    Message,
    Record,
    RefusedRecord,
    RowGone,
    RowPut,
    TruncationPoint,
    Values,
    text_of,
)

Cells = Mapping[bytes, bytes]


@dataclass(slots=True, kw_only=True)
class Writes:
    """The HBase writes of some records (row keys to delete, whole rows to put), and the records that are not
    written."""

    deletes: list[bytes] = field(default_factory=list)
    puts: list[tuple[bytes, Cells]] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    truncation_points: list[TruncationPoint] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Report:
    """The result of a batch: the numbers of rows that were put and deleted, and of refused records.

    `late` is the part of `refused` that came too late for a join by time. `settled` is the number of dead-letter
    records of earlier batches whose rows were accepted now. `truncation_points` are those of the batch's markers.
    `reached_ns`: for a traced join, when the first row reached its sink (ns since 1970); 0: none did. `bytes`: the size
    of the rows that the sink received."""

    rows_put: int = 0
    rows_gone: int = 0
    refused: int = 0
    late: int = 0
    settled: int = 0
    truncation_points: list[tuple[str, int, int]] = field(default_factory=list)
    reached_ns: int = 0
    bytes: int = 0

    def add(self, writes: Writes) -> None:
        """Count the writes of a chunk."""
        self.merge(
            Report(
                rows_put=len(writes.puts),
                rows_gone=len(writes.deletes),
                refused=len(writes.refused),
                late=late_among(writes.refused),
                truncation_points=plain(writes.truncation_points),
            )
        )

    def merge(self, other: Report) -> None:
        """Add the report of another partition of the same batch."""
        self.rows_put += other.rows_put
        self.rows_gone += other.rows_gone
        self.refused += other.refused
        self.late += other.late
        self.settled += other.settled
        self.truncation_points += other.truncation_points
        self.reached_ns = min(filter(None, (self.reached_ns, other.reached_ns)), default=0)
        self.bytes += other.bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """The number of dead letters of a run: those of `batch` (`latest`), and those of all batches before it.

    So a repeated batch is counted once."""

    before: int = 0
    batch: int = -1
    latest: int = 0

    @property
    def total(self) -> int:
        """Return the number of dead letters of all batches: rows that the table lacks or shows too long."""
        return max(0, self.before + self.latest)

    def counted(self, batch: int, refused: int) -> Refusals:
        """Return the counts after a batch, which may be repeated. `refused` is negative if it settled more records."""
        if batch == self.batch:
            return Refusals(before=self.before, batch=batch, latest=refused)
        return Refusals(before=self.total, batch=batch, latest=refused) if refused else self


class OpenRow(NamedTuple):
    """The open dead-letter records of one row: their number, and the offset of the newest.

    `place` is the row's identification in settlements (`cdc.model.dead_letter_end.place_of`)."""

    place: str
    offset: int
    records: int


def settlements(
    messages: Iterable[Message], refused: Iterable[RefusedRecord], rows: Mapping[str, OpenRow], table: str
) -> tuple[list[tuple[bytes, bytes]], int]:
    """Return the records that settle open dead letters of rows that were accepted, and the number of settled
    records.

    `rows` are the rows with open dead letters, `refused` the records that were refused again."""
    again = {row_of(one, table) for one in refused}
    texts = (message.k[1:].decode() for message in messages if message.op in (ROW_PUT, ROW_GONE))
    found = [rows[text] for text in texts if text in rows and text not in again]
    return [(KEY, settlement(table, one)) for one in found], sum(one.records for one in found)


def settlement(table: str, one: OpenRow) -> bytes:
    """Return the JSON that settles a row's dead letters up to the newest known one."""
    return settled_row("join", table, one.place, "a later change", upto=one.offset)


def late_among(refused: Iterable[RefusedRecord]) -> int:
    """Return the number of records that came too late for a join by time."""
    return sum(one.reason.startswith(LATE) for one in refused)


def plain(truncation_points: Iterable[TruncationPoint]) -> list[tuple[str, int, int]]:
    """Convert truncation points to plain tuples for a report, because JSON has no named tuples."""
    return [(topic, partition, sequence) for topic, partition, sequence in truncation_points]


def writes_of(records: Iterable[Record], codec: RowCodec, batch: int) -> Writes:
    """Convert records to HBase writes. A row that does not fit its layout becomes a `RefusedRecord`."""
    writes = Writes()
    layout = codec.layout
    names = [column.name for column in layout.columns]
    for record in records:
        match record:
            case RowPut():
                values = dict(zip(names, record.values, strict=True))
                try:
                    cells = codec.cells(values, batch=batch, ts_ms=record.ts_ms, trace=record.trace)
                    writes.puts.append((codec.row_key(values), cells))
                except (ValueError, TypeError, OverflowError, AttributeError, struct.error) as error:
                    key = [values[name] for name in layout.row_key]
                    writes.refused.append(unstorable(layout.table, record.values, key, error))
            case RowGone() if not layout.may_hold(record.row_key):
                continue  # no stored row has such a key: an inner join on the NULL hides it
            case RowGone():
                try:
                    writes.deletes.append(codec.row_key(dict(zip(layout.row_key, record.row_key, strict=True))))
                except (ValueError, TypeError, OverflowError, AttributeError, struct.error) as error:
                    writes.refused.append(unstorable(layout.table, record.row_key, record.row_key, error))
            case RefusedRecord():
                writes.refused.append(record)
            case TruncationPoint():
                writes.truncation_points.append(record)
            case _:
                raise AssertionError(f"{type(record).__name__} in the result")
    return writes


def unstorable(table: str, values: object, key: Values, error: Exception) -> RefusedRecord:
    """Return the refused record of a row that cannot be stored."""
    text, own = (base64.b64encode(one).decode() for one in (orjson.dumps(values), text_of(key)))
    return RefusedRecord(f"table {table}", 0, 0, f"row does not fit its layout: {error}", own, text)


def row_of(refused: RefusedRecord, table: str) -> str | None:
    """Return the text of the row key of a refused row. None for a refused record of a topic, and for a refused row
    without a key."""
    own = f"table {table}"
    if refused.topic.startswith(f"{own}, row "):
        return refused.topic.removeprefix(f"{own}, row ")
    if refused.topic == own or refused.topic.startswith(f"{own}, group "):
        return None if refused.key is None else base64.b64decode(refused.key).decode()
    return None


def dead_letter(refused: RefusedRecord, table: str, batch: int) -> tuple[bytes, bytes]:
    """Return key and value of a dead-letter record. A repeated batch writes it again under the same key."""
    key = f"join/{table}/{refused.topic}/{refused.partition}/{refused.offset}".encode()
    value = {"format": 1, "stage": "join", "table": table, "batch": batch, **refused._asdict()}
    if (row := row_of(refused, table)) is not None:
        value["row"] = row
    return key, orjson.dumps(value)


def next_timestamp(now_ms: int, last: int) -> int:
    """Return the timestamp (ms) for a new batch or barrier: the current time, but at least `last` + 2.

    `last` is the greatest timestamp of earlier ones, so the new one is later than all their puts."""
    return max(now_ms, last + 2)


def barriers(
    buckets: int,
    batch: int,
    timestamp: int,
    positions: Positions,
    *,
    ends: Sequence[Offsets] = (),
    incomplete: int = 0,
    watermark: int | None = None,
    clock: int | None = None,
) -> list[Barrier]:
    """Return one barrier per salt bucket. Write them after every row of the batch."""
    return [
        Barrier(
            bucket=bucket, buckets=buckets, batch=batch, timestamp=timestamp, positions=positions, ends=ends,
            incomplete=incomplete, watermark=watermark, clock=clock,
        )
        for bucket in range(buckets)
    ]  # fmt: skip
