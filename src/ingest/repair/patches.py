"""Compute the records that repair one row, from its re-read and from the changes that were logged during the read.

A logged change contains the new values themselves, not differences. So all changes since the request can be applied, in
order, to a row that was read at any point among them: setting a value twice does no harm.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ingest.events.log_events import Image, Operation, RefusedImage
from ingest.records.findings import KeyImages, same

Row = dict[str, Any]
Kind = Literal["set", "whole", "unknown"]


class RowPatch(NamedTuple):
    """Changes of one row that were logged since its re-read was requested.

    `kind` set: `row` are the changed columns. `whole`: `row` is the complete row (None: deleted). `unknown`: the log
    does not contain enough, so the row must be read once more.
    """

    kind: Kind = "set"
    row: Row | None = {}  # noqa: RUF012  # never modified in place

    def replace(self, row: Row | None) -> RowPatch:
        """Return the patch after a change with a complete image; None is a delete."""
        return RowPatch("whole", row)

    def merge(self, operation: Operation, logged: Row) -> RowPatch:
        """Return the patch after a change of which the log contains only the columns `logged`."""
        if operation == "delete":
            return RowPatch("whole", None)
        if operation == "insert":
            return RowPatch("unknown", None)
        if self.row is None:
            return self  # the row does not exist, and an update does not create it
        return RowPatch(self.kind, {**self.row, **logged})

    def apply_to(self, read: Image | None) -> tuple[bool, Image | None]:
        """Return (True, current row) from a row that was read since the request; None: there is no row.

        Returns (False, None) if the current row cannot be determined, so that it must be read once more.
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
    """One record that corrects a row in a topic: it retracts `before` and publishes `after` (None: delete).

    `stale`: `before` is not the newest image of the row in the topic.
    """

    op: bytes
    before: Row | None
    after: Row | None
    stale: bool


def corrections(found: KeyImages | None, row: Row | None, *, anyway: bool) -> Iterator[Correction]:
    """Yield the corrections that turn a row's images in the topic into its current row.

    `found` are the images, None if the topic has none. `anyway`: publish the row even if it is unchanged.
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
