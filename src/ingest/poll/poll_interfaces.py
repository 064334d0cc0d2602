"""Interface of a polled database, and the data that passes between its reader, window and session.

A *cursor* is always an integer: microseconds since 1970 in the column's time zone for a timestamp, the number itself
for a feed.
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
    """The server's clock (a cursor in the column's time zone), and the greatest cursor (None for an empty table).

    The clock is read before the greatest cursor.
    """

    clock: int
    newest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Request for a page: rows with a cursor ≥ `start` (None: all), ordered by cursor and key, at most `limit`.

    With `after`: only rows whose cursor equals `start`, with a greater key.
    """

    start: int | None
    after: tuple[object, ...] | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledRow:
    """A row that was read. `key` contains the primary key's values as returned by the driver, for the next query.

    `fingerprint` is a hash of all values: equal fingerprints are the same version of the same row.
    """

    cursor: int
    key: tuple[object, ...]
    fingerprint: bytes
    image: Image


class PollReader(Protocol):
    """A polled database. Every call sees the data that is committed at that time.

    Every method raises Retriable while the database is unavailable, and UsageError if a table cannot be polled.
    """

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        """Return the current schemas of polled tables: the known one if unchanged, otherwise the next version."""

    def look(self, schema: TableSchema) -> Look:
        """Return the clock and the greatest cursor. Both must be cheap, from memory or an index."""

    def page(self, schema: TableSchema, ask: Ask) -> list[PolledRow]:
        """Return the requested rows in order, never those whose cursor is NULL."""

    def walk(
        self, schema: TableSchema, after: list[Any] | None, where: str, limit: int
    ) -> tuple[list[Image], list[Any] | None]:
        """Return rows in key order, whatever their cursors, and the key after which to continue (None at the end).

        The rows are those after a key (None: from the first one) that match a condition in the database's SQL (empty:
        all), at most `limit`.

        Keys are opaque JSON. Raises UsageError if the table's key does not support this.
        """

    def backlog(self, schema: TableSchema, start: int | None, limit: int) -> int:
        """Count rows with a cursor ≥ `start`, at most `limit`, so that the query is cheap."""


def fingerprint(values: tuple[object, ...]) -> bytes:
    """Return a hash of 16 bytes of a row's values as returned by the driver; equal only for equal rows."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def cursor_of(moment: dt.datetime) -> int:
    """Return microseconds since 1970 of a time. A time with a time zone is converted to UTC."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def moment_of(cursor: int) -> dt.datetime:
    """Return the time of a cursor without a time zone, limited to years that databases can compare."""
    lowest, highest = cursor_of(dt.datetime(1000, 1, 1)), cursor_of(dt.datetime(9999, 12, 31, 23, 59, 59))
    return _EPOCH + dt.timedelta(microseconds=min(max(cursor, lowest), highest))
