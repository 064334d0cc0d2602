"""Decode packets of a binlog stream into events and rows. This module does no I/O.

A transport delivers packets (header, body, checksum) with their place. `EventStream` verifies the checksum, unfolds
compressed transactions, keeps table maps by id and decodes rows events. It never skips an event that may contain rows:
an unknown event type stops the stream, unless the server has marked it as ignorable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from struct import error as StructError
from typing import Any, Final, Literal, NamedTuple
from zlib import crc32

from ingest.binlog.format.codes import (
    CHECKSUM_SIZE,
    DELETES,
    FLAG_IGNORABLE,
    FLAG_IN_USE,
    HEADER_SIZE,
    INSERTS,
    KNOWN_WITHOUT_ROWS,
    ROWS_EVENTS,
    STATEMENT_ROWS,
    EventType,
    event_name,
)
from ingest.binlog.format.columns import SchemaSource, apply_schema
from ingest.binlog.format.compressed import parse_payload, payload_events
from ingest.binlog.format.errors import BinlogError, CorruptBinlog, MissingTableMap, UndecodableValue, UnsupportedEvent
from ingest.binlog.format.flavour import NATIVE, Flavour
from ingest.binlog.format.packed import U16, U32
from ingest.binlog.format.server_version import MYSQL, ServerVersion, server_version_of
from ingest.binlog.format.tablemap import TableMap, parse_table_map, table_name
from ingest.binlog.reading import events as e
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.parse import format_description, parse_event, parse_header
from ingest.binlog.reading.position import BinlogPosition, Identity, PositionTracker, gtid_text
from ingest.binlog.rows.rows import TableDecoder

T = EventType
Operation = Literal["insert", "update", "delete"]
CRC32: Final = 1
# CRC32 of any bytes followed by their own CRC32.
CRC_RESIDUE: Final = 0x2144DF1C
_OPERATION: Final[dict[int, Operation]] = {
    code: "insert" if code in INSERTS else "delete" if code in DELETES else "update" for code in ROWS_EVENTS
}
# A TABLE_MAP with a post-header of six bytes has table ids of four bytes (early versions of MySQL 5.1).
_OLD_TABLE_MAP: Final = 6


# One event as a transport delivers it: data, file, offset, next position (0: not known). It is a plain tuple for speed.
Packet = tuple[bytes, str, int, int]
_new = tuple.__new__


class RowBatch(NamedTuple):
    """All rows of one rows event: rows (insert, delete), or (before, after) pairs (update)."""

    operation: Operation
    decoder: TableDecoder
    rows: list[Any]
    raw: RawEvent


class Committed(NamedTuple):
    """End of a transaction. The reader's checkpoint is now after it."""

    identity: Identity | None
    raw: RawEvent

    @property
    def gtid(self) -> str:
        """Return the GTID as text; empty for an anonymous transaction."""
        return gtid_text(self.identity)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """Options of a stream. `verify`: verify checksums, if there are any. `schema` supplies what the binlog lacks.

    `tables(database, table)` returns whether a table's rows are wanted. Rows of other tables are not decoded, and may
    have types that this library does not support. `user_events` are type codes that your own programs write: their
    events contain no rows of tables, and are delivered as `Unknown` with their bytes. No server's code may be among
    them.
    """

    flavour: Flavour = NATIVE
    verify: bool = True
    schema: SchemaSource | None = None
    tables: Callable[[str, str], bool] | None = None
    user_events: frozenset[int] = frozenset()

    def __post_init__(self) -> None:
        if taken := sorted(code for code in self.user_events if not 0 < code < 256 or code in set(T)):
            raise ValueError(
                f"event type {taken[0]} belongs to servers, or is not a byte: choose another for user_events"
            )


class EventStream:
    """Decoder of one stream. It keeps the writer's version, checksum algorithm, table maps and position between
    events."""

    def __init__(
        self, start: BinlogPosition | None = None, options: StreamOptions | None = None, *, checksum: int = 0
    ) -> None:
        self.options = options or StreamOptions()
        self.progress = PositionTracker(start or BinlogPosition())
        self.server: ServerVersion = MYSQL
        self.checksum = checksum
        self._verify = self.options.verify
        self.id_size = 6
        self._decoders: dict[bytes, TableDecoder] = {}
        self._maps: dict[bytes, bytes] = {}
        # The same decoders, by the bytes of the last TABLE_MAP event of each table id.
        self.decoders_by_map: dict[bytes, TableDecoder] = {}
        # A table map is valid only in its transaction. Otherwise an older map of the same id would hide a lost one.
        self._mapped_in: dict[bytes, int] = {}
        self.description: e.FormatDescription | None = None

    def receive(self, packet: Packet) -> RawEvent:
        """Verify and remove a packet's checksum, and return the event. Raises CorruptBinlog with file and offset."""
        data, file, offset, next_position = packet
        if len(data) < HEADER_SIZE:
            raise CorruptBinlog("an event is shorter than its header", where=f"{file}:{offset}")
        code = data[4]
        if code == T.FORMAT_DESCRIPTION:
            data = self._describe(packet)
        elif self.checksum:
            if self._verify and crc32(data) != CRC_RESIDUE:
                raise _bad_checksum(code, file, offset)
            data = data[:-CHECKSUM_SIZE]
        return _new(RawEvent, (code, data, file, offset, next_position))

    def _describe(self, packet: Packet) -> bytes:
        """Decode the format description: the writer's version, and the checksum algorithm for the rest of the file."""
        data, file, offset, next_position = packet
        where = f"{file}:{offset}"
        try:
            server = data[HEADER_SIZE + 2 : HEADER_SIZE + 52].split(b"\0", 1)[0].decode("latin-1")
            self.server = server_version_of(server)
            algorithm = 0
            if self.server.checksums:
                algorithm = data[-CHECKSUM_SIZE - 1]
                crc = U32(data, len(data) - CHECKSUM_SIZE)[0]
                data = data[:-CHECKSUM_SIZE]
                if algorithm not in (0, CRC32):
                    raise CorruptBinlog(f"checksum algorithm {algorithm} is neither 0 nor 1", where=where)
                flags = U16(data, 17)[0] & ~FLAG_IN_USE
                # The server sets the in-use flag after it computed the checksum.
                if (
                    self.options.verify
                    and algorithm
                    and crc32(data[:17] + flags.to_bytes(2, "little") + data[19:]) != crc
                ):
                    raise _bad_checksum(T.FORMAT_DESCRIPTION, file, offset)
                data = data[:-1]
            body = data[HEADER_SIZE:]
            facts = format_description(body, algorithm)
        except (StructError, IndexError) as error:
            raise CorruptBinlog("the format description is too short", where=where) from error
        if facts["header_length"] != HEADER_SIZE or facts["binlog_version"] != 4:
            raise UnsupportedEvent(
                f"binlog version {facts['binlog_version']} (before MySQL 5.0)",
                "only version 4 is supported",
                where=where,
            )
        lengths: bytes = facts["post_header_lengths"]
        self.id_size = 4 if len(lengths) >= T.TABLE_MAP and lengths[T.TABLE_MAP - 1] == _OLD_TABLE_MAP else 6
        self.checksum = algorithm
        self._decoders.clear()
        self._maps.clear()
        self.decoders_by_map.clear()
        header = parse_header(packet[0], next_position)
        self.description = e.FormatDescription(header=header, file=file, offset=offset, **facts)
        return data

    def unfold(self, raw: RawEvent) -> Iterator[RawEvent]:
        """Yield the events inside a compressed transaction. All have the place of the compressed event.

        Raises CorruptBinlog for damaged data, and the other errors of `payload_events`.
        """
        try:
            payload = parse_payload(raw.data[HEADER_SIZE:])
            for data in payload_events(payload):
                if data[4] == T.TRANSACTION_PAYLOAD:
                    raise CorruptBinlog("a compressed transaction inside a compressed transaction")
                yield RawEvent(data[4], data, raw.file, raw.offset, raw.next_position)
        except BinlogError as error:
            raise error.at(raw.where) from error
        except (StructError, IndexError, ValueError) as error:
            raise CorruptBinlog(f"a compressed transaction cannot be decoded: {error}", where=raw.where) from error

    def map_table(self, raw: RawEvent) -> TableDecoder:
        """Register a TABLE_MAP event. A new decoder is created only if the bytes differ from those of the last one.

        Raises CorruptBinlog for damaged data, and other BinlogErrors.
        """
        body = raw.data[HEADER_SIZE:]
        key = body[: self.id_size]
        self._mapped_in[key] = self.progress.transactions
        if self._maps.get(key) == body:
            return self._decoders[key]
        refusal: BinlogError | None = None
        try:
            database, name = table_name(body, self.id_size)
            wanted = self.options.tables is None or self.options.tables(database, name)
            try:
                table = self._table(body)
            except (UnsupportedEvent, UndecodableValue) as error:
                if wanted:
                    raise
                # If the table's rows are not wanted, it does not matter that they cannot be decoded.
                table = TableMap(table_id=int.from_bytes(key, "little"), database=database, table=name)
                refusal = error.at(raw.where)
        except BinlogError as error:
            raise error.at(raw.where) from error
        except (StructError, IndexError, ValueError, KeyError) as error:
            raise CorruptBinlog(f"a TABLE_MAP cannot be decoded: {error}", where=raw.where) from error
        decoder = TableDecoder(table, self.options.flavour, wanted=wanted, refusal=refusal)
        self.decoders_by_map.pop(self._maps.get(key, b""), None)
        self._maps[key], self._decoders[key], self.decoders_by_map[body] = body, decoder, decoder
        return decoder

    def _table(self, body: bytes) -> TableMap:
        """Return the table of a TABLE_MAP event's body, completed from the schema."""
        table = parse_table_map(body, self.server, self.id_size)
        if self.options.schema is not None:
            hints = self.options.schema.schema_at((table.database, table.table), self.progress.checkpoint)
            if hints is not None:
                table = replace(table, columns=apply_schema(table.columns, hints, table.name))
        return table

    def decoder_of(self, raw: RawEvent) -> TableDecoder:
        """Return the decoder for the table id of a rows event. Raises MissingTableMap if the transaction did not map
        it."""
        key = raw.data[HEADER_SIZE : HEADER_SIZE + self.id_size]
        decoder = self._decoders.get(key)
        if decoder is None or self._mapped_in[key] != self.progress.transactions:
            raise MissingTableMap(
                f"rows of table id {int.from_bytes(key, 'little')} without its TABLE_MAP",
                "start at the beginning of a transaction",
                where=raw.where,
            )
        return decoder

    def batch(self, raw: RawEvent, decoder: TableDecoder) -> RowBatch:
        """Decode a rows event with the decoder of its table."""
        try:
            rows = decoder.decode(raw.code, raw.data, self.id_size)
        except BinlogError as error:
            raise error.at(raw.where) from error
        return _new(RowBatch, (_OPERATION[raw.code], decoder, rows, raw))

    def check_known(self, raw: RawEvent) -> None:
        """Raise UnsupportedEvent for an event that may contain rows in an unknown form."""
        code = raw.code
        if code in KNOWN_WITHOUT_ROWS or code in ROWS_EVENTS:
            return
        if code in STATEMENT_ROWS:
            raise UnsupportedEvent(
                f"{event_name(code)} loads rows by statement", "set binlog_format=ROW on the server", where=raw.where
            )
        if code == T.MARIA_START_ENCRYPTION:
            raise UnsupportedEvent(
                "the rest of the file is encrypted", "read it over a connection to the server", where=raw.where
            )
        if code in self.options.user_events:
            return
        if code == T.UNKNOWN or not U16(raw.data, 17)[0] & FLAG_IGNORABLE:
            raise UnsupportedEvent(
                f"{event_name(code)} is an unknown event type that may contain rows",
                "report the server's version, or list a type of your own in StreamOptions.user_events",
                where=raw.where,
            )

    def typed(self, raw: RawEvent) -> e.Event:
        """Decode an event to its typed form. TABLE_MAP and rows events register and use table maps.

        Raises CorruptBinlog for damaged data, and other BinlogErrors.
        """
        try:
            if raw.code == T.TABLE_MAP:
                return e.TableMapped(
                    header=self._header(raw), file=raw.file, offset=raw.offset, table=self.map_table(raw).table
                )
            if raw.code in ROWS_EVENTS:
                return e.Rows(
                    header=self._header(raw),
                    file=raw.file,
                    offset=raw.offset,
                    operation=_OPERATION[raw.code],
                    flags=U16(raw.data, HEADER_SIZE + self.id_size)[0],
                    data=raw.data,
                    decoder=self.decoder_of(raw),
                    id_size=self.id_size,
                )
            if raw.code == T.FORMAT_DESCRIPTION and self.description is not None:
                return self.description
            self.check_known(raw)
            return parse_event(raw)
        except BinlogError as error:
            raise error.at(raw.where) from error
        except (StructError, IndexError, ValueError, KeyError) as error:
            raise CorruptBinlog(f"{event_name(raw.code)} cannot be decoded: {error}", where=raw.where) from error

    @staticmethod
    def _header(raw: RawEvent) -> e.EventHeader:
        return parse_header(raw.data, raw.next_position)

    def observe(self, raw: RawEvent) -> None:
        """Update the position after an event that was yielded."""
        try:
            self.progress.observe(raw)
        except (StructError, IndexError, ValueError, BinlogError) as error:
            raise self.broken(raw, error) from error

    @staticmethod
    def broken(raw: RawEvent, error: Exception) -> BinlogError:
        """Return the error, with the event's place, for an event that cannot be decoded."""
        if isinstance(error, BinlogError):
            return error.at(raw.where)
        return CorruptBinlog(f"{event_name(raw.code)} cannot be decoded: {error}", where=raw.where)


def _bad_checksum(code: int, file: str, offset: int) -> CorruptBinlog:
    return CorruptBinlog(
        f"the checksum of {event_name(code)} does not match its bytes",
        "it was damaged in the file or on the connection; fetch the file again from the server",
        where=f"{file}:{offset}",
    )
