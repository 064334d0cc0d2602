"""Define requests for chunks of tables, the chunks that answer them, and the ranges of keys that divide a table.

A table is read from its smallest key to its greatest. A large one is divided into ranges of keys, which are read at the
same time, each in chunks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from cdc.model.errors import Skippable, TailorbirdError
from cdc.model.event import Position
from cdc.model.schema import TableSchema
from ingest.events.log_events import Image, Row
from ingest.records.row_json import EncodedRow

# Stored as `after` for a table that one SELECT reads (a pass). All its chunks show the state at the beginning of the
# pass. So the window lasts from there on, and an interrupted pass starts again.
PASS = ["pass"]
LEAST_CHUNKS = 2  # a range of a table should have at least as many chunks
Key = list[Any]  # values of key columns as the reader wrote them: JSON, opaque here


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkRequest:
    """Request for the next rows of a table, with keys above `after` (None: from the beginning) up to `last` (None:
    unknown).

    The rows must include every change before `position`. `where` is a condition, or empty. `unique`: no two rows have
    equal keys. If `keys` is set, only the rows with these keys are read, all in one chunk. `part` is the number of the
    range, 0 if the table is not divided. `divide` is into how many ranges the reader may divide the rest of the table.
    """

    number: int
    schema: TableSchema
    position: Position
    after: Key | None
    last: Key | None
    where: str
    unique: bool = True
    keys: tuple[Row, ...] = ()
    part: int = 0
    divide: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Rows that were read for a request. They show nothing later than the position `high`.

    `after` is where the next chunk begins; None at the end of the range. `last` is the greatest key at the first chunk.
    `total` is the approximate number of rows, set on a table's first chunk. `failed` is why the table cannot be read.
    With `waits`, the chunk has no rows: it will be read later, and this is why it is not read yet. `cuts` are keys
    between `after` and `last`, in the server's order, that divide the rest of the table into ranges.
    """

    request: ChunkRequest
    images: Sequence[Image | EncodedRow]
    after: Key | None
    last: Key | None
    high: Position
    total: int | None = None
    failed: Skippable | None = None
    waits: TailorbirdError | None = None
    cuts: tuple[Key, ...] = ()


class ChunkReader(Protocol):
    """Reads chunks of several tables in the background. `ready` raises the errors of reading."""

    def request(self, request: ChunkRequest) -> None:
        """Start to read a chunk. Does not block."""

    def ready(self) -> list[Chunk]:
        """Return the chunks that were read since the last call. Does not block."""


class KeyRange(NamedTuple):
    """A part of a table that is still to be read: keys above `after` up to `last`. `part` is its number."""

    part: int
    after: Key | None
    last: Key | None


def ranges_of(entry: Mapping[str, Any]) -> list[KeyRange]:
    """Return what is still to be read of a table; `entry` is its part of a checkpoint's state."""
    if "ranges" in entry:
        return [KeyRange(*one) for one in entry["ranges"]]
    return [KeyRange(0, entry.get("after"), entry.get("last"))]


def begun(entry: Mapping[str, Any]) -> bool:
    """Return whether rows of a table have been read."""
    return "after" in entry or "ranges" in entry


def from_beginning(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a table that is read from its beginning."""
    return {key: value for key, value in entry.items() if key not in ("after", "last", "ranges")}


def resumable(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of a table whose current chunks are discarded: a pass starts again."""
    return {k: v for k, v in entry.items() if k != "after"} if entry.get("after") == PASS else dict(entry)


def advanced(entry: Mapping[str, Any], chunk: Chunk) -> dict[str, Any] | None:
    """Return the entry after a chunk has been published; None if the table has been read completely."""
    rest = dict(entry)
    if "ranges" in entry:
        part = chunk.request.part
        left = [[part, chunk.after, one[2]] if one[0] == part else one for one in entry["ranges"]]
        rest["ranges"] = [one for one in left if one[1] is not None]
        return rest if rest["ranges"] else None
    if chunk.after is None:
        return None
    if not chunk.cuts:
        return rest | {"after": chunk.after, "last": chunk.last}
    begins, ends = [chunk.after, *chunk.cuts], [*chunk.cuts, chunk.last]
    ranges = [[part, *bounds] for part, bounds in enumerate(zip(begins, ends, strict=True))]
    return from_beginning(rest) | {"ranges": ranges}
