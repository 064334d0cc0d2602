"""Typed events of a binlog: one frozen dataclass per event type, with the names of MySQL's replication listener
library.

`RawEvent` is an event as a transport delivers it, not decoded. `parse.parse_event` decodes it on demand. Every event
knows its place in the log.
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
    """One event as received. `data` is header and body without checksum; `next_position` has all 64 bits.

    `file` and `offset` are where the event begins. An event inside a compressed transaction has the place of the
    compressed event.
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
    """Header of an event: its first 19 bytes. `marker` is the byte before them in the server's protocol (always 0).

    `timestamp` is in seconds since 1970. `event_length` is the number of bytes of the whole event, `next_position` the
    offset of the next one.
    """

    timestamp: int
    type_code: int
    server_id: int
    event_length: int
    next_position: int
    flags: int
    marker: int = 0

    @property
    def artificial(self) -> bool:
        """Return whether the server created the event for this connection, so that no file contains it."""
        return bool(self.flags & FLAG_ARTIFICIAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Base class of all events. `file` and `offset` are where the event begins."""

    header: EventHeader
    file: str = ""
    offset: int = 0

    @property
    def name(self) -> str:
        return event_name(self.header.type_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class FormatDescription(Event):
    """First event of every file. `created` is the time of the server's start, or 0 if the file does not begin with a
    start.

    Times are in seconds since 1970. `post_header_lengths` has one byte per event type. `checksum` is 0 for none, 1 for
    CRC32."""

    binlog_version: int
    server_version: str
    created: int
    header_length: int
    post_header_lengths: bytes
    checksum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rotate(Event):
    """The log continues in another file. It begins at `position` of `next_file`."""

    next_file: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stop(Event):
    """The server has shut down normally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Query(Event):
    """A statement.

    `BEGIN` and `COMMIT` enclose transactions of engines without XIDs. Bytes in `text` that cannot be decoded are
    replaced. `status` are its undecoded status variables.
    """

    thread_id: int
    execution_seconds: int
    error_code: int
    status: bytes
    database: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IntVar(Event):
    """Value of LAST_INSERT_ID (kind 1) or INSERT_ID (kind 2) for the next statement."""

    kind: int
    value: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rand(Event):
    """Seeds of RAND() for the next statement."""

    seed1: int
    seed2: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UserVar(Event):
    """Value of a user variable for the next statement; None is NULL.

    `type` is the kind of value and `charset` the number of its collation, as the server writes them.
    """

    variable: str
    type: int
    charset: int
    value: bytes | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Xid(Event):
    """Commit of a transaction. `xid` is the number that InnoDB and other transactional engines know it by."""

    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class XaPrepare(Event):
    """Prepare of an XA transaction, or its commit in one phase. Its rows precede this event.

    Its XID consists of `format_id`, `gtrid` and `bqual`.
    """

    one_phase: bool
    format_id: int
    gtrid: bytes
    bqual: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Gtid(Event):
    """Begin of a MySQL transaction. An anonymous one has `number` 0 and no `source`. Times are µs since 1970, 0 if
    unknown.

    `immediate_commit` is that of this server, `original_commit` that of the first one. `last_committed` and
    `sequence_number` order transactions that may be applied in parallel. `transaction_length` is in bytes."""

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
        """Return `uuid:number` or `uuid:tag:number`; empty for an anonymous transaction."""
        return ":".join(filter(None, (self.source, self.tag, str(self.number)))) if self.source else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviousGtids(Event):
    """GTIDs of all transactions in the files before this one."""

    gtids: GtidSet


@dataclass(frozen=True, slots=True, kw_only=True)
class MariaGtid(Event):
    """Begin of a MariaDB transaction. A `standalone` one is only the next query, without an event for its end.

    Transactions with one `commit_id` were committed as a group.
    """

    domain: int
    number: int
    flags: int
    commit_id: int = 0

    @property
    def gtid(self) -> str:
        """Return `domain-server-number`."""
        return f"{self.domain}-{self.header.server_id}-{self.number}"

    @property
    def standalone(self) -> bool:
        return bool(self.flags & 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class MariaGtidList(Event):
    """Last GTID of each (domain, server) in the files before this one."""

    gtids: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableMapped(Event):
    """Table map: rows events with this table id belong to this table."""

    table: TableMap


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows(Event):
    """Changed rows of one table. `data` are the event's bytes, which `rows()` decodes.

    `id_size` is the number of bytes of the table id in them.
    """

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
    """Statement that caused the next rows (MySQL's rows query event, MariaDB's annotate event)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionPayload(Event):
    """A compressed transaction. The events inside it follow in the stream.

    `size` is its number of bytes after decompression, `compression` is 0 for zstd and 255 for none.
    """

    compression: int
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident(Event):
    """Report of the server, or of this library's reader (`origin`), that events were lost or an error occurred."""

    kind: int
    message: str
    origin: Literal["server", "reader"] = "server"
    error: Exception | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(Event):
    """Sign of life: the server has sent everything before `position` in `log_file`."""

    log_file: str
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MariaCheckpoint(Event):
    """Name of the oldest file that MariaDB needs for crash recovery."""

    log_file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StartEncryption(Event):
    """From here on, MariaDB has encrypted the file. Only a connection to the server can read it."""

    scheme: int
    key_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown(Event):
    """An event without rows that this library does not decode. `body` are its bytes."""

    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction(Event):
    """A whole transaction from the default content handler: GTID, and events in order. `tables` are by table id.

    Of a transaction with too many events there are several parts; only the last one is `complete`.
    """

    gtid: str
    events: tuple[Event, ...]
    complete: bool = True
    tables: Mapping[int, TableMap] = field(default_factory=dict)
