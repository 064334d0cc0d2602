"""Interface of a polled database, and the values that its reader, the window and the session exchange.

A *cursor* is the value of the cursor column as an integer: microseconds since 1970 in the column's time zone for a
timestamp, the number itself for a feed.
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
    """Server's clock (as a cursor in the column's time zone), and the table's greatest cursor (None: empty table).

    The clock is read before the greatest cursor.
    """

    clock: int
    newest: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """Request for a page: at most `limit` rows with a cursor ≥ `start` (None: all), ordered by cursor and key.

    `after` is a key: then only rows with exactly the cursor `start` and a greater key.
    """

    start: int | None
    after: tuple[object, ...] | None
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolledRow:
    """A row that was read. `key` are the primary key's values as the driver returns them, to be used in the next query.

    `fingerprint` is a hash of all values: rows with equal fingerprints are equal.
    """

    cursor: int
    key: tuple[object, ...]
    fingerprint: bytes
    image: Image


class PollReader(Protocol):
    """Reader of a polled database. Each call sees what is committed at that time.

    Every method raises Retriable while the database is unavailable, and UsageError if a table cannot be polled.
    """

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        """Return the current schemas of the polled tables. `known` are earlier ones: an unchanged schema keeps its
        version."""

    def look(self, schema: TableSchema) -> Look:
        """Return the server's clock and the table's greatest cursor. Both queries must be cheap: by memory or an
        index."""

    def page(self, schema: TableSchema, ask: Ask) -> list[PolledRow]:
        """Return the requested rows in order. Rows whose cursor is NULL are never returned."""

    def walk(
        self, schema: TableSchema, after: list[Any] | None, where: str, limit: int
    ) -> tuple[list[Image], list[Any] | None]:
        """Return at most `limit` rows in key order, whatever their cursors, and the last key (None at the end of the
        table).

        Only rows with keys above `after` (None: all) that match the SQL condition `where` (empty: all) are returned.
        Keys are JSON values that only this reader understands. Raises UsageError if the table's key does not support
        this.
        """

    def backlog(self, schema: TableSchema, start: int | None, limit: int) -> int:
        """Return the number of rows with a cursor ≥ `start`, counting to at most `limit`, so that the query is
        cheap."""

    def unassigned(self, schema: TableSchema, limit: int) -> int:
        """Return the number of rows whose cursor is NULL, counted likewise. In a feed they wait for a number."""


def fingerprint(values: tuple[object, ...]) -> bytes:
    """Return a hash (16 bytes) of a row's values as the driver returns them."""
    return hashlib.blake2b(repr(values).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def cursor_of(moment: dt.datetime) -> int:
    """Return a time as microseconds since 1970. A time with a time zone is first converted to UTC."""
    if moment.tzinfo is not None:
        moment = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return (moment - _EPOCH) // dt.timedelta(microseconds=1)


def moment_of(cursor: int) -> dt.datetime:
    """Return the time of a cursor without time zone, limited to the years that databases can compare."""
    lowest, highest = cursor_of(dt.datetime(1000, 1, 1)), cursor_of(dt.datetime(9999, 12, 31, 23, 59, 59))
    return _EPOCH + dt.timedelta(microseconds=min(max(cursor, lowest), highest))
