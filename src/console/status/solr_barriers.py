"""Reads an index's barriers: which source positions a query sees for certain."""

from __future__ import annotations

import json

import pysolr
import requests

from cdc.stored import fields
from cdc.words.errors import Retriable


def visible_sequences(collection_url: str, session: requests.Session | None = None) -> dict[str, int]:
    """The sequence of each source up to which every change is visible to queries; empty before the first full cut.

    A cut is visible when every salt bucket's barrier is: the least of the buckets' sequences holds.
    """
    try:
        found = pysolr.Solr(collection_url, timeout=10, session=session).search(
            "*:*", fq=f"{fields.KIND}:{fields.BARRIER}", rows=300
        )
    except pysolr.SolrError as error:
        raise Retriable(f"Solr at {collection_url}: {str(error)[:200]}", "tailorbird stack status") from error
    barriers = list(found)
    if not barriers or len(barriers) < int(barriers[0][fields.BUCKETS]):
        return {}
    positions = [json.loads(barrier[fields.POSITIONS]) for barrier in barriers]
    sources = set.intersection(*(set(p) for p in positions))
    return {source: min(int(p[source]["sequence"]) for p in positions) for source in sources}
