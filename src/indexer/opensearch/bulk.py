"""Bulk requests of OpenSearch: their lines, and what became of each action."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from cdc.stored import fields
from indexer.index.mapping import Document
from indexer.opensearch.conditions import WriteNumber
from indexer.opensearch.mappings import id_of, source_of

DONE, CONFLICT, REFUSED = "done", "conflict", "refused"
_OUTCOMES: Final[Mapping[int, str]] = {200: DONE, 201: DONE, 409: CONFLICT, 400: REFUSED, 413: REFUSED}


@dataclass(frozen=True, slots=True)
class BulkAction:
    """One action of a bulk request: `head` is its line, `source` the document, None for a delete."""

    kind: str
    head: Mapping[str, Any]
    source: Mapping[str, Any] | None

    @classmethod
    def fenced(cls, document: Document, version: int, *, or_equal: bool = False) -> BulkAction:
        """Return an action that writes a document unless the stored version is greater, or equal."""
        kind = "external_gte" if or_equal else "external"
        head = {"_id": id_of(str(document[fields.UNIQUE_KEY])), "version": version, "version_type": kind}
        return cls("index", head, source_of(document))

    @classmethod
    def conditional(cls, document: Document, condition: WriteNumber | None) -> BulkAction:
        """Return an action that writes a document if it is unchanged, or without a condition if it is absent."""
        head = {"_id": id_of(str(document[fields.UNIQUE_KEY]))}
        return cls("index" if condition else "create", {**head, **_unchanged(condition)}, source_of(document))

    @classmethod
    def delete(cls, key: str, condition: WriteNumber | None) -> BulkAction:
        """Return an action that deletes a document if it is unchanged."""
        return cls("delete", {"_id": id_of(key), **_unchanged(condition)}, None)


def _unchanged(condition: WriteNumber | None) -> Mapping[str, int]:
    if condition is None:
        return {}
    return {"if_seq_no": condition.sequence, "if_primary_term": condition.primary_term}


def bulk_body(actions: Iterable[BulkAction]) -> bytes:
    """Return the lines of a bulk request."""
    lines: list[bytes] = []
    for one in actions:
        lines.append(orjson.dumps({one.kind: one.head}))
        if one.source is not None:
            lines.append(orjson.dumps(one.source))
    return b"\n".join([*lines, b""])


def results_of(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return what became of each action, and the reason. Other outcomes than the known ones are HTTP statuses."""
    results: list[tuple[str, str]] = []
    for item in answer.get("items", ()):
        [one] = item.values()
        status, error = int(one["status"]), one.get("error")
        if status == 404 and error is None:  # a delete of what another process has deleted
            status = 409
        results.append((_OUTCOMES.get(status, str(status)), _reason(error)))
    return results


def _reason(error: Any) -> str:
    reasons = list[str]()
    while isinstance(error, dict):
        reasons.append(str(error.get("reason", error.get("type", ""))))
        error = error.get("caused_by")
    return ": ".join(reasons)[:500]
