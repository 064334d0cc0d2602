"""An applied topology that has joined everything, without a server, as `tailorbird plan` would find it."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.model.naming import positions_topic, schemas_topic, upsert_topic
from cdc.model.schema import TableId, TableSchema
from cdc.stored.layout import Layout
from cdc.topology.topology import Topology
from indexer.index.mapping import fields_of
from joins.select.compiler import compile_plan
from tailorbird.deploy.plan.seen import RowCount, SeenCollection, SeenState, SeenTopology
from tailorbird.provision.apply import apply
from tailorbird.provision.plan import foreseen, plan
from tests.tailorbird.test_apply import Servers, stores

ROWS, RECORDS = 5_200, 24_000


class World:
    """The running state of a topology, which a test may change. Each topic has half of `RECORDS` records."""

    def __init__(
        self, topology: Topology, schemas: Mapping[TableId, TableSchema], servers: Servers | None = None
    ) -> None:
        self.servers, self.schemas = servers or Servers(), dict(schemas)
        list(apply(topology, plan(topology, stores(self.servers)), stores(self.servers)))
        listed = {table for source in topology.sources.values() for table in source.tables}
        topics = {topology.routing.topic_of(table) for table in listed | schemas.keys()}
        topics |= {upsert_topic(topology.name, one.name) for one in topology.tables.values() if one.sink == "kafka"}
        own = {positions_topic(topology.name): 1, schemas_topic(topology.name): 1}
        self.partitions = dict.fromkeys(topics, topology.log.partitions) | own
        self.captured, self.fleet = frozenset(topology.sources), frozenset[str]()
        self.states: dict[str, SeenState] = {}
        self.layouts: dict[str, Layout] = {}
        for name, table in topology.tables.items():
            made = compile_plan(topology, table, self.schemas)
            self.states[name] = SeenState(
                fingerprint=made.fingerprint(),
                partitions=table.state_partitions or 2,
                topics=frozenset(made.topics),
                complete=True,
                rate=400.0,
                engine="jvm",
            )
            if table.sink == "hbase":
                self.layouts[name] = made.layout(1)
                self.servers.rows.add(f"{topology.name}:{name}")
        self.collections = {
            name: SeenCollection(
                rows=ROWS,
                fields={one.name: (one.type, one.many) for one in fields_of(self.layouts[index.table], index.search)},
            )
            for name, index in topology.indexes.items()
            if index.table in self.layouts
        }

    def seen(self, topology: Topology) -> SeenTopology:
        """Return what `look` would find for the same or another file."""
        known = {table for table in self.schemas if topology.routing.topic_of(table) in self.partitions}
        return SeenTopology(
            steps=foreseen(topology, stores(self.servers)),
            captured=self.captured & frozenset(topology.sources),
            schemas={table: self.schemas[table] for table in known},
            records=dict.fromkeys(self.partitions, RECORDS // 2),
            partitions=self.partitions,
            states=self.states,
            layouts=self.layouts,
            rows={name: RowCount(rows=ROWS) for name in self.servers.rows},
            collections=self.collections,
            tables=frozenset(name for name in self.servers.specs if name.startswith(f"{topology.name}:")),
            peers=frozenset(self.servers.known_peers),
            fleet=self.fleet,
        )
