"""Compute the records that repair one row, from the changes logged while it was read.

A logged change of a row holds absolute values. So these changes can be applied, in order, to a row that was read at any
point among them: a value that a change already set is set again, and a value that no change set stays as read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ingest.events.log_events import Image, Operation, RefusedImage
from ingest.records.findings import KeyImages, same

Row = dict[str, Any]
Kind = Literal["set", "whole", "unknown"]


class RowPatch(NamedTuple):
    """Logged changes of a row since its read was requested: columns that were set, the whole row, or too little."""

    kind: Kind = "set"
    row: Row | None = {}  # noqa: RUF012  # never modified in place

    def replace(self, row: Row | None) -> RowPatch:
        """Replace the row by the logged one; None if the log shows a delete."""
        return RowPatch("whole", row)

    def merge(self, operation: Operation, reported: Row) -> RowPatch:
        """Merge the columns that the log shows for this change."""
        if operation == "delete":
            return RowPatch("whole", None)
        if operation == "insert":
            return RowPatch("unknown", None)
        if self.row is None:
            return self  # an update cannot create a row that is known not to exist
        return RowPatch(self.kind, {**self.row, **reported})

    def apply_to(self, read: Image | None) -> tuple[bool, Image | None]:
        """Apply the patch to a row that was read somewhere among these changes.

        Returns whether the row is known, and the row.
        """
        if self.kind == "unknown":
            return False, None
        if self.kind == "whole":
            return True, self.row
        if read is None or not self.row:
            return True, read
        if isinstance(read, RefusedImage):
            return False, None
        return True, {**read, **self.row}


class Correction(NamedTuple):
    """One corrective record: it retracts `before` and publishes `after` (None: deleted).

    `stale`: other images may have followed `before`.
    """

    op: bytes
    before: Row | None
    after: Row | None
    stale: bool


def corrections(found: KeyImages | None, row: Row | None, *, anyway: bool) -> Iterator[Correction]:
    """Yield the records that lead from the images in the log to the current row.

    `anyway`: publish the row even if it is unchanged.
    """
    live = found.live if found is not None else None
    stale = found.stale if found is not None else []
    for image in stale:
        yield Correction(b"d" if row is None else b"u", image, row, True)
    if live is None:
        if row is not None and not stale:
            yield Correction(b"c", None, row, False)
    elif row is None:
        yield Correction(b"d", live, None, False)
    elif anyway or stale or same(live) != same(row):
        yield Correction(b"u", live, row, False)


def key_of(columns: tuple[str, ...], image: Mapping[str, Any]) -> Row | None:
    """Return a row's key, or None if the image lacks a key column."""
    return {name: image[name] for name in columns} if all(name in image for name in columns) else None
