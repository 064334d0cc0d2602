"""Read the barriers of an index, which contain the source positions that queries see."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pysolr
import requests

from cdc.model.errors import Retriable
from cdc.stored import fields
from cdc.topology.topology import Topology
from indexer.solr.solr_collection import visible_timestamp
from indexer.solr.solr_http import reading_session
from tailorbird.operate.status.index_status import VisibleCut


def visible_sequences(collection_url: str, session: requests.Session | None = None) -> dict[str, int]:
    """Return, by source, the sequence up to which queries see every change. Empty before every salt bucket has a
    barrier."""
    return {name: int(one["sequence"]) for name, one in visible_positions(collection_url, session).items()}


def visible_cuts(topology: Topology) -> dict[str, VisibleCut]:
    """Return what queries of each index over a joined table see. Raises Retriable while Solr is unavailable."""
    with reading_session(topology.solr) as session:
        return {
            one.name: VisibleCut(
                sequences=visible_sequences(f"{topology.solr.url}/{one.collection}", session),
                timestamp_ms=visible_timestamp(topology.solr, one.collection),
            )
            for one in topology.indexes.values()
            if one.table in topology.tables
        }


def visible_positions(collection_url: str, session: requests.Session | None = None) -> dict[str, Mapping[str, Any]]:
    """Return, by source, the position (sequence, gtid_set, offset) up to which queries see everything.

    It is the minimum over the barriers of all salt buckets. Empty before every bucket has a barrier. Raises Retriable
    while Solr is unavailable."""
    try:
        found = pysolr.Solr(collection_url, timeout=10, session=session).search(
            "*:*", fq=f"{fields.KIND}:{fields.BARRIER}", fl=f"{fields.BUCKETS},{fields.POSITIONS}", rows=300
        )
    except pysolr.SolrError as error:
        raise Retriable(f"Solr at {collection_url}: {str(error)[:200]}", "tailorbird stack status") from error
    barriers = list(found)
    if not barriers or len(barriers) < int(barriers[0][fields.BUCKETS]):
        return {}
    positions: list[dict[str, Mapping[str, Any]]] = [json.loads(barrier[fields.POSITIONS]) for barrier in barriers]
    sources = set.intersection(*(set(p) for p in positions))
    return {source: min((p[source] for p in positions), key=lambda one: int(one["offset"])) for source in sources}
