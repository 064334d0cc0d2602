"""The condition that a document is unchanged: its sequence number and primary term, as one number."""

from __future__ import annotations

from typing import NamedTuple

from indexer.index.mapping import Document

_SEQUENCE_BITS = 44


class WriteNumber(NamedTuple):
    """Identifies one write of a document."""

    sequence: int
    primary_term: int


def token_of(condition: WriteNumber) -> int:
    """Return the condition as one number, which a document has as `_version_`."""
    return condition.primary_term << _SEQUENCE_BITS | condition.sequence


def condition_of(document: Document) -> WriteNumber | None:
    """Return the condition of a document's `_version_`. None for -1: the document must be absent."""
    token = int(str(document["_version_"]))
    return None if token < 0 else WriteNumber(token & (1 << _SEQUENCE_BITS) - 1, token >> _SEQUENCE_BITS)
