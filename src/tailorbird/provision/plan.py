"""Plan the steps that create a topology's missing objects in HBase and Solr. Read-only.

The steps are idempotent, so an interrupted apply is planned and run again. Their order is: namespace, layouts table,
joined tables, replication of foreign tables; then for each index its collection and its peer. A new index over a table
with rows is also filled by a scan, because HBase ships only the current write-ahead logs to a new peer. Kafka topics
belong to capture.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from cdc.model.errors import TailorbirdError, UsageError
from cdc.model.naming import hbase_table, layouts_table, peer
from cdc.stored.cells import split_keys
from cdc.stored.foreign import ForeignTable
from cdc.stored.layout import LAYOUTS_FAMILY
from cdc.topology.topology import Index, Table, Topology, engine_name
from tailorbird.provision.stores import FamilySpec, PeerSpec, Stores, TableSpec

Kind = Literal["namespace", "table", "collection", "peer", "backfill"]
Families = dict[str, tuple[FamilySpec, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Step: nothing to do, the object exists as needed. `peer`: it is a replication peer, so its name is in use.

    `note` is shown to the user."""

    kind: Kind
    name: str
    note: str
    peer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeNamespace:
    """Step: create the topology's namespace in HBase."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTable:
    """Step: create a table in HBase."""

    spec: TableSpec
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate:
    """Step: enable replication for column families of a table."""

    table: str
    families: tuple[FamilySpec, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvancePeerName:
    """Step: increase the number in the name of an index's peer, because the peer was removed by hand.

    With the old name HBase would replay the old peer's log."""

    index: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteBackfill:
    """Step: record that a new index must be filled. If the apply is interrupted, the next one fills it."""

    index: Index
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeCollection:
    """Step: create an index's collection in its search engine."""

    index: Index


@dataclass(frozen=True, slots=True, kw_only=True)
class MakePeer:
    """Step: create an index's replication peer in HBase."""

    spec: PeerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Step: fill a new index by a scan of its table. The peer exists before, so HBase replicates later writes."""

    index: Index
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """An existing object contradicts the topology, and `apply` does not change it. `error` has the remedy."""

    kind: Kind
    name: str
    error: TailorbirdError


Step = (
    Keep | MakeNamespace | MakeTable | Replicate | AdvancePeerName | NoteBackfill | MakeCollection | MakePeer | Backfill
)


def table_spec(topology: str, table: Table) -> TableSpec:
    """Return the HBase table of a joined table: one region per salt bucket, with a replicated column family."""
    family = FamilySpec(name=table.family, replicated=True)
    name = hbase_table(topology, table.name)
    return TableSpec(name=name, family=family, splits=tuple(split_keys(table.salt_buckets)))


def peer_spec(topology: Topology, index: Index, generation: int, cluster_key: Callable[[str], str]) -> PeerSpec:
    """Return the replication peer of an index. It is serial, so that a barrier never overtakes its rows.

    `generation` is the number in its name. `cluster_key` returns the address of the indexers for a peer's name."""
    name = peer(topology.name, index.name, generation)
    foreign = topology.foreign_tables.get(index.table)
    table = foreign.table if foreign else hbase_table(topology.name, index.table)
    return PeerSpec(id=name, cluster_key=cluster_key(name), tables=(table,), serial=True, enabled=True)


def plan(topology: Topology, stores: Stores) -> list[Step]:
    """Return the steps in order.

    Raises UsageError if an existing object contradicts the topology, Retriable if a server is unavailable. A
    topology without indexes does not need Solr."""
    steps: list[Step] = []
    for step in foreseen(topology, stores):
        if isinstance(step, Refuse):
            raise step.error
        steps.append(step)
    return steps


def foreseen(topology: Topology, stores: Stores) -> list[Step | Refuse]:
    """Return the steps of `plan`. A contradiction gives a `Refuse` instead of an error.

    Raises Retriable if a server is unavailable."""
    there = topology.name in stores.tables.namespaces()
    existing = stores.tables.tables(topology.name) if there else {}
    steps: list[Step | Refuse] = [
        Keep(kind="namespace", name=topology.name, note="in HBase") if there else MakeNamespace(name=topology.name)
    ]
    layouts = TableSpec(
        name=layouts_table(topology.name),
        family=FamilySpec(name=LAYOUTS_FAMILY.decode(), replicated=False),
        splits=(),
    )
    steps.append(_table(layouts, existing, stores, "stored layouts and batch timestamps"))
    for table in (table for table in topology.tables.values() if table.sink == "hbase"):
        note = f"{table.salt_buckets} region{'s' if table.salt_buckets > 1 else ''}, family {table.family}"
        steps.append(_table(table_spec(topology.name, table), existing, stores, note))
    known = {foreign.table: _families(foreign, stores) for foreign in topology.foreign_tables.values()}
    for foreign in topology.foreign_tables.values():
        steps.append(_foreign(topology, foreign, known[foreign.table]))
    peers = stores.peers.peers()
    for index in topology.indexes.values():
        steps += _index(topology, index, stores, peers, {*existing, *known})
    return steps


def _table(spec: TableSpec, existing: Families, stores: Stores, note: str) -> Step | Refuse:
    if spec.name not in existing:
        return MakeTable(spec=spec, note=note)
    family = next((f for f in existing[spec.name] if f.name == spec.family.name), None)
    if family is None:
        found = ", ".join(f.name for f in existing[spec.name])
        error = UsageError(
            f"table {spec.name} exists with families {found}, the topology says {spec.family.name}",
            "set `family:` of the table to the existing one, or choose another table",
        )
        return Refuse(kind="table", name=spec.name, error=error)
    regions = stores.tables.regions(spec.name)
    if regions != len(spec.splits) + 1:
        error = UsageError(
            f"table {spec.name} exists with {regions} regions, the topology says {len(spec.splits) + 1}",
            "salt_buckets cannot change: set it back, or choose another table",
        )
        return Refuse(kind="table", name=spec.name, error=error)
    if spec.family.replicated and not family.replicated:
        return Replicate(table=spec.name, families=(spec.family,), note="now replicated")
    return Keep(kind="table", name=spec.name, note=note)


def _families(foreign: ForeignTable, stores: Stores) -> tuple[FamilySpec, ...]:
    return stores.tables.tables(foreign.table.partition(":")[0]).get(foreign.table, ())


def _foreign(topology: Topology, foreign: ForeignTable, found: tuple[FamilySpec, ...]) -> Step | Refuse:
    """Return the step for an external table, which is never created. Its column families get replicated."""
    families = {each.name: each for each in found}
    missing = [name for name in foreign.families if name not in families]
    if missing:
        there = f"families {', '.join(families)}" if families else "no such table"
        error = topology.error(
            f"foreign_tables.{foreign.name}.table",
            f"HBase has {there}",
            f"table {foreign.table} with {', '.join(missing)}",
        )
        return Refuse(kind="table", name=foreign.table, error=error)
    changed = tuple(name for name in foreign.families if not families[name].replicated)
    if not changed:
        return Keep(kind="table", name=foreign.table, note="external table")
    wanted = tuple(FamilySpec(name=name, replicated=True) for name in changed)
    return Replicate(table=foreign.table, families=wanted, note=f"families {', '.join(changed)} are replicated now")


def _index(
    topology: Topology, index: Index, stores: Stores, peers: dict[str, PeerSpec], existing: set[str]
) -> Iterator[Step | Refuse]:
    generation = stores.names.current(topology.name, index.name)
    name = peer(topology.name, index.name, generation)
    if name not in peers and stores.names.was_made(name):
        generation += 1
        yield AdvancePeerName(index=index.name, generation=generation)
    spec = peer_spec(topology, index, generation, stores.cluster_key)
    has_collection = stores.collections(index).exists(index.collection)
    [table] = spec.tables
    lacks = spec.id not in peers or not has_collection
    fills = lacks and table in existing and stores.tables.has_rows(table)
    if fills:
        yield NoteBackfill(index=index, peer=spec.id)
    if has_collection:
        yield Keep(kind="collection", name=index.collection, note=f"in {engine_name(index)}")
    else:
        yield MakeCollection(index=index)
    yield _peer(spec, peers)
    if fills or stores.backfills.noted(index, spec.id):
        yield Backfill(index=index, peer=spec.id)


def _peer(spec: PeerSpec, existing: dict[str, PeerSpec]) -> Step | Refuse:
    if spec.id not in existing:
        return MakePeer(spec=spec)
    found = existing[spec.id]
    if (found.cluster_key, found.tables, found.serial) != (spec.cluster_key, spec.tables, spec.serial):
        error = UsageError(
            f"replication peer {spec.id} exists, but replicates {', '.join(found.tables) or 'everything'} "
            f"to {found.cluster_key}{'' if found.serial else ', not serially'}",
            "give the index another name: a removed peer's name cannot be used again",
        )
        return Refuse(kind="peer", name=spec.id, error=error)
    if not found.enabled:
        error = UsageError(
            f"replication peer {spec.id} is disabled: HBase keeps its backlog and ships nothing",
            f"enable it in HBase's shell: enable_peer '{spec.id}'",
        )
        return Refuse(kind="peer", name=spec.id, error=error)
    return Keep(kind="peer", name=spec.id, note=f"serial, of {spec.tables[0]}", peer=True)
