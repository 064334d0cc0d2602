"""Define the engine's interface to a table's sink; `hbase_sink` and `kafka_sink` implement it."""

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
# The function that each partition of a batch runs: it takes messages (binary k, m), writes everything, and returns one
# report (`joins.steps.sink.Report` as JSON, in the column `report`).
Writer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The run whose batches a sink writes; `committed` is the last batch that Spark committed, -1 before the first."""

    id: str
    first_timestamp: int
    committed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The content of a table after `batch`: each source's position, the log's `ends` per level, and the number of
    records
    that the table lacks (`incomplete`). `watermark` (ms) is set for joins by time.
    """

    batch: int
    positions: Positions
    ends: Sequence[Offsets]
    incomplete: int
    watermark: int | None = None


class TableSink(Protocol):
    """Writes one run's batches, one at a time; every call may be repeated. Raises Retriable while a server is
    unavailable.
    """

    by_row: bool
    """True if a task needs all messages of a row, one after the other."""

    def begin(self, batch: int) -> None:
        """Prepare a batch, new or repeated, before its first write."""

    def writer(self, plan: Plan, layout: Layout, batch: int) -> Writer:
        """Return the writer of the current batch."""

    def finish(self, cut: Cut) -> None:
        """Publish the cut of the current batch, which all partitions have written completely."""

    def follow(self, cut: Cut, committed: int) -> bool:
        """Publish a newer cut of the last batch between batches; return whether that was possible. `committed` is as in
        `Run`: a later batch may be partly written.
        """

    def sweep(self) -> int:
        """Remove every row that only former runs have written; return the number."""


class Target(Protocol):
    """The sink of a table's rows, whichever run writes them."""

    def check(self, file: str) -> None:
        """Raise UsageError, with a remedy that names the topology's `file`, if rows cannot be written."""

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write, and store it if it is new."""

    def first_timestamp(self, now_ms: int) -> int:
        """Return a timestamp that identifies a run which begins now: older than each of its writes."""

    def reached(self) -> Positions:
        """Return the published position of each source; empty if the sink publishes none."""

    def sink(self, run: Run, clock_ms: Clock) -> TableSink:
        """Return the writer of a run, from its next batch on."""
