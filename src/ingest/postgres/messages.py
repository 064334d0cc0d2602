"""Decode messages of pgoutput, protocol version 1.

Source: PostgreSQL's manual, "Logical Replication Message Formats". Tuples remain bytes, which `relations` decodes.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

EPOCH_US = 946_684_800_000_000  # 2000-01-01 in microseconds since 1970: the server counts from there
_BEGIN, _COMMIT, _RELATION, _COLUMN = Struct(">QqI"), Struct(">BQQq"), Struct(">I"), Struct(">Ii")
_PAGE, _HEADER, _LONG_HEADER = 8192, 24, 40  # bytes
U16, U32, U64 = Struct(">H").unpack_from, Struct(">I").unpack_from, Struct(">Q").unpack_from
OLD_KEY, OLD_ROW, NEW_ROW = ord("K"), ord("O"), ord("N")
NULL, UNCHANGED, TEXT = ord("n"), ord("u"), ord("t")


class Begin(NamedTuple):
    """Begin of a transaction. `lsn` is the position of its commit, `commit_us` the commit time (µs since 1970, UTC)."""

    lsn: int
    commit_us: int
    xid: int


class Commit(NamedTuple):
    """Commit of a transaction. `end` is the position after it, where the next one may begin."""

    lsn: int
    end: int


class RelationColumn(NamedTuple):
    """One column of a relation message. `key`: it belongs to the replica identity."""

    name: str
    oid: int
    modifier: int
    key: bool


class LoggedRelation(NamedTuple):
    """Relation message: the columns of a table's rows from here on.

    `identity` is the replica identity: d(efault), n(othing), f(ull) or i(ndex).
    """

    oid: int
    schema: str
    table: str
    identity: str
    columns: tuple[RelationColumn, ...]


class Truncation(NamedTuple):
    """TRUNCATE of the tables with these OIDs."""

    oids: tuple[int, ...]


def begin(data: bytes) -> Begin:
    """Decode the message `B` (begin)."""
    lsn, at, xid = _BEGIN.unpack_from(data, 1)
    return Begin(lsn, at + EPOCH_US, xid)


def commit(data: bytes) -> Commit:
    """Decode the message `C` (commit)."""
    _, lsn, end, _ = _COMMIT.unpack_from(data, 1)
    return Commit(lsn, end)


def relation(data: bytes) -> LoggedRelation:
    """Decode the message `R` (relation)."""
    (oid,) = _RELATION.unpack_from(data, 1)
    schema, at = _text(data, 5)
    table, at = _text(data, at)
    identity = chr(data[at])
    (count,) = U16(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        key = bool(data[at] & 1)
        name, at = _text(data, at + 1)
        kind, modifier = _COLUMN.unpack_from(data, at)
        at += 8
        columns.append(RelationColumn(name, kind, modifier, key))
    # the empty text means pg_catalog
    return LoggedRelation(oid, schema or "pg_catalog", table, identity, tuple(columns))


def emptied(data: bytes) -> Truncation:
    """Decode the message `T` (truncate)."""
    (count,) = U32(data, 1)
    return Truncation(tuple(U32(data, 6 + 4 * n)[0] for n in range(count)))


def lsn_text(lsn: int) -> str:
    """Format a log position (LSN) as the server does: `16/B374D848`."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def record_end(lsn: int, segment: int) -> int:
    """Return the end of the last record, given the position at which the next one begins.

    A page begins with a header, which is longer on the first page of a segment (a file of `segment` bytes). As long as
    no record follows the header, readers only get to the beginning of the page.
    """
    page = lsn - lsn % _PAGE
    return page if lsn - page == (_LONG_HEADER if page % segment == 0 else _HEADER) else lsn


def lsn_of(text: str) -> int:
    """Parse a log position; inverse of `lsn_text`. Raises ValueError for any other text."""
    high, _, low = text.partition("/")
    return int(high, 16) << 32 | int(low, 16)


def _text(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(0, at)
    # a database of the encoding SQL_ASCII may have names that are not UTF-8
    return data[at:end].decode(errors="replace"), end + 1
