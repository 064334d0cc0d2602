"""Read an index of the demo in its search engine: the versions that queries show, and every document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from cdc.topology.topology import Index, Topology
from indexer.solr.solr_http import reading_session
from indexer.solr.solr_rows import all_documents
from tailorbird.devtools.demo.run_freshness import LookUp
from tailorbird.devtools.demo.solr_versions import solr_versions

_PAGE = 2000


def shown_versions(topology: Topology, index: Index, *, key: str, version: str) -> LookUp:
    """Return a function that searches some keys in an index, and returns the visible version of each."""
    if index.type == "solr":
        url = f"{topology.solr.url}/{index.collection}"
        return solr_versions(url, key=key, version=version, session=reading_session(topology.solr))
    from indexer.opensearch.opensearch_collection import OpenSearchCollection

    collection = OpenSearchCollection(topology.opensearch, index.collection, commit_within=index.commit_within)

    def look(keys: Sequence[int]) -> Mapping[int, int]:
        asked = {"size": len(keys), "query": {"terms": {key: list(keys)}}, "_source": [key, version]}
        hits = collection.search(asked)["hits"]["hits"]
        return {int(hit["_source"][key]): int(hit["_source"][version]) for hit in hits}

    return look


def shown_documents(topology: Topology, index: Index) -> Iterator[Mapping[str, Any]]:
    """Yield the document of every visible row of an index. Raises Retriable if its engine does not answer."""
    if index.type == "solr":
        yield from all_documents(topology.solr.url, index.collection, session=reading_session(topology.solr))
        return
    from indexer.opensearch.opensearch_collection import OpenSearchCollection

    with closing(
        OpenSearchCollection(topology.opensearch, index.collection, commit_within=index.commit_within)
    ) as collection:
        for page in collection.rows(_PAGE):
            yield from page
