"""The Solr collection of one index: its fields, and fenced posts that isolate what Solr refuses."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Sequence
from typing import Any

import orjson
import pysolr
import requests

from cdc.errors import Fatal, Retriable
from indexer.mapping import Document, Field
from indexer.processor import Refused

_STATUS = re.compile(r"\(HTTP (\d+)\)")
_BAD_REQUEST = 400
_REASON_LENGTH = 500
# Opening a searcher five times a second halves Solr's throughput, which nobody notices but a backlog.
_BACKLOG_COMMIT_SECONDS = 1.0
_AWAY = "`tailorbird stack status`; HBase keeps the backlog meanwhile"


class _Encoder:
    """pysolr's JSON by orjson, ten times faster on small documents."""

    def encode(self, value: object) -> str:
        return orjson.dumps(value).decode()


class SolrCollection:
    """Posts documents with `commitWithin` (seconds); safe to share between threads.

    What `post` has accepted is in Solr's transaction log. A document whose version is not greater than the one that
    Solr holds is ignored there without an error, so repeats and stale writes are harmless.
    """

    def __init__(self, url: str, collection: str, *, commit_within: float, timeout: float = 15.0) -> None:
        self._url = f"{url}/{collection}"
        self._name = collection
        self._timeout = timeout
        self._commit_within = commit_within
        self._session = requests.Session()
        # a proxy from the environment must not stand between two processes of one machine
        self._session.trust_env = False
        self._solr = pysolr.Solr(self._url, encoder=_Encoder(), timeout=timeout, session=self._session)
        self._schema_lock = threading.Lock()

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        """Add the fields that the schema lacks; whether there were any. Fatal when one exists with another type."""
        with self._schema_lock:
            known = {field["name"]: field for field in self._schema("get", "/schema/fields", None)["fields"]}
            missing: dict[str, Field] = {}
            for field in wanted:
                found = known.get(field.name)
                if found is None:
                    missing[field.name] = field
                elif found["type"] != field.type:
                    raise Fatal(
                        f"field {field.name} of collection {self._name} is a {found['type']}, "
                        f"the stored layout needs a {field.type}",
                        "give the index another name in the topology and apply it: a field's type can not change",
                    )
            if missing:
                definitions = [
                    {"name": field.name, "type": field.type, "stored": field.stored} for field in missing.values()
                ]
                self._schema("post", "/schema", {"add-field": definitions})
            return bool(missing)

    def exists(self) -> bool:
        """Whether Solr serves the collection; Retriable while Solr is away."""
        try:
            response = self._session.get(f"{self._url}/schema/uniquekey", timeout=self._timeout)
        except requests.RequestException as error:
            raise self._away(error) from error
        if response.status_code >= 500:
            raise Retriable(f"Solr at {self._url} is not ready: HTTP {response.status_code}", _AWAY)
        return response.status_code == 200

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[Refused]:
        """Hand documents to Solr in order; those that it refuses for what is in them, by place.

        Returns once Solr holds all others. Retriable while Solr is away or in trouble: then any part may be held.
        Documents of a `backlog` are visible within a second at the earliest.
        """
        if not documents:
            return []
        reason = self._add(list(documents), backlog)
        if reason is None:
            return []
        if len(documents) == 1:
            return [Refused(position=0, reason=reason)]
        # Halving finds the culprits in few posts, and never blames a document for a fault of the server's, as
        # Solr's TolerantUpdateProcessor does: it reports a full disk as errors of the documents.
        half = len(documents) // 2
        tail = self.post(documents[half:], backlog=backlog)
        return self.post(documents[:half], backlog=backlog) + [
            Refused(position=half + each.position, reason=each.reason) for each in tail
        ]

    def _add(self, documents: list[Document], backlog: bool) -> str | None:
        """Solr's reason for refusing the documents (HTTP 400), None when it took them."""
        seconds = max(self._commit_within, _BACKLOG_COMMIT_SECONDS) if backlog else self._commit_within
        try:
            # fieldUpdates={}: without it pysolr leaves out empty strings, which would read as NULL
            self._solr.add(documents, fieldUpdates={}, commitWithin=round(seconds * 1000))
        except pysolr.SolrError as error:
            message = str(error)
            status = _STATUS.search(message)
            if status is not None and int(status[1]) == _BAD_REQUEST:
                return message[:_REASON_LENGTH]
            if status is not None and int(status[1]) == 404:
                raise self._missing() from error
            raise Retriable(f"Solr at {self._url}: {message[:200]}", _AWAY) from error
        except requests.RequestException as error:
            # a connection cut in the middle of an answer is not among the errors that pysolr turns into its own
            raise self._away(error) from error
        return None

    def _schema(self, method: str, path: str, body: object) -> dict[str, Any]:
        try:
            response = self._session.request(
                method, self._url + path, params={"wt": "json"}, json=body, timeout=self._timeout
            )
        except requests.RequestException as error:
            raise self._away(error) from error
        if response.status_code == 404:
            raise self._missing()
        if response.status_code == _BAD_REQUEST:
            raise Fatal(f"Solr refused fields of collection {self._name}: {response.text[:_REASON_LENGTH]}")
        if response.status_code != 200:
            raise Retriable(f"Solr at {self._url}: HTTP {response.status_code} for the schema", _AWAY)
        answer: dict[str, Any] = response.json()
        return answer

    def _missing(self) -> Retriable:
        # Solr answers 404 for every collection while it starts, so this is not fatal
        return Retriable(f"Solr does not serve collection {self._name}", "`tailorbird apply` makes it")

    def _away(self, error: Exception) -> Retriable:
        return Retriable(f"Solr at {self._url} does not answer: {type(error).__name__}", _AWAY)
