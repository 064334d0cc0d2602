"""Read the documents of one index that are visible to queries: the far end of the index stage."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from cdc.model.errors import Retriable
from cdc.stored import fields
from cdc.topology.topology import Index, Topology
from indexer.engine.engine import SearchCollection
from indexer.index.mapping import Document
from indexer.solr.solr_http import UNAVAILABLE, SolrConnections
from tailorbird.verify.index.index_leaves import IdRange, RangeSum
from tailorbird.verify.proc_prefetch import prefetch
from tailorbird.verify.settling import SettlingPolicy

_PAGE = 2000
_KEYS_ONLY = 20_000
_KEYS = 500
_SUMS, _RANGES = 500, 25  # ranges per request
_POLL = 0.1
# Solr assigns `_version_` before it indexes a document, and each shard commits by itself. The greatest visible one
# says nothing about writes of the last minute, nor about those that wait for their commit.
_LATE_SECONDS = 60.0
_VERSION_MS = 1 << 20  # a `_version_` is a time (ms) times this
# In one pass, each shard would return a whole page of documents. In two, a document may be a tombstone by the second.
_TWO_PASSES = {"distrib.singlePass": "false"}
_ROWS = f"{fields.KIND}:{fields.ROW}"
# Derived fields for queries. They are not stored, but Solr returns those with docValues.
_MADE = fields.MADE
_OURS = frozenset({fields.INDEXED_AT, "_version_"})


class VisibleDocuments:
    """Reads one collection as queries see it. Raises Retriable while Solr is unavailable or lacks the collection."""

    def __init__(
        self, topology: Topology, index: Index, collection: SearchCollection, *, settling: SettlingPolicy
    ) -> None:
        self._url = topology.solr.url
        self._path = f"/{index.collection}/select"
        self._name = index.collection
        self.late = late_versions(index.commit_within)
        self._connections = SolrConnections(topology.solr, timeout=60.0)
        self._collection = collection
        self._settling = settling

    def close(self) -> None:
        """Close the connections."""
        self._connections.close()

    def count(self) -> int:
        """Return the current number of row documents."""
        return int(self._select({"q": "*:*", "fq": _ROWS, "rows": 0})["response"]["numFound"])

    def scan(self) -> Iterator[tuple[str, Document]]:
        """Yield every row's document in the order of the ids. Memory is bounded, because it reads pages."""
        for page in prefetch(self._pages(_PAGE)):
            yield from map(_compared, page)

    def versions(self) -> Iterator[tuple[str, int]]:
        """Yield id and fence of every document. This costs a fraction of `scan`."""
        for page in prefetch(self._pages(_KEYS_ONLY, fl=f"{fields.UNIQUE_KEY},{fields.FENCE},{fields.KIND}")):
            for document in page:
                yield str(document[fields.UNIQUE_KEY]), int(document[fields.FENCE])

    def within(self, ranges: Sequence[IdRange]) -> Iterator[tuple[str, Document]]:
        """Yield the documents of some ascending ranges, in the order of the ids."""
        for page in prefetch(self._pages_within(ranges)):
            yield from map(_compared, page)

    def _pages_within(self, ranges: Sequence[IdRange]) -> Iterator[list[dict[str, Any]]]:
        for start in range(0, len(ranges), _RANGES):
            some = " OR ".join(map(_within, ranges[start : start + _RANGES]))
            yield from self._pages(_PAGE, fq=[_ROWS, f"{{!cache=false}}{some}"])

    def sums(self, ranges: Sequence[IdRange]) -> Sequence[RangeSum]:
        """Return the number of documents and the sum of their versions for each range, which Solr computes."""
        found: list[RangeSum] = []
        for start in range(0, len(ranges), _SUMS):
            some = ranges[start : start + _SUMS]
            # not cached: the ranges would replace the filters that users' queries need
            facets = {
                str(number): {
                    "type": "query",
                    "q": f"{{!cache=false}}{_within(ids)}",
                    "facet": {"v": f"sum({fields.FENCE})"},
                }
                for number, ids in enumerate(some)
            }
            answer = self._select({"q": "*:*", "fq": _ROWS, "rows": 0, "json.facet": orjson.dumps(facets).decode()})
            for number in range(len(some)):
                one = answer["facets"].get(str(number), {})
                found.append(RangeSum(int(one.get("count", 0)), int(one.get("v", 0))))
        return found

    def newest(self) -> int:
        """Return the greatest `_version_`, which Solr assigns to each write; 0 without a document."""
        answer = self._select({"q": "*:*", "fl": "_version_", "sort": "_version_ desc", "rows": 1})
        return max([int(one["_version_"]) for one in answer["response"]["docs"]], default=0)

    def rewritten(self, since: int) -> Iterator[str]:
        """Yield the ids of the documents with a greater `_version_`."""
        later = f"{{!cache=false}}_version_:{{{since} TO *}}"
        for page in self._pages(_KEYS_ONLY, fl=f"{fields.UNIQUE_KEY},{fields.KIND}", fq=[_ROWS, later]):
            yield from (str(one[fields.UNIQUE_KEY]) for one in page)

    def documents(self, ids: Sequence[str]) -> Mapping[str, Document]:
        """Return the documents with these ids that queries see."""
        found: dict[str, Document] = {}
        for start in range(0, len(ids), _KEYS):
            some = [key for key in ids[start : start + _KEYS] if "\x1f" not in key]
            query = f"{{!terms f={fields.UNIQUE_KEY} separator='\x1f'}}" + "\x1f".join(some)
            answer = self._select({"q": query, "fq": _ROWS, "rows": len(some)})
            found.update(map(_compared, answer["response"]["docs"]))
        return found

    def visible(self) -> int | None:
        """Return the batch timestamp (ms) up to which queries see everything. None before every salt bucket has a
        barrier."""
        return self._collection.visible_timestamp()

    def wait(self, timestamp: int) -> bool:
        """Wait until queries see everything up to a timestamp. Return False if the settling policy gives up."""
        self._settling.begin(time.monotonic())
        while (visible := self.visible()) is None or visible < timestamp:
            if self._settling.used_up(visible, time.monotonic()):
                return False
            time.sleep(_POLL)
        return True

    def _pages(self, rows: int, **more: str | Sequence[str]) -> Iterator[list[dict[str, Any]]]:
        mark, order = "*", f"{fields.UNIQUE_KEY} asc"
        while True:
            asked = {"q": "*:*", "fq": _ROWS, "sort": order, "rows": rows, "cursorMark": mark, **more, **_TWO_PASSES}
            answer = self._select(asked)
            documents = answer["response"]["docs"]
            if found := [one for one in documents if one.get(fields.KIND) == fields.ROW]:
                yield found
            # a page may lack documents that vanished between the passes, so a short one need not be the last
            if answer["nextCursorMark"] == mark:
                return
            mark = answer["nextCursorMark"]

    def _select(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        status, answer = self._connections.json("POST", self._path, {"params": {"wt": "json", **parameters}})
        if status == 404:
            raise Retriable(f"Solr does not serve collection {self._name}", "`tailorbird apply` creates it")
        if status != 200:
            reported = str(answer.get("error", {}).get("msg", ""))[:200]
            raise Retriable(f"Solr at {self._url}/{self._name}: HTTP {status} for a query: {reported}", UNAVAILABLE)
        return answer


def late_versions(commit_within: float) -> int:
    """Return by how much the `_version_` of a write may be below the greatest visible one and not be visible yet.

    `commit_within`: the index's own, in seconds."""
    return round((_LATE_SECONDS + commit_within) * 1000) * _VERSION_MS


def _within(ids: IdRange) -> str:
    return f"{fields.UNIQUE_KEY}:[{ids.start or '*'} TO {ids.stop or '*'}{']' if ids.stop is None else '}'}"


def _compared(document: dict[str, Any]) -> tuple[str, Document]:
    """Return a document's id and its compared fields."""
    key = str(document[fields.UNIQUE_KEY])
    for name in [name for name in document if name in _OURS or name.startswith(_MADE)]:
        del document[name]
    return key, document
