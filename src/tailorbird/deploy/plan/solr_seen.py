"""Read the rows and fields of an index's collection from Solr, without a commit."""

from __future__ import annotations

from urllib.parse import urlencode

from cdc.model.errors import Retriable
from cdc.stored import fields
from cdc.topology.topology import Index, Solr
from indexer.solr.solr_http import UNAVAILABLE, SolrConnections
from tailorbird.deploy.plan.seen import SeenCollection

_TIMEOUT = 10.0


def seen_collection(solr: Solr, index: Index) -> SeenCollection | None:
    """Return the rows, fields and shards of an index's collection, or None if it does not exist.

    Raises Retriable while Solr is unavailable."""
    connections = SolrConnections(solr, timeout=_TIMEOUT)
    try:
        status, schema = connections.json("GET", f"/{index.collection}/schema/fields")
        if status == 404:
            return None
        asked = urlencode({"q": f"{fields.KIND}:{fields.ROW}", "rows": 0, "shards.info": "true", "wt": "json"})
        found, answer = connections.json("GET", f"/{index.collection}/select?{asked}")
        if status != 200 or found != 200:
            what = f"Solr at {solr.url} cannot describe {index.collection}: HTTP {status}, {found}"
            raise Retriable(what, UNAVAILABLE)
    finally:
        connections.close()
    return SeenCollection(
        rows=int(answer["response"]["numFound"]),
        fields={one["name"]: (one["type"], bool(one.get("multiValued"))) for one in schema["fields"]},
        # Solr omits the section if it asks only one shard
        shards=max(1, len(answer.get("shards.info", ()))),
    )
