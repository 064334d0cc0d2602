"""Read rows of an index from Solr."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.topology.topology import Solr
from tailorbird.web.dashboard.solr_view import SolrView
from tailorbird.web.dashboard.view import IndexField
from tailorbird.web.mcp.searches import Documents, RowsChanged, RowsFound, RowsSearch, changes_params, search_params


class SolrRows:
    """Reads one collection. Implements `RowsReader`."""

    def __init__(self, solr: Solr, collection: str) -> None:
        self._view = SolrView(solr, collection)

    def fields(self) -> dict[str, IndexField]:
        """See `RowsReader`."""
        return self._view.fields()

    def found(self, search: RowsSearch) -> RowsFound:
        """See `RowsReader`."""
        answer = self._view.select(search_params(search))["response"]
        return RowsFound(documents=answer["docs"], total=answer["numFound"])

    def changed(self, asked: RowsChanged) -> Iterator[Documents]:
        """See `RowsReader`."""
        mark, following = "", "*"
        while following != mark:
            mark = following
            answer = self._view.select(changes_params(asked, mark))
            yield answer["response"]["docs"]
            following = answer["nextCursorMark"]
