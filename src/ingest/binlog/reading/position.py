"""Track the position of a reader: the next thing to read. It advances only at the end of a transaction."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ingest.binlog.format.codes import HEADER_SIZE, EventType
from ingest.binlog.format.gtid import AnyGtidSet, GtidSet, MariaGtidSet, parse_gtid_set
from ingest.binlog.format.packed import I64, U16, U32, U64
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.parse import (
    maria_gtid_identity,
    parse_event,
    query_text,
    tagged_identity,
)

T = EventType
# a time, or a date: GTIDs of MariaDB have the same form, but no number with a leading zero
_DATE = re.compile(r"\d{4}-\d\d-\d\d[T ]|\d{4}-(?:0\d-\d\d|\d\d-0\d)$")


@dataclass(frozen=True, slots=True, kw_only=True)
class BinlogPosition:
    """Position at which to resume without loss or repetition.

    `file` and `position` are where a transaction begins; `batches` is the number of its rows events that are already
    processed. `gtids` are the processed transactions. If they are None, because the start was given without them, only
    file and position count.
    """

    file: str = ""
    position: int = 4
    gtids: AnyGtidSet | None = None
    batches: int = 0

    def __str__(self) -> str:
        text = f"{self.file}:{self.position}" if self.file else str(self.gtids or "")
        return f"{text}+{self.batches}" if self.batches else text


def parse_position(text: str) -> BinlogPosition:
    """Parse a position that a user enters: `binlog.000003:4711`, a bare number, or a GTID set.

    Raises ValueError, also for a date or a time, whose last part looks like a position.
    """
    if _DATE.match(text):
        raise ValueError(f"{text!r} is a time, not a position: write FILE:POSITION, or a GTID set")
    if text.isdecimal():
        return BinlogPosition(position=int(text))
    name, colon, number = text.rpartition(":")
    if colon and number.isdecimal() and not _looks_like_uuid(text):
        return BinlogPosition(file=name, position=int(number))
    return BinlogPosition(gtids=parse_gtid_set(text))


def _looks_like_uuid(text: str) -> bool:
    return len(text.split(":", 1)[0]) == 36 and text[8:9] == "-" == text[13:14]


Identity = tuple[str, str, int] | tuple[int, int, int]


def gtid_text(identity: Identity | None) -> str:
    """Return a transaction's GTID as text (`uuid:number`, `uuid:tag:number` or `domain-server-number`); empty if
    anonymous."""
    if identity is None:
        return ""
    first, second, third = identity
    if isinstance(first, int):
        return f"{first}-{second}-{third}"
    return f"{first}:{second}:{third}" if second else f"{first}:{third}"


class _Uuids(dict[bytes, str]):
    """Cache: bytes of a server UUID → text."""

    def __missing__(self, raw: bytes) -> str:
        if len(self) > 1000:
            self.clear()
        text = self[raw] = str(UUID(bytes=raw))
        return text


UUIDS: Final = _Uuids()


class PositionTracker:
    """Computes the checkpoint from the raw events of one connection, or of a set of files.

    `observe` must receive every event in order. `batches` is the number of rows events of the open transaction,
    `transactions` that of ended transactions. `framing`: the last event was a query that only begins a transaction.
    `identity` is that of the open transaction, `ended` that of the last ended one: (server, tag, number), (domain,
    server, number), or None.
    """

    def __init__(self, start: BinlogPosition) -> None:
        self.file = start.file
        self.position = start.position
        self.batches = start.batches
        self.in_transaction = False
        self.framing = False
        self.transactions = 0
        self.ended: Identity | None = None
        self._known = start.gtids
        self.identity: Identity | None = None
        self._framed = False
        # Transactions that ended since the last update of `_known`: consecutive numbers of one server.
        self._run: tuple[str, str] | None = None
        self._first = self._next = 0
        self._domains: dict[int, tuple[int, int]] = {}

    @property
    def gtids(self) -> AnyGtidSet | None:
        """Return all transactions that have ended; None if the start was given without GTIDs."""
        if self._run is not None and isinstance(self._known, GtidSet):
            self._known = self._known.add(*self._run, self._first, self._next)
        self._run = None
        if self._domains and isinstance(self._known, MariaGtidSet):
            self._known = MariaGtidSet({**self._known.domains, **self._domains})
            self._domains.clear()
        return self._known

    @property
    def checkpoint(self) -> BinlogPosition:
        return BinlogPosition(file=self.file, position=self.position, gtids=self.gtids, batches=self.batches)

    @property
    def gtid(self) -> str:
        """Return the GTID of the open transaction; empty if it has none."""
        return gtid_text(self.identity)

    def observe(self, raw: RawEvent) -> None:
        """Process one event. If no transaction is open afterwards, the checkpoint moves after it."""
        code, data, file, _, next_position = raw
        if code in _INSIDE:
            if not self.in_transaction and next_position:
                self.file, self.position = file, next_position
        elif code == 16 or code == 38:  # XID, XA_PREPARE
            self.end(raw)
        elif code == 33:  # GTID
            self.in_transaction, self._framed = True, False
            self.identity = (UUIDS[data[20:36]], "", I64(data, 36)[0])
        elif code == 2 or code == 165:  # QUERY
            self._query(raw)
        elif code == T.ANONYMOUS_GTID:
            self.begin(None)
        elif code == T.GTID_TAGGED:
            self.begin(tagged_identity(data[HEADER_SIZE:]))
        elif code == T.MARIA_GTID:
            domain, number, flags = maria_gtid_identity(data[HEADER_SIZE:])
            self.begin((domain, U32(data, 5)[0], number))
            self._framed = not flags & 1
        elif code == T.ROTATE:
            self.position, self.file = U64(data, HEADER_SIZE)[0], data[HEADER_SIZE + 8 :].rstrip(b"\0").decode()
            self.in_transaction = False
        elif code == T.FORMAT_DESCRIPTION and self.file in ("", file):
            # A reader that starts inside a file first receives the format description, and keeps its start position.
            self.file, self.position = file, max(self.position, next_position)
        elif code == T.PREVIOUS_GTIDS or code == T.MARIA_GTID_LIST:
            self._known_before(raw)
            self._advance(raw)
        elif code == T.INCIDENT and self.in_transaction and not self._framed:
            self.end(raw)  # MySQL gives an incident a GTID, but no end
        elif not self.in_transaction:
            self._advance(raw)

    def _advance(self, raw: RawEvent) -> None:
        if raw.next_position:
            self.file, self.position = raw.file, raw.next_position

    def begin(self, identity: Identity | None) -> None:
        """Note that a transaction has begun."""
        self.in_transaction, self._framed, self.identity = True, False, identity

    def _query(self, raw: RawEvent) -> None:
        data = raw.data
        text = data[HEADER_SIZE + 14 + U16(data, HEADER_SIZE + 11)[0] + data[HEADER_SIZE + 8] :]
        self.framing = text == b"BEGIN"
        if self.framing:
            self.in_transaction = self._framed = True
            return
        if not self._framed:
            statement = query_text(data[HEADER_SIZE:], raw.code != T.QUERY)[1].lstrip().upper()
            if statement.startswith(("XA START", "XA BEGIN")):
                self.framing = self.in_transaction = self._framed = True
                return
            self.end(raw)
            return
        word = text[:16].upper().lstrip()
        ends = word.startswith((b"COMMIT", b"ROLLBACK", b"XA COMMIT", b"XA ROLLBACK"))
        if ends and not word.startswith(b"ROLLBACK TO"):
            self.end(raw)

    def end(self, raw: RawEvent) -> None:
        """Move the checkpoint after a transaction, given its last event."""
        self._framed = False
        self.close(self.identity, raw.file if raw.next_position else self.file, raw.next_position or self.position)

    def close(self, identity: Identity | None, file: str, position: int) -> None:
        """Move the checkpoint to a position after the transaction with this identity."""
        if identity is not None and self._known is not None:
            first, second, number = identity
            if number == self._next and self._run is not None and self._run[0] == first and self._run[1] == second:
                self._next = number + 1
            elif isinstance(first, int):
                self._domains[first] = (second, number)  # type: ignore[assignment]  # integers all, see Identity
            else:
                _ = self.gtids
                self._run, self._first, self._next = (first, second), number, number + 1  # type: ignore[assignment]  # texts, see Identity
        self.ended = identity
        self.transactions += 1
        self.identity = None
        self.in_transaction = False
        self.batches = 0
        self.file, self.position = file, position

    def _known_before(self, raw: RawEvent) -> None:
        event = parse_event(raw)
        known = self.gtids
        if raw.code == T.PREVIOUS_GTIDS:
            before: GtidSet = event.gtids  # type: ignore[attr-defined]  # parses to PreviousGtids
            self._known = known.union(before) if isinstance(known, GtidSet) else before
            return
        if known:
            return
        found = MariaGtidSet()
        for domain, number, server in event.gtids:  # type: ignore[attr-defined]  # parses to MariaGtidList
            found = found.add(domain, server, number)  # the last entry of a domain is the newest
        self._known = found


_INSIDE: Final = frozenset(
    {T.TABLE_MAP, T.ROWS_QUERY, T.MARIA_ANNOTATE_ROWS, T.INTVAR, T.RAND, T.USER_VAR}
    | {20, 21, 22, 23, 24, 25, 30, 31, 32, 39, 166, 167, 168, 169, 170, 171}
)

GTID_EVENTS: Final = frozenset({T.GTID, T.GTID_TAGGED, T.MARIA_GTID, T.ANONYMOUS_GTID})
BETWEEN_TRANSACTIONS: Final = frozenset(
    {T.FORMAT_DESCRIPTION, T.ROTATE, T.STOP, T.PREVIOUS_GTIDS, T.MARIA_GTID_LIST, T.HEARTBEAT, T.HEARTBEAT_V2}
)


def identity_of(raw: RawEvent) -> Identity | None:
    """Return the transaction's identity in a GTID event; None for an anonymous one."""
    data = raw.data
    if raw.code == T.GTID:
        return UUIDS[data[20:36]], "", I64(data, 36)[0]
    if raw.code == T.GTID_TAGGED:
        return tagged_identity(data[HEADER_SIZE:])
    if raw.code == T.MARIA_GTID:
        domain, number, _ = maria_gtid_identity(data[HEADER_SIZE:])
        return domain, U32(data, 5)[0], number
    return None
