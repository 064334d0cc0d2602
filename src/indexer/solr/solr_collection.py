"""Solr collection of one index: its fields, and fenced posts that find the documents that Solr refuses.

A fenced post contains a version per document. Solr ignores a document that is not newer than the stored one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import structlog

from cdc.model.errors import Fatal, Retriable
from cdc.stored import fields
from cdc.topology.topology import Solr
from indexer.index.barriers import timestamp_of
from indexer.index.mapping import LATER_TYPES, Document, Field, fitted
from indexer.index.processor import RefusedDocument
from indexer.solr.solr_http import UNAVAILABLE, SolrConnections
from indexer.solr.solr_ready import ReadyCheck, missing
from indexer.solr.solr_turns import MOST, PostTurns

_BAD_REQUEST = 400
_REASON_LENGTH = 500
# Opening a searcher five times a second halves Solr's throughput, which matters only for a backlog.
_BACKLOG_COMMIT_SECONDS = 1.0
# Attempts to read the schema again because another process, a rebuild or an indexer, was faster to add a field.
_ADD_ATTEMPTS = 10
_FIELD_EXISTS = "already exists"
# Barriers become visible so many times sooner than rows; not more, because each commit drops Solr's caches.
_BARRIERS_SOONER = 10

log = structlog.get_logger()


class SolrCollection:
    """Posts documents to one collection. Threads may share it.

    `commitWithin` (seconds) bounds the time until queries see a document. For barriers it is a tenth of that.
    Documents that `post` has accepted are in Solr's transaction log. Solr ignores a document whose version is not
    greater than the stored one, without an error. So repeats and stale writes are harmless."""

    def __init__(self, solr: Solr, collection: str, *, commit_within: float, timeout: float = 15.0) -> None:
        self._url = f"{solr.url}/{collection}"
        self._name = collection
        self._path = f"/{quote(collection)}"
        self._commit_within = commit_within
        self._ready = ReadyCheck(solr.url, collection)
        self._reads = SolrConnections(solr, timeout=timeout)
        self._writes = SolrConnections(solr, timeout=timeout, ready=self._ready.wait_for_replay)
        self._posts = ThreadPoolExecutor(MOST, thread_name_prefix="post")
        self._turns = PostTurns(self._reads.json, self._url, timeout)
        self._schema_lock, self._commit_lock = threading.Lock(), threading.Lock()
        self._commits, self._newest_commit = count(1), 0
        # field → its type and whether it takes several values, if a layout requires other ones
        self._conversions: dict[str, tuple[str, bool]] = {}

    def close(self) -> None:
        """Wait for running posts and close the connections."""
        self._posts.shutdown()
        self._reads.close()
        self._writes.close()

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        """Add the fields that the schema lacks. Return whether any was missing.

        A field keeps its type, even if the column's type has changed. Values that fit are then converted, and others
        are refused, until the index is rebuilt. Raises Retriable while other processes add fields, too."""
        fields_wanted, added = list(wanted), False
        with self._schema_lock:
            for _ in range(_ADD_ATTEMPTS):
                missing = self._lacking(fields_wanted)
                if not missing:
                    return added
                added |= self._add_fields(missing)
        raise Retriable(f"other processes add fields to collection {self._name}", "wait: this ends without action")

    def know_fields(self, wanted: Iterable[Field]) -> list[Field]:
        """Return the fields that the schema lacks, and write nothing.

        Also remembers the schema's types of the other fields, which `converted` needs."""
        with self._schema_lock:
            return self._lacking(list(wanted))

    def field_types(self) -> dict[str, str]:
        """Return the type of each field of the schema."""
        found = self._schema("GET", "/schema/fields", None)["fields"]
        return {field["name"]: _type_text(field["type"], bool(field.get("multiValued"))) for field in found}

    def _lacking(self, wanted: Sequence[Field]) -> list[Field]:
        """Return the fields that the schema lacks.

        Also remembers the fields that have another type, or a single value instead of a list."""
        known = {field["name"]: field for field in self._schema("GET", "/schema/fields", None)["fields"]}
        missing: dict[str, Field] = {}
        for field in wanted:
            found = known.get(field.name)
            if found is None:
                missing[field.name] = field
                continue
            has = found["type"], bool(found.get("multiValued"))
            if has != (field.type, field.many) and self._conversions.get(field.name) != has:
                self._conversions[field.name] = has
                log.warning(
                    "field_type_differs",
                    collection=self._name,
                    field=field.name,
                    has=_type_text(*has),
                    needs=_type_text(field.type, field.many),
                    remedy="tailorbird index reindex TOPOLOGY",
                )
        return list(missing.values())

    def _add_fields(self, missing: Sequence[Field]) -> bool:
        """Add fields to the schema. Return False, and add none, if another process has just added one of them."""
        definitions = [
            {"name": field.name, "type": field.type, "stored": field.stored, "multiValued": field.many}
            for field in missing
        ]
        body: dict[str, Any] = {"add-field": definitions}
        if later := {field.type for field in missing} & LATER_TYPES.keys():
            known = {one["name"] for one in self._schema("GET", "/schema/fieldtypes", None)["fieldTypes"]}
            if lacking := [LATER_TYPES[name] for name in sorted(later - known)]:
                body = {"add-field-type": lacking, **body}
        try:
            self._schema("POST", "/schema", body)
        except Fatal as error:
            if _FIELD_EXISTS not in error.message:
                raise
            return False
        return True

    def exists(self) -> bool:
        """Return whether Solr serves the collection. Raises Retriable while Solr is unavailable."""
        status, _ = self._reads.request("GET", f"{self._path}/schema/uniquekey")
        if status >= 500:
            raise Retriable(f"Solr at {self._url} is not ready: HTTP {status}", UNAVAILABLE)
        return status == 200

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        """Start `post` in another thread. The returned function waits for its end, and returns or raises the same."""
        return self._posts.submit(self.post, documents, backlog=backlog).result

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        """Post documents to Solr in order. Return those that Solr refuses for their content, each with its list
        index.

        Returns once Solr has stored all others. Raises Retriable while Solr is unavailable or fails; any part may
        then be stored. Documents of a `backlog` become visible after one second or later, which improves throughput."""
        if self._conversions:
            return self._post_converted(documents, backlog)
        return self._post(documents, backlog)

    def _post_converted(self, documents: Sequence[Document], backlog: bool) -> list[RefusedDocument]:
        refused: list[RefusedDocument] = []
        converted: list[Document] = []
        places: list[int] = []
        for position, document in enumerate(documents):
            try:
                converted.append(self.converted(document))
                places.append(position)
            except ValueError as error:
                refused.append(RefusedDocument(position=position, reason=str(error)))
        refused += [
            RefusedDocument(position=places[each.position], reason=each.reason)
            for each in self._post(converted, backlog)
        ]
        return refused

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

    def _post(self, documents: Sequence[Document], backlog: bool) -> list[RefusedDocument]:
        if not documents:
            return []
        if documents[-1].get(fields.KIND) == fields.BARRIER:
            self._show_rows()
        reason = self._add(documents, backlog)
        if reason is None:
            return []
        if len(documents) == 1:
            return [RefusedDocument(position=0, reason=reason)]
        # Bisection finds the refused documents in few posts, and never blames a document for a fault of the server.
        # Solr's TolerantUpdateProcessor does: it reports a full disk as errors of the documents.
        half = len(documents) // 2
        tail = self._post(documents[half:], backlog)
        return self._post(documents[:half], backlog) + [
            RefusedDocument(position=half + each.position, reason=each.reason) for each in tail
        ]

    def _show_rows(self) -> None:
        """Let queries see every accepted row, on all shards. Only SolrCloud needs it: there each shard commits by
        itself, so one could show a barrier before another shows the rows before the barrier.

        One commit serves all threads that ask for one before it begins. Raises Retriable while Solr is unavailable."""
        asked = next(self._commits)
        if self._ready.is_cloud is False:
            return
        with self._commit_lock:
            if self._newest_commit > asked:
                return
            begins = next(self._commits)
            self._commit()
            self._newest_commit = begins

    def _commit(self) -> None:
        status, answer = self._writes.request("POST", f"{self._path}/update?wt=json&softCommit=true", b"{}")
        if status == 404:
            raise missing(self._name)
        if status != 200:
            raise Retriable(f"Solr at {self._url} does not commit: HTTP {status}: {answer[:200]!r}", UNAVAILABLE)

    def purge_tombstones(self, *, before_ms: int, buckets: int) -> int:
        """Delete tombstones older than both `before_ms` and the last complete barrier. Return their number.

        A write older than a barrier of every bucket can arrive only as a repeat that HBase sends late. The caller
        chooses `before_ms` to leave time for that. External tables have no barriers: `buckets` is 0. Raises
        Retriable while Solr is unavailable."""
        kind, fence, barriers = fields.KIND, fields.FENCE, self.barriers()
        if len(barriers) < buckets:
            return 0
        version = 2 * min([before_ms, *(int(each[fields.TIMESTAMP]) for each in barriers)])
        tombstones = f"{fence}:[* TO {version}] AND -{kind}:[* TO *]"
        count = int(self._search(tombstones, rows="0")["numFound"])
        if count:
            # By query, so that a document that becomes a row in the meantime is not removed.
            body = orjson.dumps({"delete": {"query": tombstones}})
            status, answer = self._writes.request("POST", f"{self._path}/update?wt=json&softCommit=true", body)
            if status != 200:
                raise Retriable(
                    f"Solr at {self._url} does not purge tombstones: HTTP {status}: {answer[:200]!r}", UNAVAILABLE
                )
        return count

    def visible_timestamp(self) -> int | None:
        """Return the timestamp (ms) up to which queries see every row: that of the last barrier of all buckets, or
        None."""
        return timestamp_of(self.barriers())

    def barriers(self) -> list[dict[str, Any]]:
        """Return the barriers that queries see: version, timestamp, number of buckets, positions, time of posting."""
        fl = f"{fields.FENCE},{fields.TIMESTAMP},{fields.BUCKETS},{fields.POSITIONS},{fields.INDEXED_AT}"
        found: list[dict[str, Any]] = self._search(f"{fields.KIND}:{fields.BARRIER}", fl=fl, rows="300")["docs"]
        return found

    def count_rows(self, *, until_ms: int) -> int:
        """Commit, then return the number of visible rows that were last written before `until_ms`."""
        self._commit()
        query = f"{fields.KIND}:{fields.ROW} AND {fields.FENCE}:[* TO {2 * until_ms}]"
        return int(self._search(query, rows="0")["numFound"])

    def stored(self, keys: Sequence[str]) -> dict[str, Document]:
        """Return the stored documents by id, without `_version_`. Includes those that queries do not see yet."""
        return {
            document[fields.UNIQUE_KEY]: {name: value for name, value in document.items() if name != "_version_"}
            for document in self._get(keys)
        }

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        """Return `_version_` of the existing documents by id. Includes tombstones and documents that queries do not
        see yet."""
        found = self._get(keys, fl=f"{fields.UNIQUE_KEY},_version_")
        return {document[fields.UNIQUE_KEY]: document["_version_"] for document in found}

    def keys_of(self, row: str) -> list[str]:
        """Commit, then return the ids of the documents of one row of an external table."""
        self._commit()
        query = f"{fields.ROW_KEY}:{row} AND {fields.KIND}:{fields.ROW}"
        found = self._search(query, rows="100000", fl=fields.UNIQUE_KEY)["docs"]
        return [document[fields.UNIQUE_KEY] for document in found]

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]:
        """Write documents on condition that their `_version_` is unchanged (-1: absent), without the fence.

        Return the ids of the documents whose condition failed, and the documents that Solr refused. Raises Retriable
        while Solr is unavailable or has no such collection."""
        if not documents:
            return set(), []
        path = (
            f"{self._path}/update?wt=json&update.chain=conditional&versions=true&failOnVersionConflicts=false"
            f"&commitWithin={round(self._commit_within * 1000)}"
        )
        body = orjson.dumps(documents)
        status, answer = self._writes.request("POST", path, body)
        if status == 200:
            adds = orjson.loads(answer).get("adds", [])
            taken = set(adds[::2])
            return {str(d[fields.UNIQUE_KEY]) for d in documents} - taken, []
        if status == 404:
            raise missing(self._name)
        if status != _BAD_REQUEST:
            raise Retriable(f"Solr at {self._url}: HTTP {status}: {answer[:200]!r}", UNAVAILABLE)
        if len(documents) == 1:
            return set(), [RefusedDocument(position=0, reason=_reason(answer))]
        # A refused request may have written some of its documents. Their versions differ now, so they become conflicts
        # and the caller repeats them.
        half = len(documents) // 2
        conflicts, refused = self.put_if(documents[:half])
        more, tail = self.put_if(documents[half:])
        return conflicts | more, refused + [
            RefusedDocument(position=half + each.position, reason=each.reason) for each in tail
        ]

    def _get(self, keys: Sequence[str], **parameters: str) -> list[dict[str, Any]]:
        if not keys:
            return []
        body = {"params": {"wt": "json", "id": list(keys), **parameters}}
        status, answer = self._reads.json("POST", f"{self._path}/get", body)
        if status == 404:
            raise missing(self._name)
        if status != 200:
            raise Retriable(f"Solr at {self._url}: HTTP {status} for documents", UNAVAILABLE)
        if "response" in answer:
            found: list[dict[str, Any]] = answer["response"]["docs"]
            return found
        return [answer["doc"]] if answer.get("doc") else []  # for one key Solr answers in another form

    def _search(self, query: str, **parameters: str) -> dict[str, Any]:
        path = f"{self._path}/select?{urlencode({'wt': 'json', 'q': query, **parameters})}"
        status, answer = self._reads.json("GET", path)
        if status == 404:
            raise missing(self._name)
        if status != 200:
            raise Retriable(f"Solr at {self._url}: HTTP {status} for a query", UNAVAILABLE)
        found: dict[str, Any] = answer["response"]
        return found

    def _add(self, documents: Sequence[Document], backlog: bool) -> str | None:
        """Return Solr's reason for refusing the documents (HTTP 400), None if it accepted them."""
        seconds = max(self._commit_within, _BACKLOG_COMMIT_SECONDS) if backlog else self._commit_within
        if documents[-1].get(fields.KIND) == fields.BARRIER:
            # the commit of its rows then comes sooner, or is done: a reader that waits for the barrier does not wait
            # twice as long
            seconds /= _BARRIERS_SOONER
        path = f"{self._path}/update?wt=json&commitWithin={round(seconds * 1000)}"
        body = orjson.dumps(documents)
        with self._turns.turn():
            status, answer = self._writes.request("POST", path, body)
        if status == 200:
            return None
        message = answer.decode(errors="replace")
        if status == _BAD_REQUEST:
            return _reason(answer)
        if status == 404:
            raise missing(self._name)
        raise Retriable(f"Solr at {self._url}: HTTP {status}: {message[:200]}", UNAVAILABLE)

    def _schema(self, method: str, path: str, body: object) -> dict[str, Any]:
        status, answer = self._reads.json(method, f"{self._path}{path}?wt=json", body)
        if status == 404:
            raise missing(self._name)
        if status == _BAD_REQUEST:
            raise Fatal(f"Solr refused fields of collection {self._name}: {_refusals(answer)}")
        if status != 200:
            raise Retriable(f"Solr at {self._url}: HTTP {status} for the schema", UNAVAILABLE)
        return answer


def _type_text(kind: str, many: bool) -> str:
    return f"{kind} of many values" if many else kind


def _refusals(answer: dict[str, Any]) -> str:
    """Return the Schema API's messages about each field that it refused."""
    try:
        found = [message.strip() for each in answer["error"]["details"] for message in each["errorMessages"]]
    except (KeyError, TypeError):
        found = [str(answer)]
    return " ".join(found)[:_REASON_LENGTH]


def _reason(answer: bytes) -> str:
    try:
        message = str(orjson.loads(answer)["error"]["msg"])
    except (orjson.JSONDecodeError, KeyError, TypeError):
        message = answer.decode(errors="replace")
    return f"Solr: {message} (HTTP 400)"[:_REASON_LENGTH]
