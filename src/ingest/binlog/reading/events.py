"""Typed events of a binlog: one frozen dataclass per event type, named as in MySQL's replication listener library.

`RawEvent` is a transport's event: header and body, not decoded. `parse.parse_event` decodes it to a typed event on
demand. Every event knows its place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from ingest.binlog.format.codes import FLAG_ARTIFICIAL, event_name
from ingest.binlog.format.gtid import GtidSet

if TYPE_CHECKING:
    from ingest.binlog.format.tablemap import TableMap
    from ingest.binlog.rows.rows import TableDecoder


class RawEvent(NamedTuple):
    """One event as received: `data` is header and body without checksum. `next_position` is unwrapped to 64 bits.

    `file` and `offset` are the place of the event's first byte; an event inside a compressed transaction has its
    payload's place.
    """

    code: int
    data: bytes
    file: str
    offset: int
    next_position: int

    @property
    def where(self) -> str:
        return f"{self.file}:{self.offset}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EventHeader:
    """The header: the nineteen bytes before every event. `marker` is the byte before them on the wire (always 0)."""

    timestamp: int
    type_code: int
    server_id: int
    event_length: int
    next_position: int
    flags: int
    marker: int = 0

    @property
    def artificial(self) -> bool:
        """Return whether the server generated the event for this connection; no file contains it."""
        return bool(self.flags & FLAG_ARTIFICIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base of all events: the header, and `file` and `offset` of the first byte."""

    header: EventHeader
    file: str = ""
    offset: int = 0

    @property
    def name(self) -> str:
        return event_name(self.header.type_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatDescription(Event):
    """First event of every file. `created` is the binlog's creation time, 0 if the server did not restart."""

    binlog_version: int
    server_version: str
    created: int
    header_length: int
    post_header_lengths: bytes
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotate(Event):
    """The stream continues in another file."""

    next_file: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Event):
    """The server was shut down normally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Event):
    """A statement.

    `BEGIN` and `COMMIT` frame transactions of engines without XIDs. Undecodable bytes in `text` are replaced.
    """

    thread_id: int
    execution_seconds: int
    error_code: int
    status: bytes
    database: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntVar(Event):
    """LAST_INSERT_ID (1) or INSERT_ID (2) of the next statement."""

    kind: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rand(Event):
    """The seeds of RAND() for the next statement."""

    seed1: int
    seed2: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserVar(Event):
    """A user variable of the next statement; `value` None is NULL."""

    variable: str
    type: int
    charset: int
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid(Event):
    """A transaction was committed."""

    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class XaPrepare(Event):
    """An XA transaction was prepared (or committed at once in one phase); its rows precede this event."""

    one_phase: bool
    format_id: int
    gtrid: bytes
    bqual: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gtid(Event):
    """A transaction begins. Anonymous: `number` 0 and an empty `source`. Times are microseconds, 0 unknown."""

    source: str
    tag: str
    number: int
    flags: int
    last_committed: int = 0
    sequence_number: int = 0
    immediate_commit: int = 0
    original_commit: int = 0
    transaction_length: int = 0

    @property
    def gtid(self) -> str:
        """`uuid:number` or `uuid:tag:number`; empty for an anonymous transaction."""
        return ":".join(filter(None, (self.source, self.tag, str(self.number)))) if self.source else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousGtids(Event):
    """All transactions of the files before this one."""

    gtids: GtidSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MariaGtid(Event):
    """A MariaDB transaction begins. A standalone one consists of the next query only, without an end event."""

    domain: int
    number: int
    flags: int
    commit_id: int = 0

    @property
    def gtid(self) -> str:
        """`domain-server-number`."""
        return f"{self.domain}-{self.header.server_id}-{self.number}"

    @property
    def standalone(self) -> bool:
        return bool(self.flags & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MariaGtidList(Event):
    """The last (domain, server, number) of each pair in the files before this one."""

    gtids: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapped(Event):
    """A table id refers to this table until the id is mapped again."""

    table: TableMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Event):
    """Changed rows of one table, decoded when `rows()` is called; `data` is the logged event."""

    operation: Literal["insert", "update", "delete"]
    flags: int
    data: bytes = field(repr=False)
    decoder: TableDecoder = field(repr=False)
    id_size: int = 6

    @property
    def table(self) -> TableMap:
        return self.decoder.table

    @property
    def ends_statement(self) -> bool:
        return bool(self.flags & 1)

    def rows(self) -> list[Any]:
        """Return rows (insert, delete) or (before, after) pairs (update), in the decoder's flavour."""
        from ingest.binlog.format.errors import BinlogError

        try:
            return self.decoder.decode(self.header.type_code, self.data, self.id_size)
        except BinlogError as error:
            raise error.at(f"{self.file}:{self.offset}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsQuery(Event):
    """The statement that caused the next rows (MySQL's rows query, MariaDB's annotation)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPayload(Event):
    """A compressed transaction; its inner events follow it in the stream."""

    compression: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(Event):
    """The server (or this library's reader, `origin`) reports that events were lost or that an error occurred."""

    kind: int
    message: str
    origin: Literal["server", "reader"] = "server"
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Event):
    """The server is alive and has sent everything up to `position` of `log_file`."""

    log_file: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MariaCheckpoint(Event):
    """The oldest file that MariaDB needs for crash recovery."""

    log_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEncryption(Event):
    """The rest of the file is encrypted by MariaDB; only a connection to the server can read it."""

    scheme: int
    key_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """An event without rows that this library does not decode; its bytes are kept."""

    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction(Event):
    """A whole transaction, built by the default content handler: its identity and its events in order."""

    gtid: str
    events: tuple[Event, ...]
    complete: bool = True
    tables: Mapping[int, TableMap] = field(default_factory=dict)
