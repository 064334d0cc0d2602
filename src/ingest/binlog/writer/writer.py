"""Encode the events of binlog files: a valid file from scratch, or a copy of a stream with further events.

Every method returns the bytes to append to the file, with positions and checksums; `file_writer` writes them.
`mysqlbinlog` accepts the result, and a server replays it. Times are seconds since 1970, passed by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from struct import pack, pack_into
from typing import Any, Final, Literal
from uuid import UUID
from zlib import crc32

from ingest.binlog.format.codes import HEADER_SIZE, MAGIC, ColumnType, EventType
from ingest.binlog.format.columns import LABELLED, LoggedColumn
from ingest.binlog.format.errors import UnsupportedEvent
from ingest.binlog.format.gtid import GtidSet
from ingest.binlog.format.packed import encode_length
from ingest.binlog.format.server_version import server_version_of
from ingest.binlog.reading.events import RawEvent
from ingest.binlog.reading.parse import HEADER
from ingest.binlog.writer.encode import bitmap, column_metadata, encode_image, optional_metadata

T = EventType
Operation = Literal["insert", "update", "delete"]
# Sizes of the post-headers of event types 1 to 39 in MySQL 8.0, from its format description.
POST_HEADER_LENGTHS: Final = bytes(
    int(size)
    for size in "0 13 0 8 0 0 0 0 4 0 4 0 0 0 96 0 4 26 8 0 0 0 8 8 8 2 0 0 0 10 10 10 42 42 0 18 52 0 10".split()
)
_CODES: Final[dict[Operation, int]] = {"insert": T.WRITE_ROWS, "update": T.UPDATE_ROWS, "delete": T.DELETE_ROWS}


class BinlogWriter:
    """Encoder for one file: it tracks position and checksums. Call `begin` first, and `end` or `rotate` last."""

    def __init__(self, *, server_id: int = 1, server_version: str = "8.0.15", checksum: bool = True) -> None:
        self.server_id = server_id
        self.server_version = server_version
        self.checksum = checksum
        self.position = 0
        self._server = server_version_of(server_version)

    def begin(
        self,
        timestamp: int,
        previous: GtidSet | None = None,
        *,
        created: int | None = None,
        lengths: bytes = POST_HEADER_LENGTHS,
    ) -> bytes:
        """Return the magic number and the format description; with `previous`, also the set of earlier transactions."""
        self.position = len(MAGIC)
        body = pack("<H50sIB", 4, self.server_version.encode(), timestamp if created is None else created, HEADER_SIZE)
        parts = [MAGIC, self._event(T.FORMAT_DESCRIPTION, body + lengths, timestamp, describe=True)]
        if previous is not None:
            parts.append(self.event(T.PREVIOUS_GTIDS, previous.encode(), timestamp))
        return b"".join(parts)

    def event(self, code: int, body: bytes, timestamp: int, *, flags: int = 0, server_id: int | None = None) -> bytes:
        """Return an event of any type with this body."""
        return self._event(code, body, timestamp, flags=flags, server_id=server_id)

    def _event(
        self,
        code: int,
        body: bytes,
        timestamp: int,
        *,
        flags: int = 0,
        server_id: int | None = None,
        describe: bool = False,
    ) -> bytes:
        if describe:
            body += bytes((int(self.checksum),))
        tail = 4 if self.checksum or describe else 0
        size = HEADER_SIZE + len(body) + tail
        self.position += size
        server = self.server_id if server_id is None else server_id
        data = HEADER.pack(timestamp, code, server, size, self.position & 0xFFFFFFFF, flags) + body
        if not tail:
            return data
        return data + (pack("<I", crc32(data)) if self.checksum else bytes(4))

    def copy(self, raw: RawEvent) -> bytes:
        """Return an event of another binlog, encoded for its place in this file. A format description must not be
        copied.

        Raises UnsupportedEvent if the post-header of the event has another size in this file.
        """
        if raw.code == T.FORMAT_DESCRIPTION:
            raise UnsupportedEvent(
                "a format description inside a file", "begin() has already written this file's description"
            )
        data = bytearray(raw.data)
        size = len(data) + (4 if self.checksum else 0)
        self.position += size
        pack_into("<II", data, 9, size, self.position & 0xFFFFFFFF)
        return bytes(data) + (pack("<I", crc32(data)) if self.checksum else b"")

    def gtid(
        self,
        source: str,
        number: int,
        timestamp: int,
        *,
        last_committed: int = 0,
        sequence: int = 1,
        commit_us: int = 0,
    ) -> bytes:
        """Return the GTID event that begins a transaction.

        `commit_us` is microseconds since 1970; 0 omits it.
        """
        body = bytes((1,)) + UUID(source).bytes + pack("<qBqq", number, 2, last_committed, sequence)
        if commit_us:
            body += commit_us.to_bytes(7, "little") + b"\0"
        return self.event(T.GTID, body, timestamp)

    def anonymous(self, timestamp: int) -> bytes:
        """Return the event that begins a transaction without GTID."""
        return self.event(T.ANONYMOUS_GTID, bytes(25) + pack("<Bqq", 2, 0, 1), timestamp)

    def query(self, database: str, text: str, timestamp: int) -> bytes:
        """Return the event of a statement, in utf8mb4."""
        status = b"\x04" + pack("<HHH", 45, 45, 45)
        name = database.encode()
        head = pack("<IIBHH", 1, 0, len(name), 0, len(status))
        return self.event(T.QUERY, head + status + name + b"\0" + text.encode(), timestamp)

    def xid(self, number: int, timestamp: int) -> bytes:
        """Return the event that commits a transaction."""
        return self.event(T.XID, pack("<Q", number), timestamp)

    def table_map(
        self,
        table_id: int,
        database: str,
        table: str,
        columns: Sequence[LoggedColumn],
        timestamp: int,
        primary_key: Sequence[int] = (),
    ) -> bytes:
        """Return the TABLE_MAP event of a table, with full metadata."""
        names = b"".join(bytes((len(name.encode()),)) + name.encode() + b"\0" for name in (database, table))
        stored = [ColumnType.STRING if column.type in LABELLED else column.type for column in columns]
        meta = b"".join(map(column_metadata, columns))
        body = table_id.to_bytes(6, "little") + pack("<H", 1) + names + encode_length(len(columns)) + bytes(stored)
        body += encode_length(len(meta)) + meta + bitmap([column.nullable for column in columns])
        body += optional_metadata(columns, primary_key, year_has_sign=self._server.year_has_sign)
        return self.event(T.TABLE_MAP, body, timestamp)

    def rows(
        self,
        operation: Operation,
        table_id: int,
        columns: Sequence[LoggedColumn],
        rows: Iterable[Any],
        timestamp: int,
        *,
        ends_statement: bool = True,
    ) -> bytes:
        """Return the event of changed rows: dicts, or (before, after) pairs. All rows must have the same columns."""
        listed = list(rows)
        pairs = listed if operation == "update" else [(row,) for row in listed]
        carried = [[column for column in columns if column.name in image] for image in pairs[0]]
        body = table_id.to_bytes(6, "little") + pack("<HH", int(ends_statement), 2) + encode_length(len(columns))
        body += b"".join(bitmap([column in images for column in columns]) for images in carried)
        body += b"".join(
            encode_image(images, image) for pair in pairs for images, image in zip(carried, pair, strict=True)
        )
        return self.event(_CODES[operation], body, timestamp)

    def rotate(self, next_file: str, timestamp: int) -> bytes:
        """Return the event that ends this file and names the next one."""
        return self.event(T.ROTATE, pack("<Q", 4) + next_file.encode(), timestamp)

    def end(self, timestamp: int) -> bytes:
        """Return the event that ends the last file, as a server writes it at shutdown."""
        return self.event(T.STOP, b"", timestamp)
