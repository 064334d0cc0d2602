"""Read every stored format of a topology: in Kafka, HBase, ZooKeeper and this machine's checkpoints. Read-only."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.model.naming import layouts_table, peer
from cdc.process.file_topology import home
from cdc.topology.topology import Topology
from indexer.peer.zk_registration import Client
from indexer.rebuild.zk_state import StoredTargets
from indexer.table.hbase_layouts import StoredLayouts
from joins.engine.file_checkpoint import stored_state_format
from tailorbird.deploy.upgrade.formats import JOIN_STATE, StoredFormat
from tailorbird.deploy.upgrade.kafka_formats import format_of, formats_in_kafka
from tailorbird.provision.stores import Stores
from tailorbird.provision.zk_journal import StoredJournal


def stored_formats(topology: Topology, stores: Stores | None, client: Client | None) -> Iterator[StoredFormat]:
    """Yield the stored formats. `stores` and `client` (of ZooKeeper) are None if the topology only captures.

    Raises Retriable while a server is unavailable, Fatal if a join's record cannot be read."""
    if topology.sources or topology.tables:
        yield from formats_in_kafka(topology)
    for file in sorted((home() / "checkpoints" / topology.name).glob("*/query.json")):
        if (number := format_of(file.read_bytes())) is not None:
            yield StoredFormat(name="checkpoints", place=file.parent.name, format=number)
        if (number := stored_state_format(file.parent)) is not None:
            yield StoredFormat(name=JOIN_STATE, place=file.parent.name, format=number)
    if stores is None or client is None:
        return
    namespaces = stores.tables.namespaces()
    if topology.name in namespaces and layouts_table(topology.name) in stores.tables.tables(topology.name):
        for name in topology.tables:
            layouts = StoredLayouts(topology.hbase.thrift, topology=topology.name, table=name)
            for number in sorted({format_of(one) or 1 for one in layouts.stored()}):
                yield StoredFormat(name="layouts", place=name, format=number)
    for index in topology.indexes.values():
        id_ = peer(topology.name, index.name, stores.names.current(topology.name, index.name))
        value = StoredTargets(client, id_, collection=index.collection).stored()
        if (number := format_of(value)) is not None:
            yield StoredFormat(name="index collections", place=index.name, format=number)
    entry = StoredJournal(client, topology.name).read()
    if entry is not None and (number := format_of(entry[0])) is not None:
        yield StoredFormat(name="apply journal", place=topology.name, format=number)
