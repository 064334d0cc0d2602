"""Read the documents of one index in OpenSearch that searches see: the far end of the index stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cdc.stored import fields
from indexer.engine.engine import SearchCollection
from indexer.index.mapping import Document
from indexer.opensearch.mappings import KEY, document_of
from indexer.opensearch.opensearch_collection import OpenSearchCollection
from tailorbird.verify.proc_prefetch import prefetch
from tailorbird.verify.settling import SettlingPolicy

_PAGE = 2000
_KEYS_ONLY = 10_000  # OpenSearch's limit of a page
_KEYS = 500
_POLL = 0.1
_ROWS: Mapping[str, Any] = {"term": {fields.KIND: fields.ROW}}


class OpenSearchDocuments:
    """Reads one collection as searches see it. Raises Retriable while OpenSearch is unavailable or lacks it."""

    def __init__(self, collection: OpenSearchCollection, *, settling: SettlingPolicy) -> None:
        self._collection, self._settling = collection, settling

    def close(self) -> None:
        """Do nothing: the caller closes the collection."""

    def count(self) -> int:
        """Return the current number of row documents."""
        answer = self._collection.search({"size": 0, "track_total_hits": True, "query": _ROWS})
        return int(answer["hits"]["total"]["value"])

    def scan(self) -> Iterator[tuple[str, Document]]:
        """Yield every row's document in the order of the ids. Memory is bounded, because it reads pages."""
        for page in prefetch(self._collection.rows(_PAGE)):
            yield from map(_compared, page)

    def versions(self) -> Iterator[tuple[str, int]]:
        """Yield id and fence of every document. This costs a fraction of `scan`."""
        for page in prefetch(self._collection.rows(_KEYS_ONLY, [KEY, fields.FENCE])):
            for source in page:
                yield str(source[KEY]), int(source[fields.FENCE])

    def documents(self, ids: Sequence[str]) -> Mapping[str, Document]:
        """Return the documents with these ids that searches see."""
        found: dict[str, Document] = {}
        for start in range(0, len(ids), _KEYS):
            some = list(ids[start : start + _KEYS])
            query = {"bool": {"filter": [_ROWS, {"terms": {KEY: some}}]}}
            hits = self._collection.search({"size": len(some), "query": query})["hits"]["hits"]
            found.update(_compared(hit["_source"]) for hit in hits)
        return found

    def visible(self) -> int | None:
        """Return the batch timestamp (ms) up to which searches see everything. None before every salt bucket has a
        barrier."""
        return self._collection.visible_timestamp()

    def wait(self, timestamp: int) -> bool:
        """Wait until searches see everything up to a timestamp. Return False if the settling policy gives up."""
        self._settling.begin(time.monotonic())
        while (visible := self.visible()) is None or visible < timestamp:
            if self._settling.used_up(visible, time.monotonic()):
                return False
            time.sleep(_POLL)
        return True


def opened_documents(collection: SearchCollection, *, settling: SettlingPolicy) -> OpenSearchDocuments:
    """Return the documents of a collection that is in OpenSearch."""
    assert isinstance(collection, OpenSearchCollection)
    return OpenSearchDocuments(collection, settling=settling)


def _compared(source: dict[str, Any]) -> tuple[str, Document]:
    """Return a document's id and its compared fields."""
    document = document_of(source)
    document.pop(fields.INDEXED_AT, None)
    return str(document[fields.UNIQUE_KEY]), document
