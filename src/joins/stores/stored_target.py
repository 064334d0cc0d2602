"""The common part of the targets whose tables publish barriers: HBase, PostgreSQL and Iceberg."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

from cdc.model.brokers import Brokers
from cdc.stored.cells import Barrier
from cdc.stored.layout import Layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.runtime.cuts import Positions
from joins.runtime.sink import barriers, next_timestamp
from joins.stores.sink_interfaces import Cut


class StoredTable(Protocol):
    """A joined table in its store, for use by the driver."""

    def check(self, file: str) -> None:
        """Create what is missing. Raises UsageError if rows cannot be written."""

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write."""

    def last_timestamp(self) -> int:
        """Return the greatest timestamp of any batch or barrier of any run, or 0."""

    def reached(self) -> Positions:
        """Return each source's position in the last barrier. Empty if there is none."""


T = TypeVar("T", bound=StoredTable)


class StoredTarget(Generic[T]):
    """A target whose table publishes barriers. `servers` are the Kafka brokers for dead letters."""

    def __init__(self, table: T, servers: Brokers) -> None:
        self.table, self.servers = table, servers

    def check(self, file: str) -> None:
        """Create what is missing. Raises UsageError if a name is taken or a privilege is missing."""
        self.table.check(file)

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write (`joins.stores.evolution`)."""
        return self.table.settle_layout(layout, behavior)

    def first_timestamp(self, now_ms: int) -> int:
        """Return a timestamp that is greater than that of every write so far."""
        return next_timestamp(now_ms, self.table.last_timestamp())

    def reached(self) -> Positions:
        """Return the source positions in the last barrier."""
        return self.table.reached()


def barrier_of(cut: Cut, timestamp: int) -> Barrier:
    """Return the barrier of a table with one, for all its buckets."""
    (barrier,) = barriers(
        1, cut.batch, timestamp, cut.positions,
        ends=cut.ends, incomplete=cut.incomplete, watermark=cut.watermark, clock=cut.clock,
    )  # fmt: skip
    return barrier
