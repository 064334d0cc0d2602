"""Choose where the rows of a joined table are stored: HBase, a Kafka topic, PostgreSQL or Iceberg."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from cdc.model.extras import extras_named
from cdc.model.naming import upsert_topic
from cdc.stored.layout import Layout
from cdc.topology.topology import Table, Topology
from joins.stores.hbase_sink import HBaseTarget
from joins.stores.hbase_table import joined_table
from joins.stores.kafka_sink import KafkaTarget
from joins.stores.kafka_table import UpsertTopic
from joins.stores.postgres.pg_sink import PostgresTarget
from joins.stores.postgres.pg_table import PostgresTable
from joins.stores.sink_interfaces import Target

if TYPE_CHECKING:
    from joins.stores.iceberg.iceberg_table import IcebergTable


class VersionedTable(Protocol):
    """A table whose store has a name for readers, which shows one version of the table at a time."""

    def layout(self) -> Layout | None:
        """Return the layout of the newest run; None before the first."""

    def show(self) -> None:
        """Let readers see this version of the table. Raises UsageError if it has no complete result yet."""

    def drop(self) -> None:
        """Delete the table's rows and its state, and readers' name if it shows this version."""


def target_of(topology: Topology, table: Table) -> Target:
    """Return the sink for a table's rows: its HBase table, or what `sink` of the table says."""
    servers = topology.log.brokers
    if table.sink == "kafka":
        log, topic = topology.log, upsert_topic(topology.name, table.name)
        return KafkaTarget(UpsertTopic(servers, topic, partitions=log.partitions, replication=log.replication_factor))
    if table.sink == "postgres":
        return PostgresTarget(_postgres_table(topology, table), servers)
    if table.sink == "iceberg":
        stored = _iceberg_table(topology, table)
        from joins.stores.iceberg.iceberg_sink import IcebergTarget

        return IcebergTarget(stored, servers)
    return HBaseTarget(joined_table(topology, table), servers)


def versioned_table(topology: Topology, table: Table) -> VersionedTable | None:
    """Return the table if its sink is PostgreSQL or Iceberg; None for the others, whose readers know versions."""
    if table.sink == "postgres":
        return _postgres_table(topology, table)
    return _iceberg_table(topology, table) if table.sink == "iceberg" else None


def _postgres_table(topology: Topology, table: Table) -> PostgresTable:
    assert topology.postgres is not None, "the reader of topologies requires it"
    return PostgresTable(topology.postgres, table.name)


def _iceberg_table(topology: Topology, table: Table) -> IcebergTable:
    assert topology.iceberg is not None, "the reader of topologies requires it"
    with extras_named("iceberg"):
        from joins.stores.iceberg.iceberg_table import IcebergTable

    return IcebergTable(topology.iceberg, table.name)
