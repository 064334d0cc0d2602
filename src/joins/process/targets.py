"""Choose where the rows of a joined table are stored: HBase, a Kafka topic or PostgreSQL."""

from __future__ import annotations

from cdc.model.naming import upsert_topic
from cdc.topology.topology import Table, Topology
from joins.stores.hbase_sink import HBaseTarget
from joins.stores.hbase_table import joined_table
from joins.stores.kafka_sink import KafkaTarget
from joins.stores.kafka_table import UpsertTopic
from joins.stores.postgres.pg_sink import PostgresTarget
from joins.stores.postgres.pg_table import PostgresTable
from joins.stores.sink_interfaces import Target


def target_of(topology: Topology, table: Table) -> Target:
    """Return the sink for a table's rows: its HBase table, or what `sink` of the table says."""
    if table.sink == "kafka":
        log = topology.log
        topic = upsert_topic(topology.name, table.name)
        return KafkaTarget(
            UpsertTopic(log.brokers, topic, partitions=log.partitions, replication=log.replication_factor)
        )
    if table.sink == "postgres":
        assert topology.postgres is not None, "the reader of topologies requires it"
        return PostgresTarget(PostgresTable(topology.postgres, table.name), topology.log.brokers)
    return HBaseTarget(joined_table(topology, table), topology.log.brokers)
