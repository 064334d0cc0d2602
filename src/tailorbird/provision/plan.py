"""What a topology needs of HBase and Solr, compared with what is there: a list of steps. Nothing is changed here.

In this order, each idempotent, so that an apply which was cut off is planned and run again: namespace, layouts table,
aggregated tables, foreign tables' replication; then per index its collection, its peer, and, where it is new over a
table with rows, a scan that fills it, since a new peer is shipped no more than the current write-ahead logs. Kafka's
topics are capture's: it owns the log.
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
from cdc.topology.topology import Index, Table, Topology
from tailorbird.provision.stores import FamilySpec, PeerSpec, Stores, TableSpec

Kind = Literal["namespace", "table", "collection", "peer", "backfill"]
Families = dict[str, tuple[FamilySpec, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """It is there as it should be. `peer`: HBase has it, so that its name is spent."""

    kind: Kind
    name: str
    note: str
    peer: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeNamespace:
    """HBase lacks the topology's namespace."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeTable:
    """HBase lacks a table."""

    spec: TableSpec
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Replicate:
    """Families of a table are not replicated yet."""

    table: str
    families: tuple[FamilySpec, ...]
    note: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvancePeerName:
    """An index's peer was removed past us: the next one has another name, since it would replay its log."""

    index: str
    generation: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteBackfill:
    """Before anything of a new index is made: whatever cuts an apply off, the next one fills it."""

    index: Index
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeCollection:
    """Solr lacks an index's collection."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MakePeer:
    """HBase lacks an index's replication peer."""

    spec: PeerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Backfill:
    """Behind the peer: what is written from then on is shipped, what was written before is scanned."""

    index: Index
    peer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Refuse:
    """What exists contradicts the topology, and `apply` changes nothing of it: `error` has the remedy."""

    kind: Kind
    name: str
    error: TailorbirdError


Step = (
    Keep | MakeNamespace | MakeTable | Replicate | AdvancePeerName | NoteBackfill | MakeCollection | MakePeer | Backfill
)


def table_spec(topology: str, table: Table) -> TableSpec:
    """How an aggregated table is made: one region per salt bucket, its family replicated."""
    family = FamilySpec(name=table.family, replicated=True)
    name = hbase_table(topology, table.name)
    return TableSpec(name=name, family=family, splits=tuple(split_keys(table.salt_buckets)))


def peer_spec(topology: Topology, index: Index, generation: int, cluster_key: Callable[[str], str]) -> PeerSpec:
    """How an index's peer is made: serial, so that a barrier never overtakes its rows."""
    name = peer(topology.name, index.name, generation)
    foreign = topology.foreign_tables.get(index.table)
    table = foreign.table if foreign else hbase_table(topology.name, index.table)
    return PeerSpec(id=name, cluster_key=cluster_key(name), tables=(table,), serial=True, enabled=True)


def plan(topology: Topology, stores: Stores) -> list[Step]:
    """The steps in their order.

    Raises UsageError where what exists contradicts the topology; Retriable where a server is away. Solr is asked only
    where there is an index: a topology without one needs none.
    """
    steps: list[Step] = []
    for step in foreseen(topology, stores):
        if isinstance(step, Refuse):
            raise step.error
        steps.append(step)
    return steps


def foreseen(topology: Topology, stores: Stores) -> list[Step | Refuse]:
    """The steps of `plan` with everything that stands against it, each in its place; Retriable as there."""
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
    steps.append(_table(layouts, existing, stores, "stored layouts and stamps"))
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
            "set `family:` of the table to what exists, or name another table",
        )
        return Refuse(kind="table", name=spec.name, error=error)
    regions = stores.tables.regions(spec.name)
    if regions != len(spec.splits) + 1:
        error = UsageError(
            f"table {spec.name} exists with {regions} regions, the topology says {len(spec.splits) + 1}",
            "salt_buckets never changes: set it back, or name another table",
        )
        return Refuse(kind="table", name=spec.name, error=error)
    if spec.family.replicated and not family.replicated:
        return Replicate(table=spec.name, families=(spec.family,), note="now replicated")
    return Keep(kind="table", name=spec.name, note=note)


def _families(foreign: ForeignTable, stores: Stores) -> tuple[FamilySpec, ...]:
    return stores.tables.tables(foreign.table.partition(":")[0]).get(foreign.table, ())


def _foreign(topology: Topology, foreign: ForeignTable, found: tuple[FamilySpec, ...]) -> Step | Refuse:
    """A table of others is never made here; its families are replicated from now on, where they are not."""
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
        return Keep(kind="table", name=foreign.table, note="written by others")
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
    has_collection = stores.collections().exists(index.collection)
    [table] = spec.tables
    lacks = spec.id not in peers or not has_collection
    fills = lacks and table in existing and stores.tables.has_rows(table)
    if fills:
        yield NoteBackfill(index=index, peer=spec.id)
    if has_collection:
        yield Keep(kind="collection", name=index.collection, note="in Solr")
    else:
        yield MakeCollection(name=index.collection)
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
            "give the index another name: a peer is never removed and made again under its name",
        )
        return Refuse(kind="peer", name=spec.id, error=error)
    if not found.enabled:
        error = UsageError(
            f"replication peer {spec.id} is disabled: HBase keeps its backlog and ships nothing",
            f"enable it in HBase's shell: enable_peer '{spec.id}'",
        )
        return Refuse(kind="peer", name=spec.id, error=error)
    return Keep(kind="peer", name=spec.id, note=f"serial, of {spec.tables[0]}", peer=True)
