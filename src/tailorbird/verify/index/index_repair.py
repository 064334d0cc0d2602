"""Brings documents that differ to what their rows say, beside live traffic, whatever stands in the index.

The fence can not do it alone: a document that was changed under its own version has the very version of its row, and
one that was given a greater version, or made a stub, would refuse its row. So it is done as for rows of others (ADR
12): take the document's `_version_`, then read the row, then write on condition that the version is still that one.
Whoever writes in between makes the condition fail, and it is done again; whoever writes behind us carries a version of
the row that is not older than the one that we read. The document gets the fence of its row, so from then on the fence
holds again.

A document without a row becomes a stub, as a delete leaves it. Its fence is the newest stamp that the join had given
out before the row was looked for: it refuses repeats of all that was written until then, and nothing that comes later.
"""

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


class MadeDocument(Protocol):
    """A whole document, or None with the `reason` for which its row has none."""

    @property
    def document(self) -> Document | None: ...
    @property
    def reason(self) -> str: ...


class Making(Protocol):
    """Rows as the documents that one collection must hold, by id, those left out that do not exist; and the newest
    stamp that the table's writers were given. Retriable while HBase is away.
    """

    def made(self, ids: Sequence[str]) -> Mapping[str, MadeDocument]: ...
    def written(self) -> int: ...


class Conditional(Protocol):
    """A collection that writes on conditions (indexer.solr.solr_collection). Retriable while Solr is away."""

    def versions(self, keys: Sequence[str]) -> dict[str, int]: ...
    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]: ...


@dataclass(slots=True, kw_only=True)
class RepairedDocuments:
    """How many documents were `written` as their rows are, how many were `removed`, and why others were left: id →
    reason."""

    written: int = 0
    removed: int = 0
    left: dict[str, str] = field(default_factory=dict)


def repair_rows(ids: Sequence[str], rows: Making, collection: Conditional) -> RepairedDocuments:
    """Write documents anew; may be repeated. Retriable while a server is away: then any part may be done."""
    result = RepairedDocuments()
    for some in _blocks(ids):
        waiting = some
        for _ in range(_ATTEMPTS):
            if not waiting:
                break
            waiting = _attempt(waiting, rows, collection, result)
        if waiting:
            raise Retriable(f"{len(waiting)} rows are written faster than they can be mended", "run verify again")
    return result


def _attempt(ids: Sequence[str], rows: Making, collection: Conditional, result: RepairedDocuments) -> list[str]:
    """Those whose documents were written by others meanwhile."""
    # In this order, as the module says: the version is taken before the row is read, and the stamp before that.
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
