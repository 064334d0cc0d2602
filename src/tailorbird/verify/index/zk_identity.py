"""Identify an index and its table. After a rebuild or a change of either, the identity is another one."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from typing import Protocol

import structlog

from cdc.model import geometry
from cdc.model.errors import Retriable
from cdc.model.naming import peer
from cdc.stored import cells, fields, values
from cdc.topology.topology import Index, Topology
from indexer.index import collapse, mapping
from indexer.peer.zk_registration import session
from indexer.rebuild.zk_state import Generations, StoredTargets

log = structlog.get_logger()


class TableIdentity(Protocol):
    """Returns what identifies a table's contents and their mapping to documents."""

    def identity(self) -> Mapping[str, str]: ...


class FieldTypes(Protocol):
    """Returns the type of each field of a collection."""

    def field_types(self) -> Mapping[str, str]: ...


class IndexIdentity:
    """Reads the identity of one index. Its collections, and how often they changed, are in ZooKeeper."""

    def __init__(self, topology: Topology, index: Index, table: TableIdentity, collection: FieldTypes) -> None:
        self._topology, self._index, self._table, self._collection = topology, index, table, collection

    def read(self) -> Mapping[str, str] | None:
        """Return the current identity, or None while ZooKeeper is unavailable.

        Raises Retriable while HBase or Solr is unavailable."""
        topology, index = self._topology, self._index
        try:
            with session(topology.hbase.zookeeper) as client:
                name = peer(topology.name, index.name, Generations(client).current(topology.name, index.name))
                targets = StoredTargets(client, name, collection=index.collection).read()
        except Retriable as error:
            log.warning("collections_unknown", index=index.name, reason=str(error), effect="all rows are compared")
            return None
        types = sorted(self._collection.field_types().items())
        return {
            **self._table.identity(),
            "collection": f"{topology.solr.url} {name} {targets.epoch} {' '.join(targets.collections)}",
            "field type": sha256(repr(types).encode()).hexdigest(),
            "version of the mapping": mapping_code(),
        }


@cache
def mapping_code() -> str:
    """Return a digest of the code that makes documents of rows, so that no edit of it can be forgotten."""
    modules = (mapping, collapse, cells, fields, values, geometry)
    return sha256("".join(map(inspect.getsource, modules)).encode()).hexdigest()
