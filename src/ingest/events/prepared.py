"""Track XA transactions that are prepared, but neither committed nor rolled back.

Their rows are published at XA COMMIT. Until then they stay in memory as raw events, up to `MOST` bytes in total. Rows
above that limit are read again from the log at XA COMMIT, from the position in the checkpoint on. If the log no longer
contains them, the tables are re-read instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cdc.model.schema import TableId
from ingest.binlog.format.codes import HEADER_SIZE
from ingest.binlog.format.packed import U32, take
from ingest.events.log_events import RowsNotLogged
from ingest.events.row_events import RowsEvent

STATE = "prepared"  # key of the prepared transactions in a checkpoint's state
MOST = 32 << 20
MANY = 500  # maximum number in a checkpoint; at the commit of one that is missing, all tables are re-read
_NAME = re.compile(
    r"\s*XA\s+(COMMIT|ROLLBACK|START|BEGIN)\s+(X?)'([^']*)'(?:\s*,\s*(X?)'([^']*)')?(?:\s*,\s*(\d+))?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedTransaction:
    """A prepared transaction. It begins at `file` and `pos` in the log; `gtid` is that of its XA PREPARE.

    `tables` are the captured tables that it changed. `events` are its rows events, or None if they must be read again.
    `unknown` are its statements that were logged as text.
    """

    xid: str
    gtid: str
    file: str
    pos: int
    since_ms: int
    tables: tuple[TableId, ...]
    events: tuple[RowsEvent, ...] | None
    unknown: tuple[RowsNotLogged, ...] = ()


class PreparedTransactions:
    """The prepared transactions of a source by XID, loaded from a checkpoint's state."""

    def __init__(self, state: Mapping[str, Any], source: str) -> None:
        self._known: dict[str, PreparedTransaction] = {}
        self._bytes = 0
        self._stored = STATE in state
        for xid, gtid, file, pos, since_ms, names in state.get(STATE, ()):
            tables = tuple(TableId(source=source, database=database, table=table) for database, table in names)
            self._known[xid] = PreparedTransaction(
                xid=xid, gtid=gtid, file=file, pos=pos, since_ms=since_ms, tables=tables, events=None if tables else ()
            )

    def __iter__(self) -> Iterator[PreparedTransaction]:
        return iter(self._known.values())

    @property
    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint; empty if nothing is prepared and the loaded state was empty."""
        if not self._known and not self._stored:
            return {}
        self._stored = True
        return {
            STATE: [
                [one.xid, one.gtid, one.file, one.pos, one.since_ms, [[t.database, t.table] for t in one.tables]]
                for one in self._known.values()
            ]
        }

    def room(self, size: int) -> bool:
        """Return whether the rows of one more transaction, of `size` bytes, may be kept in memory."""
        return self._bytes + size <= MOST

    def add(self, transaction: PreparedTransaction) -> None:
        """Add a prepared transaction. It replaces an older one with the same XID, which must have ended."""
        self.remove(transaction.xid)
        self._known[transaction.xid] = transaction
        self._bytes += _size(transaction)
        if len(self._known) > MANY:
            self.remove(next(iter(self._known)))

    def get(self, xid: str) -> PreparedTransaction | None:
        """Return the transaction of an XID, or None if it was prepared before the capture began."""
        return self._known.get(xid)

    def remove(self, xid: str) -> None:
        """Remove a transaction that is committed or rolled back."""
        known = self._known.pop(xid, None)
        if known is not None:
            self._bytes -= _size(known)


def _size(transaction: PreparedTransaction) -> int:
    return sum(len(event.raw.data) for event in transaction.events or ())


def xid_of_statement(statement: str) -> tuple[str, str] | None:
    """Return (keyword, XID) of a logged XA statement; None for other statements.

    The keyword is COMMIT, ROLLBACK, START or BEGIN.
    """
    found = _NAME.match(statement)
    if found is None:
        return None
    first, second = (
        bytes.fromhex(text) if hexadecimal else text.encode()
        for hexadecimal, text in ((found[2], found[3]), (found[4], found[5] or ""))
    )
    return found[1].upper(), _xid(int(found[6] or 1), first, second)


def xid_of_event(data: bytes) -> tuple[bool, str]:
    """Return (committed in one phase, XID) of an XA_PREPARE event. Raises ValueError if the event is truncated."""
    at = HEADER_SIZE
    first, following = take(data, at + 13, U32(data, at + 5)[0])
    second, _ = take(data, following, U32(data, at + 9)[0])
    return bool(data[at]), _xid(U32(data, at + 1)[0], first, second)


def _xid(form: int, first: bytes, second: bytes) -> str:
    return f"{first.hex()}.{second.hex()}.{form}"
