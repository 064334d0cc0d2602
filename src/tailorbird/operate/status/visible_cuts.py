"""Read up to where queries of each index see everything, from its barriers."""

from __future__ import annotations

from cdc.topology.topology import Index, Topology
from indexer.engine.engine import open_collection, visible_positions
from indexer.index.barriers import positions_of, timestamp_of
from tailorbird.operate.status.index_status import VisibleCut


def visible_sequences(topology: Topology, index: Index) -> dict[str, int]:
    """Return, by source, the sequence up to which queries of an index see every change. Empty before every salt bucket
    has a barrier. Raises Retriable while the search engine is unavailable."""
    return {name: int(one["sequence"]) for name, one in visible_positions(topology, index).items()}


def visible_cuts(topology: Topology) -> dict[str, VisibleCut]:
    """Return what queries of each index over a joined table see. Raises Retriable while a search engine is
    unavailable."""
    return {one.name: visible_cut(topology, one) for one in topology.indexes.values() if one.table in topology.tables}


def visible_cut(topology: Topology, index: Index) -> VisibleCut:
    """Return what queries of one index see. Raises Retriable while its search engine is unavailable."""
    collection = open_collection(topology, index)
    try:
        barriers = collection.barriers()
    finally:
        collection.close()
    sequences = {name: int(one["sequence"]) for name, one in positions_of(barriers).items()}
    return VisibleCut(sequences=sequences, timestamp_ms=timestamp_of(barriers))
