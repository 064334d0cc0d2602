"""The interface between a join and the sink of its rows. `hbase_sink`, `kafka_sink`, `pg_sink` and
`iceberg_sink` implement it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa

from cdc.model.errors import UsageError
from cdc.stored.layout import Layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.query.plan import Plan
from joins.runtime.cuts import Offsets, Positions

Clock = Callable[[], int]
# The function that each partition of a batch runs: it takes messages (binary k, m), writes everything, and returns one
# report (`joins.runtime.sink.Report` as JSON, in the column `report`).
Writer = Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run of a join, from an empty state on. `committed` is the last batch that Spark committed, -1 before the
    first.

    `first_timestamp` is older than each of its writes. `complete`: it has published positions."""

    id: str
    first_timestamp: int
    committed: int
    complete: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """The content of a table after `batch`: the position of each source, and the `ends` of the log that were read.

    `ends` has an entry per level of the plan. `incomplete` is the number of records that the table lacks.
    `watermark` (ms) is set for joins by time, and `clock` (ms), the meaning of `now()`, for conditions on the time."""

    batch: int
    positions: Positions
    ends: Sequence[Offsets]
    incomplete: int
    watermark: int | None = None
    clock: int | None = None


class TableSink(Protocol):
    """Writes the batches of one run, one at a time. Every call may be repeated.

    `by_row`: the sink needs the messages of a row together, in one partition. Raises Retriable while a server is
    unavailable."""

    by_row: bool
    """True if a task needs all messages of a row, one after the other."""
    interval: float
    """Seconds between the beginnings of two batches of a table that keeps up; 0 for none."""

    def begin(self, batch: int) -> None:
        """Prepare a batch, which may be a repeated one, before its first write."""

    def writer(self, plan: Plan, layout: Layout, batch: int) -> Writer:
        """Return the function that writes the rows of the current batch, in each Spark partition."""

    def finish(self, cut: Cut | None) -> None:
        """Complete the current batch, and publish its source positions. Call it when all partitions are written.

        `cut` is None while the run is incomplete: then nothing is published."""

    def follow(self, cut: Cut, committed: int) -> bool:
        """Publish newer source positions between batches. Return whether that was possible.

        `committed` is the last batch that Spark committed. A later batch may be partly written."""

    def sweep(self) -> int:
        """Remove every row that this run has not written. Return their number.

        Call it once per run, when all partitions of its first complete result are written, before `finish`."""


class Target(Protocol):
    """The place where the rows of a table are stored."""

    def check(self, file: str) -> None:
        """Raise UsageError, with a remedy that names the topology's `file`, if rows cannot be written."""

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write, and store it if it is new."""

    def first_timestamp(self, now_ms: int) -> int:
        """Return a timestamp for a new run, older than each of its writes."""

    def reached(self) -> Positions:
        """Return the published position of each source. Empty if the sink publishes none."""

    def sink(self, run: Run, clock_ms: Clock) -> TableSink:
        """Return the writer for a run's next batches.

        Raises UsageError (`lacking`) if the store has lost what the run has written: it would get new changes only."""


def lacking(store: str, table: str, batch: int) -> UsageError:
    """Return the error for a store that has lost the rows of a table's run, which has committed up to `batch`."""
    what = f"{store} lacks the rows of {table} up to batch {batch}"
    return UsageError(what, f"`tailorbird run TOPOLOGY --rebuild {table}` builds the table again")
