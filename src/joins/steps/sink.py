"""Records of the result → what is written: puts, deletes, letters for the dead, and a report for the driver.

Stamps rule the sink. A batch has one stamp, deletes carry it and puts carry the next millisecond, so that a replay
writes identical cells, a write that arrives too late loses, and delete and re-insert in one batch ends as the insert.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import orjson

from cdc.stored.cells import Barrier, RowCodec
from joins.steps.by_time import LATE
from joins.steps.cuts import Offsets, Positions
from joins.steps.records import Floor, Record, RefusedRecord, RowGone, RowPut

Cells = Mapping[bytes, bytes]


@dataclass(slots=True, kw_only=True)
class Writes:
    """What a chunk of records writes to HBase (row keys, whole rows), and what it does not."""

    deletes: list[bytes] = field(default_factory=list)
    puts: list[tuple[bytes, Cells]] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    floors: list[Floor] = field(default_factory=list)


@dataclass(slots=True, kw_only=True)
class Report:
    """What became of a batch: counts (of those `refused`, how many rows came too `late`), and its markers' floors."""

    rows_put: int = 0
    rows_gone: int = 0
    refused: int = 0
    late: int = 0
    floors: list[tuple[str, int, int]] = field(default_factory=list)

    def add(self, writes: Writes) -> None:
        """Count what was written."""
        self.merge(
            Report(
                rows_put=len(writes.puts),
                rows_gone=len(writes.deletes),
                refused=len(writes.refused),
                late=late_among(writes.refused),
                floors=plain(writes.floors),
            )
        )

    def merge(self, other: Report) -> None:
        """Add another partition's report."""
        self.rows_put += other.rows_put
        self.rows_gone += other.rows_gone
        self.refused += other.refused
        self.late += other.late
        self.floors += other.floors


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusals:
    """How many dead letters a run has sent: those of `batch`, and of all batches before it. A replay counts once."""

    before: int = 0
    batch: int = -1
    latest: int = 0

    @property
    def total(self) -> int:
        """All of them: what the table lacks, or shows too long."""
        return self.before + self.latest

    def counted(self, batch: int, refused: int) -> Refusals:
        """With a batch that was written, perhaps not for the first time."""
        if batch == self.batch:
            return Refusals(before=self.before, batch=batch, latest=refused)
        return Refusals(before=self.total, batch=batch, latest=refused) if refused else self


def late_among(refused: Iterable[RefusedRecord]) -> int:
    """How many of them came too late for a join by time."""
    return sum(one.reason.startswith(LATE) for one in refused)


def plain(floors: Iterable[Floor]) -> list[tuple[str, int, int]]:
    """Floors as a report carries them: JSON knows no named tuples."""
    return [(topic, partition, sequence) for topic, partition, sequence in floors]


def writes_of(records: Iterable[Record], codec: RowCodec, batch: int) -> Writes:
    """Sort records by what they write; a row that its layout can not hold is a `RefusedRecord`, nothing else stops."""
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
                    writes.refused.append(_unstorable(layout.table, record.values, error))
            case RowGone() if not layout.may_hold(record.row_key):
                continue  # no row has such a key: an inner join on the NULL hides it, so that it was never stored
            case RowGone():
                try:
                    writes.deletes.append(codec.row_key(dict(zip(layout.row_key, record.row_key, strict=True))))
                except (ValueError, TypeError, OverflowError, AttributeError, struct.error) as error:
                    writes.refused.append(_unstorable(layout.table, record.row_key, error))
            case RefusedRecord():
                writes.refused.append(record)
            case Floor():
                writes.floors.append(record)
            case _:
                raise AssertionError(f"{type(record).__name__} in the result")
    return writes


def _unstorable(table: str, values: object, error: Exception) -> RefusedRecord:
    text = base64.b64encode(orjson.dumps(values)).decode()
    return RefusedRecord(f"table {table}", 0, 0, f"row does not fit its layout: {error}", None, text)


def dead_letter(refused: RefusedRecord, table: str, batch: int) -> tuple[bytes, bytes]:
    """Key and value of a dead letter: a replay repeats it under the same key."""
    key = f"join/{table}/{refused.topic}/{refused.partition}/{refused.offset}".encode()
    value = {"format": 1, "stage": "join", "table": table, "batch": batch, **refused._asdict()}
    return key, orjson.dumps(value)


def next_stamp(now_ms: int, last: int) -> int:
    """The stamp of a new batch: later than every put of the batch before, and never far from the clock."""
    return max(now_ms, last + 2)


def barriers(
    buckets: int,
    batch: int,
    stamp: int,
    positions: Positions,
    *,
    ends: Sequence[Offsets] = (),
    incomplete: int = 0,
    watermark: int | None = None,
) -> list[Barrier]:
    """One barrier per salt bucket, put after every row of the batch."""
    return [
        Barrier(
            bucket=bucket, buckets=buckets, batch=batch, stamp=stamp, positions=positions, ends=ends,
            incomplete=incomplete, watermark=watermark,
        )
        for bucket in range(buckets)
    ]  # fmt: skip
