"""Protocols of HBase, search engines and ZooKeeper for provisioning, and descriptions of the objects to create."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from cdc.topology.topology import Index


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilySpec:
    """A column family of an HBase table. If it is `replicated` (REPLICATION_SCOPE 1), peers receive its writes."""

    name: str
    replicated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSpec:
    """A table `namespace:name` with one family and fixed split keys."""

    name: str
    family: FamilySpec
    splits: tuple[bytes, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerSpec:
    """A replication peer that receives the writes of some tables. A `serial` one receives them in order per region.

    `cluster_key` is the ZooKeeper address under which HBase finds the receivers. If it is not `enabled`, HBase keeps
    the writes for it."""

    id: str
    cluster_key: str
    tables: tuple[str, ...]
    serial: bool
    enabled: bool


class TableStore(Protocol):
    """Namespaces and tables of HBase's master (tailorbird.provision.hbase_admin)."""

    def namespaces(self) -> set[str]: ...
    def create_namespace(self, name: str) -> None: ...
    def tables(self, namespace: str) -> dict[str, tuple[FamilySpec, ...]]: ...
    def create_table(self, table: TableSpec) -> None: ...
    def replicate(self, table: str, family: FamilySpec) -> None: ...
    def has_rows(self, table: str) -> bool: ...
    def regions(self, table: str) -> int: ...


class PeerStore(Protocol):
    """Replication peers of HBase's master (tailorbird.provision.hbase_admin)."""

    def peers(self) -> dict[str, PeerSpec]: ...
    def add_peer(self, peer: PeerSpec) -> None: ...


class CollectionStore(Protocol):
    """Collections of a search engine (tailorbird.provision.engine_admin)."""

    def exists(self, collection: str) -> bool: ...
    def create(self, collection: str, *, shards: int = 1) -> None: ...


class PeerNames(Protocol):
    """Names of replication peers (indexer.rebuild.zk_state). The name of a removed peer is never used again.

    `current` and `advance` return the generation, a number in the name. `was_made` returns whether HBase ever had a
    peer of that name."""

    def current(self, topology: str, index: str) -> int: ...
    def advance(self, topology: str, index: str) -> int: ...
    def was_made(self, peer: str) -> bool: ...
    def mark_made(self, peer: str) -> None: ...


class Backfills(Protocol):
    """Fills new indexes by a scan (tailorbird.cli.index.cli_index_rebuild).

    `note` records that an index must be filled, so that a later apply does it if this one is interrupted."""

    def note(self, index: Index, peer: str) -> None: ...
    def noted(self, index: Index, peer: str) -> bool: ...
    def run(self, index: Index, peer: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Stores:
    """Access to all servers. `cluster_key` returns the address of the indexers for a peer's name.

    `collections` connects to the search engine of an index, so a topology without indexes needs none."""

    tables: TableStore
    peers: PeerStore
    collections: Callable[[Index], CollectionStore]
    names: PeerNames
    backfills: Backfills
    cluster_key: Callable[[str], str]
