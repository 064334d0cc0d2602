"""Looks at what runs of a topology, so that `planner.changes` can say what there is to do; nothing is changed."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.process.file_running import running
from cdc.process.file_topology import home
from cdc.stored.layout import Layout
from cdc.topology.topology import Topology
from cdc.words.naming import hbase_table, layouts_table
from console.planning.hbase_seen import counted_rows
from console.planning.kafka_seen import fleet_sources, seen_topics, told_schemas
from console.planning.seen import RowCount, Seen, SeenState
from console.planning.solr_seen import seen_collection
from console.provision.plan import foreseen
from console.provision.stores import Stores
from console.status.kafka_positions import captured_positions
from indexer.table.hbase_layouts import StoredLayouts
from joins.engine.file_checkpoint import measured_rate, stored_record


def look(topology: Topology, stores: Stores) -> Seen:
    """Ask HBase, Solr, ZooKeeper, Kafka and this machine's folders. Retriable where one of them is away, Fatal for a
    join's state that can not be read.
    """
    tables = frozenset(stores.tables.tables(topology.name) if topology.name in stores.tables.namespaces() else ())
    topics = seen_topics(topology)
    collections = {name: seen_collection(topology.solr, index) for name, index in topology.indexes.items()}
    peers = stores.peers.peers().values()
    return Seen(
        steps=foreseen(topology, stores),
        captured=frozenset(captured_positions(topology)),
        schemas=told_schemas(topology, topics),
        records=topics.records,
        partitions=topics.partitions,
        states=_states(topology),
        layouts=_layouts(topology, tables),
        rows=_rows(topology, tables),
        collections={name: one for name, one in collections.items() if one is not None},
        tables=tables,
        peers=frozenset(one.id for one in peers if any(t.startswith(f"{topology.name}:") for t in one.tables)),
        fleet=fleet_sources(topology, topics),
        running=frozenset(one.part for one in running(topology.name) if not one.dead),
    )


def _states(topology: Topology) -> Mapping[str, SeenState]:
    found = {}
    for folder in (home() / "checkpoints" / topology.name).glob("*"):
        if (record := stored_record(folder)) is not None:
            found[folder.name] = SeenState(
                fingerprint=record.fingerprint,
                partitions=record.partitions,
                topics=frozenset(record.target),
                complete=record.complete,
                rate=measured_rate(folder),
            )
    return found


def _layouts(topology: Topology, tables: frozenset[str]) -> Mapping[str, Layout]:
    if layouts_table(topology.name) not in tables:
        return {}
    found = {
        name: StoredLayouts(topology.hbase.thrift, topology=topology.name, table=name).newest()
        for name in topology.tables
    }
    return {name: layout for name, layout in found.items() if layout is not None}


def _rows(topology: Topology, tables: frozenset[str]) -> Mapping[str, RowCount]:
    names = {hbase_table(topology.name, table.name): table for table in topology.tables.values()}
    return {name: counted_rows(topology, table) for name, table in names.items() if name in tables}
