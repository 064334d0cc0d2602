"""What a topology needs of HBase and Solr before its processes start, made where it is missing.

`plan` compares the topology with what exists and lists the steps, `apply` runs them in order: namespace, layouts table,
aggregated tables, Solr collections, replication peers. An index that is new over a table with rows is filled by a scan,
since a new peer is shipped no more than the current write-ahead logs. Each step is idempotent, so an apply that was cut
off is run again. Kafka's topics are capture's: it owns the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from cdc.stored.cells import split_keys
from cdc.stored.foreign import ForeignTable
from cdc.stored.layout import LAYOUTS_FAMILY
from cdc.topology.topology import Index, Table, Topology
from cdc.words.errors import UsageError
from cdc.words.naming import hbase_table, layouts_table, peer

Done = Literal["made", "kept", "changed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySpec:
    """A column family; `replicated` ones go to the peers (REPLICATION_SCOPE 1)."""

    name: str
    replicated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table `namespace:name` of one family, split at the given keys and never again."""

    name: str
    family: FamilySpec
    splits: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSpec:
    """A replication peer of some tables; `serial` keeps each region's order."""

    id: str
    cluster_key: str
    tables: tuple[str, ...]
    serial: bool
    enabled: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One thing that the topology needs, and whether it was made or there already."""

    kind: Literal["namespace", "table", "collection", "peer", "backfill"]
    name: str
    done: Done
    note: str


class TableStore(Protocol):
    """Namespaces and tables, as HBase's master makes them (console.provision.hbase_admin)."""

    def namespaces(self) -> set[str]: ...
    def create_namespace(self, name: str) -> None: ...
    def tables(self, namespace: str) -> dict[str, tuple[FamilySpec, ...]]: ...
    def create_table(self, table: TableSpec) -> None: ...
    def replicate(self, table: str, family: FamilySpec) -> None: ...
    def has_rows(self, table: str) -> bool: ...
    def regions(self, table: str) -> int: ...


class PeerStore(Protocol):
    """Replication peers, as HBase's master makes them (console.provision.hbase_admin)."""

    def peers(self) -> dict[str, PeerSpec]: ...
    def add_peer(self, peer: PeerSpec) -> None: ...


class CollectionStore(Protocol):
    """Solr's collections (console.provision.solr_admin)."""

    def exists(self, collection: str) -> bool: ...
    def create(self, collection: str) -> None: ...


class PeerNames(Protocol):
    """Which peer an index has (indexer.rebuild.zk_state): a name is never used again once its peer was removed.

    `current` and `advance` tell the generation in the name; `was_made` whether HBase had a peer of that name once.
    """

    def current(self, topology: str, index: str) -> int: ...
    def advance(self, topology: str, index: str) -> int: ...
    def was_made(self, peer: str) -> bool: ...
    def mark_made(self, peer: str) -> None: ...


class Backfills(Protocol):
    """Scans that fill a new index (console.commands.index.cli_index_rebuild). One that is noted is done, by whichever
    apply.
    """

    def note(self, index: Index, peer: str) -> None: ...
    def noted(self, index: Index, peer: str) -> bool: ...
    def run(self, index: Index, peer: str) -> str: ...


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


def apply(
    topology: Topology,
    *,
    tables: TableStore,
    peers: PeerStore,
    collections: Callable[[], CollectionStore],
    names: PeerNames,
    backfills: Backfills,
    cluster_key: Callable[[str], str],
) -> Iterator[Outcome]:
    """Make what is missing, yielding each outcome as it is reached; the caller prints it.

    Raises UsageError where what exists contradicts the topology; Retriable where a server is away. `cluster_key`
    addresses a peer by its name. Solr is asked only where there is an index: a topology without one needs none.
    """
    yield _namespace(topology, tables)
    existing = tables.tables(topology.name)
    layouts = TableSpec(
        name=layouts_table(topology.name),
        family=FamilySpec(name=LAYOUTS_FAMILY.decode(), replicated=False),
        splits=(),
    )
    yield _table(layouts, existing, tables, "stored layouts and stamps")
    for table in (table for table in topology.tables.values() if table.sink == "hbase"):
        note = f"{table.salt_buckets} region{'s' if table.salt_buckets > 1 else ''}, family {table.family}"
        yield _table(table_spec(topology.name, table), existing, tables, note)
    for foreign in topology.foreign_tables.values():
        yield from _foreign(topology, foreign, tables)
    existing_peers = peers.peers()
    for index in topology.indexes.values():
        spec = peer_spec(topology, index, _generation(topology, index, existing_peers, names), cluster_key)
        store = collections()
        has_collection = store.exists(index.collection)
        if (spec.id not in existing_peers or not has_collection) and tables.has_rows(spec.tables[0]):
            # noted first: whatever cuts this apply off, the next one fills the index
            backfills.note(index, spec.id)
        if not has_collection:
            store.create(index.collection)
        yield Outcome(
            kind="collection", name=index.collection, done="kept" if has_collection else "made", note="in Solr"
        )
        yield _peer(spec, existing_peers, peers, names)
        # behind the peer: what is written from now on is shipped, what was written before is scanned
        if backfills.noted(index, spec.id):
            yield Outcome(kind="backfill", name=index.collection, done="made", note=backfills.run(index, spec.id))


def _generation(topology: Topology, index: Index, existing: dict[str, PeerSpec], names: PeerNames) -> int:
    """The index's current one; the next one where its peer was removed past us: made again it would replay its log."""
    generation = names.current(topology.name, index.name)
    name = peer(topology.name, index.name, generation)
    if name not in existing and names.was_made(name):
        return names.advance(topology.name, index.name)
    return generation


def _namespace(topology: Topology, tables: TableStore) -> Outcome:
    exists = topology.name in tables.namespaces()
    if not exists:
        tables.create_namespace(topology.name)
    return Outcome(kind="namespace", name=topology.name, done="kept" if exists else "made", note="in HBase")


def _table(spec: TableSpec, existing: dict[str, tuple[FamilySpec, ...]], tables: TableStore, note: str) -> Outcome:
    if spec.name not in existing:
        tables.create_table(spec)
        return Outcome(kind="table", name=spec.name, done="made", note=note)
    family = next((f for f in existing[spec.name] if f.name == spec.family.name), None)
    if family is None:
        found = ", ".join(f.name for f in existing[spec.name])
        raise UsageError(
            f"table {spec.name} exists with families {found}, the topology says {spec.family.name}",
            "set `family:` of the table to what exists, or name another table",
        )
    regions = tables.regions(spec.name)
    if regions != len(spec.splits) + 1:
        raise UsageError(
            f"table {spec.name} exists with {regions} regions, the topology says {len(spec.splits) + 1}",
            "salt_buckets never changes: set it back, or name another table",
        )
    if spec.family.replicated and not family.replicated:
        tables.replicate(spec.name, spec.family)
        return Outcome(kind="table", name=spec.name, done="changed", note="now replicated")
    return Outcome(kind="table", name=spec.name, done="kept", note=note)


def _foreign(topology: Topology, foreign: ForeignTable, tables: TableStore) -> Iterator[Outcome]:
    """A table of others is never made here; its families are replicated from now on, where they are not."""
    families = {each.name: each for each in tables.tables(foreign.table.partition(":")[0]).get(foreign.table, ())}
    missing = [name for name in foreign.families if name not in families]
    if missing:
        there = f"families {', '.join(families)}" if families else "no such table"
        raise topology.error(
            f"foreign_tables.{foreign.name}.table",
            f"HBase has {there}",
            f"table {foreign.table} with {', '.join(missing)}",
        )
    changed = [name for name in foreign.families if not families[name].replicated]
    for name in changed:
        tables.replicate(foreign.table, FamilySpec(name=name, replicated=True))
    note = f"families {', '.join(changed)} are replicated now" if changed else "written by others"
    yield Outcome(kind="table", name=foreign.table, done="changed" if changed else "kept", note=note)


def _peer(spec: PeerSpec, existing: dict[str, PeerSpec], peers: PeerStore, names: PeerNames) -> Outcome:
    if spec.id not in existing:
        peers.add_peer(spec)
        names.mark_made(spec.id)
        return Outcome(kind="peer", name=spec.id, done="made", note=f"serial, of {spec.tables[0]}")
    found = existing[spec.id]
    if (found.cluster_key, found.tables, found.serial) != (spec.cluster_key, spec.tables, spec.serial):
        raise UsageError(
            f"replication peer {spec.id} exists, but replicates {', '.join(found.tables) or 'everything'} "
            f"to {found.cluster_key}{'' if found.serial else ', not serially'}",
            "give the index another name: a peer is never removed and made again under its name",
        )
    if not found.enabled:
        raise UsageError(
            f"replication peer {spec.id} is disabled: HBase keeps its backlog and ships nothing",
            f"enable it in HBase's shell: enable_peer '{spec.id}'",
        )
    names.mark_made(spec.id)
    return Outcome(kind="peer", name=spec.id, done="kept", note=f"serial, of {spec.tables[0]}")
