"""Identify an index and its table. After a rebuild or a change of either, the identity is another one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import structlog

from cdc.model.errors import Retriable
from cdc.model.naming import peer
from cdc.topology.topology import Index, Topology
from indexer.peer.zk_registration import session
from indexer.rebuild.zk_state import Generations, StoredTargets

log = structlog.get_logger()


class TableIdentity(Protocol):
    """Returns what identifies a table's contents and their mapping to documents."""

    def identity(self) -> Mapping[str, str]: ...


class IndexIdentity:
    """Reads the identity of one index. Its collections, and how often they changed, are in ZooKeeper."""

    def __init__(self, topology: Topology, index: Index, table: TableIdentity) -> None:
        self._topology, self._index, self._table = topology, index, table

    def read(self) -> Mapping[str, str] | None:
        """Return the current identity, or None while ZooKeeper is unavailable.

        Raises Retriable while HBase is unavailable."""
        topology, index = self._topology, self._index
        try:
            with session(topology.hbase.zookeeper) as client:
                name = peer(topology.name, index.name, Generations(client).current(topology.name, index.name))
                targets = StoredTargets(client, name, collection=index.collection).read()
        except Retriable as error:
            log.warning("collections_unknown", index=index.name, reason=str(error), effect="all rows are compared")
            return None
        at = f"{topology.solr.url} {name} {targets.epoch} {' '.join(targets.collections)}"
        return {**self._table.identity(), "collection": at}
