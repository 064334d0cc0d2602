"""Repair documents that differ from their rows, while traffic continues.

Solr's fence alone is not enough. A document that was changed under its own version has the version of its row. A
document or tombstone with a greater version would refuse its row. So the repair works as for external tables (ADR
12): read the document's `_version_`, then the row, then write on condition that `_version_` is unchanged. If another
writer was faster, it tries again. The written document has the fence of its row, so later writes win again.

A document without a row becomes a tombstone. Its fence is the newest batch timestamp from before the row was read.
So it refuses repeats of earlier writes, and accepts later ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from cdc.model.errors import Retriable
from cdc.stored import fields
from indexer.index.mapping import Document
from indexer.index.processor import RefusedDocument

_ATTEMPTS = 50
_BLOCK = 500


class BuiltDocument(Protocol):
    """A complete document, or None and the `reason` why the row has no document."""

    @property
    def document(self) -> Document | None: ...
    @property
    def reason(self) -> str: ...


class DocumentBuilder(Protocol):
    """Builds the documents that rows should have in one collection, by id. Raises Retriable while HBase is
    unavailable.

    `written` returns the newest timestamp of a batch or barrier of the table."""

    def made(self, ids: Sequence[str]) -> Mapping[str, BuiltDocument]: ...
    def written(self) -> int: ...


class VersionedCollection(Protocol):
    """A collection with conditional writes (indexer.solr.solr_collection). Raises Retriable while Solr is
    unavailable."""

    def versions(self, keys: Sequence[str]) -> dict[str, int]: ...
    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]: ...


@dataclass(slots=True, kw_only=True)
class RepairedDocuments:
    """The numbers of documents that were `written` from their rows and `removed`.

    `left` gives by id the reason why a document was left unchanged."""

    written: int = 0
    removed: int = 0
    left: dict[str, str] = field(default_factory=dict)


def repair_rows(ids: Sequence[str], rows: DocumentBuilder, collection: VersionedCollection) -> RepairedDocuments:
    """Replace the documents with these ids by what their rows require. May be repeated.

    Raises Retriable while a server is unavailable; some documents may be repaired then."""
    result = RepairedDocuments()
    for some in _blocks(ids):
        waiting = some
        for _ in range(_ATTEMPTS):
            if not waiting:
                break
            waiting = _attempt(waiting, rows, collection, result)
        if waiting:
            raise Retriable(f"{len(waiting)} rows change faster than they can be repaired", "run verify again")
    return result


def _attempt(
    ids: Sequence[str], rows: DocumentBuilder, collection: VersionedCollection, result: RepairedDocuments
) -> list[str]:
    """Try to repair documents. Return the ids of those that another writer changed in the meantime."""
    # The order matters (see the module): first the timestamp, then the versions, then the rows.
    timestamp, versions = rows.written(), collection.versions(ids)
    made = rows.made(ids)
    documents: list[Document] = []
    for key in ids:
        one, version = made.get(key), versions.get(key, -1)
        if one is None:
            if key in versions:
                documents.append({fields.UNIQUE_KEY: key, fields.FENCE: 2 * timestamp + 1, "_version_": version})
        elif one.document is None:
            result.left[key] = one.reason
        else:
            documents.append({**one.document, "_version_": version})
    conflicts, refused = collection.put_if(documents)
    for each in refused:
        result.left[str(documents[each.position][fields.UNIQUE_KEY])] = each.reason
    for document in documents:
        key = str(document[fields.UNIQUE_KEY])
        if key not in conflicts and key not in result.left:
            if fields.KIND in document:
                result.written += 1
            else:
                result.removed += 1
    return [key for key in ids if key in conflicts]


def _blocks(ids: Sequence[str]) -> Iterator[list[str]]:
    for start in range(0, len(ids), _BLOCK):
        yield list(ids[start : start + _BLOCK])
