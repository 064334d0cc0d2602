"""Inspect the running system of a topology and plan its changes with `planner.changes`. Read-only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from cdc.model.naming import hbase_table, layouts_table
from cdc.process.file_running import running
from cdc.process.file_topology import home
from cdc.stored.layout import Layout
from cdc.topology.topology import Index, Topology
from indexer.table.hbase_layouts import StoredLayouts
from joins.engine.file_checkpoint import measured_rate, stored_record, stored_state_format
from joins.process.targets import versioned_table
from tailorbird.deploy.plan.change import Change
from tailorbird.deploy.plan.hbase_seen import counted_rows
from tailorbird.deploy.plan.kafka_seen import SeenTopics, fleet_sources, reported_schemas, seen_topics
from tailorbird.deploy.plan.planner import changes
from tailorbird.deploy.plan.seen import SeenCollection, SeenState, SeenTopology
from tailorbird.deploy.plan.solr_seen import seen_collection
from tailorbird.operate.status.kafka_captured import captured_positions
from tailorbird.provision.plan import Refuse, foreseen
from tailorbird.provision.stores import Stores


def planned(topology: Topology, stores: Stores) -> list[Change]:
    """Return the steps from the running system to the topology's file. Raises the errors of `look`."""
    seen = look(topology, stores)
    moved = {one.name for one in changes(topology, seen) if one.action != "keep"}
    tables = {name: table for name, table in topology.tables.items() if name in moved}
    tables |= {
        index.table: topology.tables[index.table]
        for name, index in topology.indexes.items()
        if name in moved and index.table in topology.tables
    }
    names = {hbase_table(topology.name, name): table for name, table in tables.items()}
    refused = {step.name for step in seen.steps if isinstance(step, Refuse)}  # these differ from the file
    # counting takes one or two seconds per table, so count only tables whose rows are read or written
    rows = {name: counted_rows(topology, table) for name, table in names.items() if name in seen.tables - refused}
    return changes(topology, replace(seen, rows=rows))


def look(topology: Topology, stores: Stores) -> SeenTopology:
    """Inspect HBase, Solr, ZooKeeper, Kafka and this machine's folders, without counting rows.

    Raises Retriable if a server is unavailable, Fatal if a join's state cannot be read."""
    tables = frozenset(stores.tables.tables(topology.name) if topology.name in stores.tables.namespaces() else ())
    logged = bool(topology.sources or topology.tables)  # foreign tables need no Kafka
    topics = seen_topics(topology) if logged else SeenTopics(partitions={}, records={})
    collections = {name: _seen(topology, index) for name, index in topology.indexes.items()}
    peers = stores.peers.peers().values()
    return SeenTopology(
        steps=foreseen(topology, stores),
        captured=frozenset(captured_positions(topology) if logged else ()),
        schemas=reported_schemas(topology, topics),
        records=topics.records,
        partitions=topics.partitions,
        states=_states(topology),
        layouts=_layouts(topology, tables),
        collections={name: one for name, one in collections.items() if one is not None},
        tables=tables,
        peers=frozenset(one.id for one in peers if any(t.startswith(f"{topology.name}:") for t in one.tables)),
        fleet=fleet_sources(topology, topics),
        running=frozenset(one.part for one in running(topology.name) if not one.dead),
    )


def _seen(topology: Topology, index: Index) -> SeenCollection | None:
    if index.type == "opensearch":
        from tailorbird.deploy.plan.opensearch_seen import seen_in_opensearch

        return seen_in_opensearch(topology.opensearch, index)
    return seen_collection(topology.solr, index)


def _states(topology: Topology) -> Mapping[str, SeenState]:
    found = {}
    for folder in (home() / "checkpoints" / topology.name).glob("*"):
        if (record := stored_record(folder)) is not None:
            found[folder.name] = SeenState(
                fingerprint=record.fingerprint,
                partitions=record.partitions,
                topics=frozenset(record.target),
                complete=record.complete,
                rate=measured_rate(folder, record),
                engine=record.engine,
                format=stored_state_format(folder),
            )
    return found


def _layouts(topology: Topology, tables: frozenset[str]) -> Mapping[str, Layout]:
    found = dict[str, Layout | None]()
    for name, table in topology.tables.items():
        if (stored := versioned_table(topology, table)) is not None:
            found[name] = stored.layout()
        elif layouts_table(topology.name) in tables:
            found[name] = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=name).newest()
    return {name: layout for name, layout in found.items() if layout is not None}
