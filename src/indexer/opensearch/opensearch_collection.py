"""OpenSearch collection of one index: its fields, and fenced writes that find the documents that OpenSearch refuses.

A collection is an alias of one index. Each write has the document's version as external version, so OpenSearch refuses
(409) one that is not newer than the stored one, and so does nothing. A deleted row leaves a small document, because
OpenSearch forgets the version of a deleted document after `index.gc_deletes`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from urllib.parse import quote

import structlog

from cdc.model.errors import Fatal, Retriable
from cdc.stored import fields
from cdc.topology.topology import OpenSearch
from indexer.index.barriers import timestamp_of
from indexer.index.mapping import Document, Field, fitted
from indexer.index.processor import RefusedDocument
from indexer.opensearch.bulk import CONFLICT, DONE, REFUSED, BulkAction, bulk_body, results_of
from indexer.opensearch.conditions import WriteNumber, condition_of, token_of
from indexer.opensearch.mappings import KEY, LONGEST_KEY, document_of, id_of, known_types, properties_of
from indexer.opensearch.opensearch_client import OpenSearchClient, missing, reason_of

# More concurrent requests would only wait for OpenSearch's processors.
_POSTS = 4
# Attempts to read the mapping again because another process, a rebuild or an indexer, was faster to add a field.
_ADD_ATTEMPTS = 10
_PAGE = 1000
_BARRIERS = 300
_WRITE_TIMEOUT = "10s"
_GC_SECONDS = 0.1  # a bit of `index.gc_deletes`
_RESULTS = "items.*.status,items.*._id,items.*.error"

log = structlog.get_logger()


class OpenSearchCollection:
    """Writes documents to one collection. Threads may share it.

    `commit_within` (seconds) is the refresh interval, so it bounds the time until searches see a document. Documents
    that `post` has accepted are in OpenSearch's transaction log, on all copies. `fenced`: the versions of documents are
    their fences; external tables that are indexed by compare-and-set have none."""

    def __init__(
        self,
        server: OpenSearch,
        collection: str,
        *,
        commit_within: float,
        fenced: bool = True,
        timeout: float = 15.0,
    ) -> None:
        self._name, self._commit_within, self._fenced = collection, commit_within, fenced
        self._path = f"/{quote(collection)}"
        self._client = OpenSearchClient(server, timeout=timeout)
        self._posts = ThreadPoolExecutor(_POSTS, thread_name_prefix="post")
        self._schema_lock, self._refresh_lock = threading.Lock(), threading.Lock()
        self._refreshes, self._newest_refresh = count(1), 0
        self._set_up = False
        # field → its type and whether it takes several values, if a layout requires other ones
        self._conversions: dict[str, tuple[str, bool]] = {}

    def close(self) -> None:
        """Wait for running writes and close the connections."""
        self._posts.shutdown()
        self._client.close()

    def exists(self) -> bool:
        """Return whether the collection exists. Raises Retriable while OpenSearch is unavailable."""
        return self._client.call("GET", f"/_alias{self._path}")[0] == 200

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        """Add the fields that the mapping lacks. Return whether any was missing.

        A field keeps its type, even if the column's type has changed. Values that fit are then converted, and others
        are refused, until the index is rebuilt. Raises Retriable while other processes add fields, too."""
        fields_wanted, added = list(wanted), False
        with self._schema_lock:
            self._set_refresh_interval()
            for _ in range(_ADD_ATTEMPTS):
                lacking = self._lacking(fields_wanted)
                if not lacking:
                    return added
                status, answer = self._client.call(
                    "PUT", f"{self._path}/_mapping", {"properties": properties_of(lacking)}
                )
                if status == 404:
                    raise missing(self._name)
                if status == 200:
                    added = True
                elif "cannot be changed" not in reason_of(answer) and "merge" not in reason_of(answer):
                    raise Fatal(f"OpenSearch refused fields of collection {self._name}: {reason_of(answer)}")
        raise Retriable(f"other processes add fields to collection {self._name}", "wait: this ends without action")

    def know_fields(self, wanted: Iterable[Field]) -> list[Field]:
        """Return the fields that the mapping lacks, and write nothing.

        Also remembers the types of the other fields, which `converted` needs."""
        with self._schema_lock:
            return self._lacking(list(wanted))

    def field_types(self) -> dict[str, str]:
        """Return the type of each field of the mapping."""
        return {name: _type_text(*one) for name, one in self.known_fields().items()}

    def _set_refresh_interval(self) -> None:
        if not self._set_up:
            wanted = {"index": {"refresh_interval": f"{max(1, round(self._commit_within * 1000))}ms"}}
            status, answer = self._client.call("PUT", f"{self._path}/_settings", wanted)
            self._require(status, answer, "the refresh interval")
            self._set_up = True

    def known_fields(self) -> dict[str, tuple[str, bool]]:
        """Return the type of each field of the mapping, and whether it takes several values."""
        status, answer = self._client.call("GET", f"{self._path}/_mapping")
        self._require(status, answer, "the mapping")
        [found] = answer.values()
        return known_types(found["mappings"].get("properties", {}))

    def _lacking(self, wanted: Sequence[Field]) -> list[Field]:
        known, lacking = self.known_fields(), dict[str, Field]()
        for field in wanted:
            has = known.get(field.name)
            if has is None:
                lacking[field.name] = field
            elif has != (field.type, field.many) and self._conversions.get(field.name) != has:
                self._conversions[field.name] = has
                log.warning(
                    "field_type_differs",
                    collection=self._name,
                    field=field.name,
                    has=_type_text(*has),
                    needs=_type_text(field.type, field.many),
                    remedy="tailorbird index reindex TOPOLOGY",
                )
        return list(lacking.values())

    def converted(self, document: Document) -> Document:
        """Convert a document for the fields of this collection. Raises ValueError if it does not fit."""
        changed = dict(document)
        for name, (kind, many) in list(self._conversions.items()):
            if name in changed:
                try:
                    changed[name] = fitted(changed[name], kind, many)
                except (KeyError, ValueError, OverflowError) as error:
                    what = f"field {name} is a {_type_text(kind, many)}, which cannot hold {changed[name]!r:.60}"
                    raise ValueError(f"{what}: `tailorbird index reindex`") from error
        return changed

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        """Start `post` in another thread. The returned function waits for its end, and returns or raises the same."""
        return self._posts.submit(self.post, documents, backlog=backlog).result

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        """Write documents. Return those that OpenSearch refuses for their content, each with its list index.

        Returns once OpenSearch has stored all others. Raises Retriable while OpenSearch is unavailable or busy; any
        part may then be stored. `backlog` makes no difference."""
        if documents and documents[-1].get(fields.KIND) == fields.BARRIER:
            self._show_rows()
        return self._write(documents, lambda document: BulkAction.fenced(document, int(str(document[fields.FENCE]))))[1]

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]:
        """Write documents on condition that their `_version_` is unchanged (-1: absent).

        Return the ids of the documents whose condition failed, and the documents that OpenSearch refused. With a fence,
        the condition is that the stored version is not greater. Documents of a greater version that has not changed
        are deleted, and become conflicts that the caller repeats. Raises Retriable while OpenSearch is unavailable."""
        if not self._fenced:
            return self._write(documents, lambda document: BulkAction.conditional(document, condition_of(document)))
        conflicts, refused = self._write(
            documents, lambda document: BulkAction.fenced(document, int(str(document[fields.FENCE])), or_equal=True)
        )
        if wrong := [one for one in documents if one[fields.UNIQUE_KEY] in conflicts and condition_of(one)]:
            self._bulk([BulkAction.delete(str(one[fields.UNIQUE_KEY]), condition_of(one)) for one in wrong])
            self._refresh()
        if conflicts:
            time.sleep(_GC_SECONDS)  # OpenSearch forgets the versions of deleted documents
        return conflicts, refused

    def _write(
        self, documents: Sequence[Document], action: Callable[[Document], BulkAction]
    ) -> tuple[set[str], list[RefusedDocument]]:
        refused: list[RefusedDocument] = []
        actions: list[BulkAction] = []
        places: list[int] = []
        for position, document in enumerate(documents):
            try:
                if len(str(document[fields.UNIQUE_KEY])) > LONGEST_KEY:
                    raise ValueError(f"its key is longer than {LONGEST_KEY:,} characters, OpenSearch's limit")
                actions.append(action(self.converted(document) if self._conversions else document))
                places.append(position)
            except ValueError as error:
                refused.append(RefusedDocument(position=position, reason=str(error)))
        conflicts = set[str]()
        for position, (outcome, reason) in zip(places, self._bulk(actions), strict=True):
            if outcome == REFUSED:
                refused.append(RefusedDocument(position=position, reason=f"OpenSearch: {reason}"))
            elif outcome == CONFLICT:
                conflicts.add(str(documents[position][fields.UNIQUE_KEY]))
        return conflicts, refused

    def _bulk(self, actions: Sequence[BulkAction]) -> list[tuple[str, str]]:
        """Run some actions. Return for each whether it was done, conflicted or refused, and the reason."""
        if not actions:
            return []
        # `require_alias`: without it, a write would create an index that is missing, with guessed fields
        status, answer = self._client.call(
            "POST", f"{self._path}/_bulk", bulk_body(actions), require_alias="true", timeout=_WRITE_TIMEOUT,
            filter_path=_RESULTS,
        )  # fmt: skip
        if status == 404:
            raise missing(self._name)
        if status in (400, 413):
            # the request itself: too long, or with a document that is not one
            if len(actions) == 1:
                return [(REFUSED, reason_of(answer))]
            half = len(actions) // 2
            return self._bulk(actions[:half]) + self._bulk(actions[half:])
        self._require(status, answer, "documents")
        results = results_of(answer)
        for outcome, reason in results:
            if outcome not in (DONE, CONFLICT, REFUSED):
                if outcome == "404":
                    raise missing(self._name)
                raise self._client.failed(int(outcome), reason, f"documents of {self._name}")
        return results

    def _show_rows(self) -> None:
        """Let searches see every accepted row, on all shards and their copies, which refresh independently.

        One refresh serves all threads that ask for one before it begins. Raises Retriable while OpenSearch is
        unavailable."""
        asked = next(self._refreshes)
        with self._refresh_lock:
            if self._newest_refresh > asked:
                return
            begins = next(self._refreshes)
            self._refresh()
            self._newest_refresh = begins

    def _refresh(self) -> None:
        status, answer = self._client.call("POST", f"{self._path}/_refresh")
        self._require(status, answer, "a refresh")
        if answer["_shards"]["failed"]:
            raise Retriable(f"OpenSearch does not refresh all shards of {self._name}", "wait: this ends without action")

    def barriers(self) -> list[dict[str, Any]]:
        """Return the barriers that searches see: version, timestamp, number of buckets and positions."""
        wanted = {"size": _BARRIERS, "query": {"term": {fields.KIND: fields.BARRIER}}}
        return [dict(hit["_source"]) for hit in self.search(wanted)["hits"]["hits"]]

    def visible_timestamp(self) -> int | None:
        """Return the timestamp (ms) up to which searches see every row: that of the last barrier of all buckets, or
        None."""
        return timestamp_of(self.barriers())

    def purge_tombstones(self, *, before_ms: int, buckets: int) -> int:
        """Delete tombstones older than both `before_ms` and the last complete barrier. Return their number.

        A write older than a barrier of every bucket can arrive only as a repeat that HBase sends late. The caller
        chooses `before_ms` to leave time for that. Raises Retriable while OpenSearch is unavailable."""
        barriers = self.barriers()
        if len(barriers) < buckets:
            return 0
        version = 2 * min([before_ms, *(int(each[fields.TIMESTAMP]) for each in barriers)])
        old = [{"range": {fields.FENCE: {"lte": version}}}]
        tombstones = {"bool": {"filter": old, "must_not": [{"exists": {"field": fields.KIND}}]}}
        purged = 0
        while True:
            asked = {"size": _PAGE, "query": tombstones, "seq_no_primary_term": True, "_source": [KEY]}
            hits = self.search(asked)["hits"]["hits"]
            # on condition that it is unchanged, so that a document that became a row in the meantime is not removed
            seen = [(hit["_source"][KEY], WriteNumber(hit["_seq_no"], hit["_primary_term"])) for hit in hits]
            done = self._bulk([BulkAction.delete(key, number) for key, number in seen])
            removed = sum(outcome == DONE for outcome, _ in done)
            purged += removed
            self._refresh()
            if not removed:
                return purged

    def count_rows(self, *, until_ms: int) -> int:
        """Refresh, then return the number of rows that were last written before `until_ms`."""
        self._refresh()
        until = {"range": {fields.FENCE: {"lte": 2 * until_ms}}}
        query = {"bool": {"filter": [{"term": {fields.KIND: fields.ROW}}, until]}}
        return int(self.search({"size": 0, "track_total_hits": True, "query": query})["hits"]["total"]["value"])

    def rows(self, page: int, source: bool | list[str] = True) -> Iterator[list[dict[str, Any]]]:
        """Yield the sources of every visible row, in pages, in the order of the keys. Memory is bounded."""
        asked: dict[str, Any] = {"size": page, "query": {"term": {fields.KIND: fields.ROW}}, "sort": [KEY]}
        while True:
            hits = self.search({**asked, "_source": source, "track_total_hits": False})["hits"]["hits"]
            if hits:
                yield [hit["_source"] for hit in hits]
            if len(hits) < page:
                return
            asked["search_after"] = hits[-1]["sort"]

    def stored(self, keys: Sequence[str]) -> dict[str, Document]:
        """Return the stored documents by id. Includes those that searches do not see yet."""
        return {
            str(document[fields.UNIQUE_KEY]): document
            for document in (document_of(one["_source"]) for one in self._get(keys))
        }

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        """Return `_version_` of the existing documents by id: a number that changes with each write. Includes
        tombstones and documents that searches do not see yet."""
        by_id = {id_of(key): key for key in keys}
        found = self._get(keys, _source="false")
        return {by_id[one["_id"]]: token_of(WriteNumber(one["_seq_no"], one["_primary_term"])) for one in found}

    def keys_of(self, row: str) -> list[str]:
        """Refresh, then return the ids of the documents of one row of an external table."""
        self._refresh()
        wanted = [{"term": {fields.ROW_KEY: row}}, {"term": {fields.KIND: fields.ROW}}]
        found: list[str] = []
        while True:
            asked: dict[str, Any] = {
                "size": _PAGE,
                "query": {"bool": {"filter": wanted}},
                "_source": [KEY],
                "sort": [KEY],
            }
            if found:
                asked["search_after"] = [found[-1]]
            hits = self.search(asked)["hits"]["hits"]
            found += [hit["_source"][KEY] for hit in hits]
            if len(hits) < _PAGE:
                return found

    def _get(self, keys: Sequence[str], **parameters: str) -> list[dict[str, Any]]:
        if not keys:
            return []
        status, answer = self._client.call(
            "POST", f"{self._path}/_mget", {"ids": [id_of(key) for key in keys]}, **parameters
        )
        self._require(status, answer, "documents")
        if failed := [one["error"] for one in answer["docs"] if "error" in one]:
            raise self._client.failed(status, failed[0], f"documents of {self._name}")
        return [one for one in answer["docs"] if one["found"]]

    def search(self, body: object) -> dict[str, Any]:
        """Return the answer to a search of all documents, also barriers and tombstones, which the alias hides.

        Raises Retriable while OpenSearch is unavailable, lacks the collection, or a shard does not answer."""
        status, answer = self._client.call(
            "POST", f"/{self.index()}/_search", body, allow_partial_search_results="false"
        )
        self._require(status, answer, "a search")
        found: dict[str, Any] = answer
        return found

    def index(self) -> str:
        """Return the name of the index that the collection is an alias of."""
        status, answer = self._client.call("GET", f"/_alias{self._path}")
        self._require(status, answer, "an alias")
        [found] = answer
        return str(found)

    def _require(self, status: int, answer: object, what: str) -> None:
        if status == 404:
            raise missing(self._name)
        if status != 200:
            raise self._client.failed(status, answer, f"{what} of {self._name}")


def _type_text(kind: str, many: bool) -> str:
    return f"{kind} of many values" if many else kind
