"""Read the rows and fields of an index's collection from OpenSearch, without a refresh."""

from __future__ import annotations

from urllib.parse import quote

from cdc.model.errors import Retriable
from cdc.topology.topology import Index, OpenSearch
from indexer.opensearch.mappings import known_types
from indexer.opensearch.opensearch_client import UNAVAILABLE, OpenSearchClient
from tailorbird.deploy.plan.seen import SeenCollection

_TIMEOUT = 10.0


def seen_in_opensearch(server: OpenSearch, index: Index) -> SeenCollection | None:
    """Return the rows, fields and shards of an index's collection, or None if it does not exist.

    Raises Retriable while OpenSearch is unavailable."""
    client = OpenSearchClient(server, timeout=_TIMEOUT)
    try:
        status, described = client.call("GET", f"/{quote(index.collection)}")
        if status == 404:
            return None
        # the alias hides what is no row
        counted, answer = client.call("GET", f"/{quote(index.collection)}/_count")
        if status != 200 or counted != 200:
            what = f"OpenSearch at {server.url} cannot describe {index.collection}: HTTP {status}, {counted}"
            raise Retriable(what, UNAVAILABLE)
    finally:
        client.close()
    [found] = described.values()
    return SeenCollection(
        rows=int(answer["count"]),
        fields=known_types(found["mappings"].get("properties", {})),
        shards=int(found["settings"]["index"]["number_of_shards"]),
    )
