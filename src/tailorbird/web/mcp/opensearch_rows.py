"""Read rows of an index from OpenSearch."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.topology.topology import OpenSearch
from indexer.opensearch.mappings import document_of
from indexer.opensearch.opensearch_collection import OpenSearchCollection
from tailorbird.web.dashboard.view import IndexField
from tailorbird.web.mcp.bodies import MOST_REACHED, changes_body, index_fields, search_body
from tailorbird.web.mcp.protocol import ToolRefusal
from tailorbird.web.mcp.searches import ROWS_AT_ONCE, Documents, RowsChanged, RowsFound, RowsSearch

_SECONDS_TO_ANSWER = 10.0


class OpenSearchRows:
    """Reads one collection. Implements `RowsReader`."""

    def __init__(self, server: OpenSearch, collection: str) -> None:
        # it writes nothing, so the refresh interval has no effect
        self._collection = OpenSearchCollection(server, collection, commit_within=1.0, timeout=_SECONDS_TO_ANSWER)

    def fields(self) -> dict[str, IndexField]:
        """See `RowsReader`."""
        return index_fields(self._collection.known_fields())

    def found(self, search: RowsSearch) -> RowsFound:
        """See `RowsReader`. Raises ToolRefusal for rows that OpenSearch does not reach by their number."""
        if search.offset + search.limit > MOST_REACHED:
            what = f"offset and limit together exceed {MOST_REACHED:,}, the limit of OpenSearch"
            raise ToolRefusal(f"{what}; narrow the search down with filters")
        hits = self._collection.search(search_body(search))["hits"]
        documents = [document_of(hit["_source"]) for hit in hits["hits"]]
        return RowsFound(documents=documents, total=int(hits["total"]["value"]))

    def changed(self, asked: RowsChanged) -> Iterator[Documents]:
        """See `RowsReader`."""
        last = None
        while True:
            hits = self._collection.search(changes_body(asked, last))["hits"]["hits"]
            yield [document_of(hit["_source"]) for hit in hits]
            if len(hits) < ROWS_AT_ONCE:
                return
            last = hits[-1]["sort"]
