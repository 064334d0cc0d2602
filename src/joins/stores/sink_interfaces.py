"""What the engine asks of the place where a table's rows go; `hbase_sink` and `kafka_sink` are such places."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from cdc.stored.layout import Layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.query.plan import Plan
from joins.steps.cuts import Offsets, Positions

Clock = Callable[[], int]
# What each partition of a batch runs: messages in (binary k, m), one report out (`joins.steps.sink.Report` as JSON, of
# the column `report`), everything written in between.
Writer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The run whose batches a sink writes: `committed` is the last that Spark committed, -1 where there is none yet."""

    id: str
    first_timestamp: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """What a table is equal to once `batch` is written: each source's position, the log's `ends` per level; and how
    many records it lacks (`incomplete`). `watermark` (ms) of one that joins by time.
    """

    batch: int
    positions: Positions
    ends: Sequence[Offsets]
    incomplete: int
    watermark: int | None = None


class TableSink(Protocol):
    """Writes one run's batches, one at a time; whatever it does may be done again. Errors: Retriable, while a server is
    away.
    """

    by_row: bool
    """Whether a task needs all messages of a row, one after the other."""

    def begin(self, batch: int) -> None:
        """A batch begins, or begins again: before its first write."""

    def writer(self, plan: Plan, layout: Layout, batch: int) -> Writer:
        """How the batch that was begun is written."""

    def finish(self, cut: Cut) -> None:
        """The batch that was begun is written whole, by all partitions: readers may be told of the cut."""

    def follow(self, cut: Cut, committed: int) -> bool:
        """Between batches, more is known of the last one; whether readers could be told of it. `committed` as in `Run`:
        a batch behind it may be half written.
        """

    def sweep(self) -> int:
        """Remove every row that only former runs have written; how many."""


class Target(Protocol):
    """Where a table's rows go, whichever run writes them."""

    def check(self, file: str) -> None:
        """UsageError, with a remedy that names the topology's `file`, where rows can not be written."""

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """The layout to write under, stored if it is new."""

    def first_timestamp(self, now_ms: int) -> int:
        """What a run that begins now is told by, among all runs: older than each of its writes."""

    def reached(self) -> Positions:
        """How far readers were told that each source has come; empty where they are not told."""

    def sink(self, run: Run, clock_ms: Clock) -> TableSink:
        """What writes a run, from its next batch on."""
