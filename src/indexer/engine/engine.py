"""A collection of one index in its search engine. The only place that chooses between engines.

An engine must do what `SearchCollection` requires; `tests/contracts/test_indexes.py` checks it for each engine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any, Protocol

from cdc.topology.topology import Index, Topology
from indexer.foreign.writer import ConditionalCollection
from indexer.index.barriers import IndexProgress, positions_of, progress_of
from indexer.index.mapping import Document, Field
from indexer.index.processor import Collection
from indexer.solr.solr_collection import SolrCollection


class SearchCollection(Collection, ConditionalCollection, Protocol):
    """One collection. Threads may share it. Every method raises Retriable while the engine is unavailable.

    - `know_fields` returns the fields that the collection lacks; `field_types` the type of each field.
    - `converted` converts a document for the fields of the collection. It raises ValueError if it does not fit.
    - `barriers` returns the barriers that queries see, with version, timestamp, number of buckets and
      positions.
    - `visible_timestamp` returns the timestamp (ms) up to which queries see every row, or None.
    - `purge_tombstones` deletes tombstones older than `before_ms` and the last complete barrier, and returns their
      number.
    - `count_rows` returns the number of rows that were last written before `until_ms`, including those that queries do
      not see yet. `stored` returns documents by id, including those."""

    def close(self) -> None: ...
    def exists(self) -> bool: ...
    def know_fields(self, wanted: Iterable[Field]) -> list[Field]: ...
    def field_types(self) -> dict[str, str]: ...
    def converted(self, document: Document) -> Document: ...
    def barriers(self) -> list[dict[str, Any]]: ...
    def visible_timestamp(self) -> int | None: ...
    def purge_tombstones(self, *, before_ms: int, buckets: int) -> int: ...
    def count_rows(self, *, until_ms: int) -> int: ...
    def stored(self, keys: Sequence[str]) -> dict[str, Document]: ...


def open_collection(topology: Topology, index: Index, name: str | None = None) -> SearchCollection:
    """Return a collection of an index, by default the one that queries use. The caller closes it."""
    chosen, commit_within = name or index.collection, index.commit_within
    if index.type == "opensearch":
        # imported here: its library would slow down every command, and not every extra installs it
        from indexer.opensearch.opensearch_collection import OpenSearchCollection

        foreign = topology.foreign_tables.get(index.table)
        fenced = foreign is None or foreign.read_row == "never"
        return OpenSearchCollection(topology.opensearch, chosen, commit_within=commit_within, fenced=fenced)
    return SolrCollection(topology.solr, chosen, commit_within=commit_within)


def visible_positions(topology: Topology, index: Index) -> dict[str, Mapping[str, Any]]:
    """Return, by source, the position (sequence, gtid_set, offset) up to which queries of an index see everything.

    Empty before every salt bucket has a barrier. Raises Retriable while the engine is unavailable."""
    with closing(open_collection(topology, index)) as found:
        return positions_of(found.barriers())


def visible_progress(topology: Topology, index: Index) -> IndexProgress:
    """Return up to where queries of an index see everything, with one request.

    Raises Retriable while the engine is unavailable."""
    with closing(open_collection(topology, index)) as found:
        return progress_of(found.barriers())


def visible_timestamp(topology: Topology, index: Index) -> int | None:
    """Return the timestamp (ms) up to which queries of an index see every row.

    None without barriers, or before every salt bucket has one. Raises Retriable while the engine is unavailable or
    does not serve the collection."""
    with closing(open_collection(topology, index)) as found:
        return found.visible_timestamp()
