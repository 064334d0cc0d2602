"""The Solr collection of one index: its fields, and fenced posts that isolate what Solr refuses."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.parse import quote, urlencode

import orjson
import structlog

from cdc.model.errors import Fatal, Retriable
from cdc.stored import fields
from cdc.topology.topology import Solr
from indexer.index.mapping import LATER_TYPES, Document, Field, fitted
from indexer.index.processor import RefusedDocument
from indexer.solr.solr_http import UNAVAILABLE, Exchange, SolrConnections

_BAD_REQUEST = 400
_REASON_LENGTH = 500
# Opening a searcher five times a second halves Solr's throughput, which nobody notices but a backlog.
_BACKLOG_COMMIT_SECONDS = 1.0
# How often the schema is read again because another process, a rebuild or an indexer, was faster to add a field.
_ADD_ATTEMPTS = 10
_FIELD_EXISTS = "already exists"
# So many times sooner than rows must barriers be visible; no more, since each commit costs Solr its caches.
_BARRIERS_SOONER = 4
# More posts at a time would only wait for Solr's processors.
_POSTS = 4

log = structlog.get_logger()


class SolrCollection:
    """Posts documents with `commitWithin` (seconds), barriers with a quarter of it; safe to share between threads.

    What `post` has accepted is in Solr's transaction log. A document whose version is not greater than the one that
    Solr holds is ignored there without an error, so repeats and stale writes are harmless.
    """

    def __init__(self, solr: Solr, collection: str, *, commit_within: float, timeout: float = 15.0) -> None:
        self._url = f"{solr.url}/{collection}"
        self._name = collection
        self._path = f"/{quote(collection)}"
        self._commit_within = commit_within
        self._reads = SolrConnections(solr, timeout=timeout)
        self._writes = SolrConnections(solr, timeout=timeout, ready=self._wait_for_replay)
        self._posts = ThreadPoolExecutor(_POSTS, thread_name_prefix="post")
        self._schema_lock = threading.Lock()
        # field → the type that it has and whether it takes several values, where a layout wants it otherwise
        self._conversions: dict[str, tuple[str, bool]] = {}

    def close(self) -> None:
        """Wait for posts under way and close the connections."""
        self._posts.shutdown()
        self._reads.close()
        self._writes.close()

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        """Add the fields that the schema lacks; whether there were any.

        A column whose type has changed keeps the field that it has, since a field's type can not change: its values
        are converted where they fit and refused where they do not, until the index is rebuilt.
        """
        fields_wanted, added = list(wanted), False
        with self._schema_lock:
            for _ in range(_ADD_ATTEMPTS):
                missing = self._lacking(fields_wanted)
                if not missing:
                    return added
                added |= self._add_fields(missing)
        raise Retriable(f"other processes add fields to collection {self._name}", "it ends by itself")

    def know_fields(self, wanted: Iterable[Field]) -> list[Field]:
        """Note how the schema has some fields, for `converted`, and return those that it lacks; writes nothing."""
        with self._schema_lock:
            return self._lacking(list(wanted))

    def _lacking(self, wanted: Sequence[Field]) -> list[Field]:
        """The fields that the schema lacks; notes which of the others have another type, or one value for a list."""
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
                    has=_reported(*has),
                    needs=_reported(field.type, field.many),
                    remedy="tailorbird index reindex TOPOLOGY",
                )
        return list(missing.values())

    def _add_fields(self, missing: Sequence[Field]) -> bool:
        """Whether Solr took them; False, and none is added, where another process has added one of them meanwhile."""
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
        """Whether Solr serves the collection; Retriable while Solr is away."""
        status, _ = self._reads.request("GET", f"{self._path}/schema/uniquekey")
        if status >= 500:
            raise Retriable(f"Solr at {self._url} is not ready: HTTP {status}", UNAVAILABLE)
        return status == 200

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        """Start `post` in another thread; the returned call waits for its end, and returns or raises what it does."""
        return self._posts.submit(self.post, documents, backlog=backlog).result

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        """Hand documents to Solr in order; those that it refuses for what is in them, by place.

        Returns once Solr holds all others. Retriable while Solr is away or in trouble: then any part may be held.
        Documents of a `backlog` are visible within a second at the earliest.
        """
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
        """A document as the fields of this collection hold it; ValueError where one can not."""
        changed = dict(document)
        for name, (kind, many) in list(self._conversions.items()):
            if name in changed:
                try:
                    changed[name] = fitted(changed[name], kind, many)
                except (KeyError, ValueError, OverflowError) as error:
                    what = f"field {name} is a {_reported(kind, many)}, which can not hold {changed[name]!r:.60}"
                    raise ValueError(f"{what}: `tailorbird index reindex`") from error
        return changed

    def _post(self, documents: Sequence[Document], backlog: bool) -> list[RefusedDocument]:
        if not documents:
            return []
        reason = self._add(documents, backlog)
        if reason is None:
            return []
        if len(documents) == 1:
            return [RefusedDocument(position=0, reason=reason)]
        # Halving finds the culprits in few posts, and never blames a document for a fault of the server's, as
        # Solr's TolerantUpdateProcessor does: it reports a full disk as errors of the documents.
        half = len(documents) // 2
        tail = self._post(documents[half:], backlog)
        return self._post(documents[:half], backlog) + [
            RefusedDocument(position=half + each.position, reason=each.reason) for each in tail
        ]

    def purge_tombstones(self, *, before_ms: int, buckets: int) -> int:
        """Remove the stubs of deletes older than `before_ms` and than the last complete barrier; how many there were.

        What is older than a barrier that every bucket has passed can come again only as a repeat that HBase sends
        late, for which `before_ms` leaves time. Foreign tables have no barriers, `buckets` is 0. Retriable while Solr
        is away.
        """
        kind, fence, timestamp = fields.KIND, fields.FENCE, fields.TIMESTAMP
        barriers = self._search(f"{kind}:{fields.BARRIER}", fl=timestamp, rows="300")["docs"]
        if len(barriers) < buckets:
            return 0
        version = 2 * min([before_ms, *(int(each[timestamp]) for each in barriers)])
        tombstones = f"{fence}:[* TO {version}] AND -{kind}:[* TO *]"
        count = int(self._search(tombstones, rows="0")["numFound"])
        if count:
            # By query, so that a document that becomes a row meanwhile is no longer among them.
            body = orjson.dumps({"delete": {"query": tombstones}})
            status, answer = self._writes.request("POST", f"{self._path}/update?wt=json&softCommit=true", body)
            if status != 200:
                raise Retriable(
                    f"Solr at {self._url} does not purge stubs: HTTP {status}: {answer[:200]!r}", UNAVAILABLE
                )
        return count

    def visible_timestamp(self) -> int | None:
        """The stamp (ms) of the last cut that every bucket has passed; None where there is none."""
        barriers = self._search(f"{fields.KIND}:{fields.BARRIER}", rows="300")["docs"]
        if not barriers or len(barriers) < int(barriers[0][fields.BUCKETS]):
            return None
        return min(int(each[fields.TIMESTAMP]) for each in barriers)

    def count_rows(self, *, until_ms: int) -> int:
        """How many rows are visible that were last written before `until_ms`, after a commit of what is held."""
        self._writes.request("POST", f"{self._path}/update?wt=json&softCommit=true", b"{}")
        query = f"{fields.KIND}:{fields.ROW} AND {fields.FENCE}:[* TO {2 * until_ms}]"
        return int(self._search(query, rows="0")["numFound"])

    def stored(self, keys: Sequence[str]) -> dict[str, Document]:
        """What the collection holds of some documents, visible or not yet, by key; without `_version_`."""
        return {
            document[fields.UNIQUE_KEY]: {name: value for name, value in document.items() if name != "_version_"}
            for document in self._get(keys)
        }

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        """`_version_` of those of some documents that there are, stubs included, visible or not yet."""
        found = self._get(keys, fl=f"{fields.UNIQUE_KEY},_version_")
        return {document[fields.UNIQUE_KEY]: document["_version_"] for document in found}

    def keys_of(self, row: str) -> list[str]:
        """The keys of a foreign row's documents, after a commit of what is held."""
        self._writes.request("POST", f"{self._path}/update?wt=json&softCommit=true", b"{}")
        query = f"{fields.ROW_KEY}:{row} AND {fields.KIND}:{fields.ROW}"
        found = self._search(query, rows="100000", fl=fields.UNIQUE_KEY)["docs"]
        return [document[fields.UNIQUE_KEY] for document in found]

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]:
        """Write documents whose `_version_` is still theirs (-1: absent), past the fence; the keys of those whose is
        not, and what Solr refused."""
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
            raise self._missing()
        if status != _BAD_REQUEST:
            raise Retriable(f"Solr at {self._url}: HTTP {status}: {answer[:200]!r}", UNAVAILABLE)
        if len(documents) == 1:
            return set(), [RefusedDocument(position=0, reason=_reason(answer))]
        # A refused request may have written some of its documents; their versions differ now, so they come as
        # conflicts and are done again by the caller.
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
            raise self._missing()
        if status != 200:
            raise Retriable(f"Solr at {self._url}: HTTP {status} for documents", UNAVAILABLE)
        if "response" in answer:
            found: list[dict[str, Any]] = answer["response"]["docs"]
            return found
        return [answer["doc"]] if answer.get("doc") else []  # of one key Solr answers in another form

    def _search(self, query: str, **parameters: str) -> dict[str, Any]:
        path = f"{self._path}/select?{urlencode({'wt': 'json', 'q': query, **parameters})}"
        status, answer = self._reads.json("GET", path)
        if status == 404:
            raise self._missing()
        if status != 200:
            raise Retriable(f"Solr at {self._url}: HTTP {status} for a query", UNAVAILABLE)
        found: dict[str, Any] = answer["response"]
        return found

    def _add(self, documents: Sequence[Document], backlog: bool) -> str | None:
        """Solr's reason for refusing the documents (HTTP 400), None when it took them."""
        seconds = max(self._commit_within, _BACKLOG_COMMIT_SECONDS) if backlog else self._commit_within
        if documents[-1].get(fields.KIND) == fields.BARRIER:
            # its rows' commit comes sooner then, or is over: whoever waits for the barrier does not wait as long again
            seconds /= _BARRIERS_SOONER
        path = f"{self._path}/update?wt=json&commitWithin={round(seconds * 1000)}"
        status, answer = self._writes.request("POST", path, orjson.dumps(documents))
        if status == 200:
            return None
        message = answer.decode(errors="replace")
        if status == _BAD_REQUEST:
            return _reason(answer)
        if status == 404:
            raise self._missing()
        raise Retriable(f"Solr at {self._url}: HTTP {status}: {message[:200]}", UNAVAILABLE)

    def _wait_for_replay(self, exchange: Exchange) -> None:
        """Retriable until Solr has replayed its transaction log.

        After kill -9 Solr serves a collection before it has read back what it had accepted. It judges a stale write by
        the index alone then, takes it, and drops the newer version when the replay comes to it: the fence does not
        hold. Metrics may be switched off, but a commit is ignored until the replay is over: so a document that a
        commit makes visible tells that it is. It is a stub, hidden from queries, and purged as one.
        """
        key = fields.probe_id(uuid.uuid4().hex)
        probe = {fields.UNIQUE_KEY: key, fields.FENCE: 2 * (time.time_ns() // 1_000_000)}
        status, answer = exchange("POST", f"{self._path}/update?wt=json&softCommit=true", orjson.dumps([probe]))
        if status == 404:
            raise self._missing()
        query = f"/select?wt=json&q={fields.UNIQUE_KEY}:{key}&rows=0"
        if status == 200:
            status, answer = exchange("GET", self._path + query, None)
        if status != 200:
            raise Retriable(f"Solr at {self._url} is not ready: HTTP {status}: {answer[:200]!r}", UNAVAILABLE)
        if not orjson.loads(answer)["response"]["numFound"]:
            raise Retriable(f"Solr at {self._url} replays its transaction log", "it ends by itself")

    def _schema(self, method: str, path: str, body: object) -> dict[str, Any]:
        status, answer = self._reads.json(method, f"{self._path}{path}?wt=json", body)
        if status == 404:
            raise self._missing()
        if status == _BAD_REQUEST:
            raise Fatal(f"Solr refused fields of collection {self._name}: {_refusals(answer)}")
        if status != 200:
            raise Retriable(f"Solr at {self._url}: HTTP {status} for the schema", UNAVAILABLE)
        return answer

    def _missing(self) -> Retriable:
        # Solr answers 404 for every collection while it starts, so this is not fatal
        return Retriable(f"Solr does not serve collection {self._name}", "`tailorbird apply` makes it")


def visible_timestamp(solr: Solr, collection: str) -> int | None:
    """The stamp (ms) up to which every row is visible to queries; None before the first full cut or without barriers.

    Retriable while Solr is away, or does not serve the collection.
    """
    found = SolrCollection(solr, collection, commit_within=1.0)
    try:
        return found.visible_timestamp()
    finally:
        found.close()


def _reported(kind: str, many: bool) -> str:
    return f"{kind} of many values" if many else kind


def _refusals(answer: dict[str, Any]) -> str:
    """What the Schema API says of each field that it refused."""
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
