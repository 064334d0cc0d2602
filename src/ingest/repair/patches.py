"""One row whose history is mended: what the log told of it while it was read, and the records that set it right; pure.

What the log tells of a row are absolute values. So it may be applied, in order, to a row that was read somewhere among
these changes: what a change set already is set again, and what none of them set is as it was read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple

from ingest.events.log_events import Image, Operation, RefusedImage
from ingest.records.findings import Found, same

Row = dict[str, Any]
Kind = Literal["set", "whole", "unknown"]


class Patch(NamedTuple):
    """What the log told of a row since it was asked for: columns that were set, the whole row, or too little."""

    kind: Kind = "set"
    row: Row | None = {}  # noqa: RUF012  # never changed in place

    def whole(self, row: Row | None) -> Patch:
        """The log told the row, or that there is none."""
        return Patch("whole", row)

    def partial(self, operation: Operation, reported: Row) -> Patch:
        """The log told some columns of it."""
        if operation == "delete":
            return Patch("whole", None)
        if operation == "insert":
            return Patch("unknown", None)
        if self.row is None:
            return self  # of a row that is not there nothing can be set: it was not known
        return Patch(self.kind, {**self.row, **reported})

    def on(self, read: Image | None) -> tuple[bool, Image | None]:
        """Whether the row is known now, and the row: as it was read somewhere among these changes, with them."""
        if self.kind == "unknown":
            return False, None
        if self.kind == "whole":
            return True, self.row
        if read is None or not self.row:
            return True, read
        if isinstance(read, RefusedImage):
            return False, None
        return True, {**read, **self.row}


class Step(NamedTuple):
    """One record: `before` is taken back, `after` (None: deleted) holds. `stale`: others may have followed `before`."""

    op: bytes
    before: Row | None
    after: Row | None
    stale: bool


def steps(found: Found | None, row: Row | None, *, anyway: bool) -> Iterator[Step]:
    """What takes a row from what the log holds of it to what it is; `anyway`: it must be told again though it is so."""
    live = found.live if found is not None else None
    stale = found.stale if found is not None else []
    for image in stale:
        yield Step(b"d" if row is None else b"u", image, row, True)
    if live is None:
        if row is not None and not stale:
            yield Step(b"c", None, row, False)
    elif row is None:
        yield Step(b"d", live, None, False)
    elif anyway or stale or same(live) != same(row):
        yield Step(b"u", live, row, False)


def key_of(columns: tuple[str, ...], image: Mapping[str, Any]) -> Row | None:
    """A row's key, None where the image does not hold it."""
    return {name: image[name] for name in columns} if all(name in image for name in columns) else None
