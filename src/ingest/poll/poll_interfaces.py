"""What polling needs of a database, and the pieces that pass between its reader, its window and its session.

A *cursor* is a whole number always: microseconds since 1970 in the column's own clock for a timestamp, the number
itself for a feed.
"""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from cdc.model.schema import TableId, TableSchema
from ingest.events.log_events import Image

_EPOCH = dt.datetime(1970, 1, 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """The server's clock (a cursor, in the zone that the column's values are in) and the greatest cursor, None if none.

    The clock is read before the greatest cursor.
    """

    clock: int
    newest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A page: rows with a cursor ≥ `start` (None: all), by cursor and key, `limit` at most.

    With `after`: only rows whose cursor *is* `start`, with a greater key.
    """

    start: int | None
    after: tuple[object, ...] | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledRow:
    """A row as it was read; `key` are the primary key's values as the database gave them, to be handed back to it.

    `fingerprint` stands for cursor, key and all other values: equal fingerprints are the same version of the same row.
    """

    cursor: int
    key: tuple[object, ...]
    fingerprint: bytes
    image: Image


class PollReader(Protocol):
    """A database that is polled; every call sees what is committed at its moment.

    Every method raises Retriable when the database is away, UsageError when a table cannot be polled.
    """

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        """Schemas of the polled tables now: the known one where it still holds, else one of the next version."""

    def look(self, schema: TableSchema) -> Look:
        """Clock and greatest cursor; both answered from memory or an index."""

    def page(self, schema: TableSchema, ask: Ask) -> list[PolledRow]:
        """Rows as `Ask` says, in its order; rows whose cursor is NULL are never among them."""

    def walk(
        self, schema: TableSchema, after: list[Any] | None, where: str, limit: int
    ) -> tuple[list[Image], list[Any] | None]:
        """Rows behind a key (None: from the first one) for which a condition in the database's SQL holds (empty: all),
        in the key's order, `limit` at most, whatever their cursors; and the key to go on behind, None at the end.

        Keys are opaque JSON. UsageError when the table's key cannot be walked.
        """

    def backlog(self, schema: TableSchema, start: int | None, limit: int) -> int:
        """How many rows have a cursor ≥ `start`; counts `limit` at most, so that it costs little."""


def fingerprint(values: tuple[object, ...]) -> bytes:
    """16 bytes that stand for a row's values as its driver gave them; equal only for equal rows."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def cursor_of(moment: dt.datetime) -> int:
    """Microseconds since 1970 of a wall-clock time; a zone is removed by way of UTC."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def moment_of(cursor: int) -> dt.datetime:
    """Inverse of `cursor_of`, without a zone; held within what databases can compare with."""
    lowest, highest = cursor_of(dt.datetime(1000, 1, 1)), cursor_of(dt.datetime(9999, 12, 31, 23, 59, 59))
    return _EPOCH + dt.timedelta(microseconds=min(max(cursor, lowest), highest))
