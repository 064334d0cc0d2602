"""Read the binlog of a MySQL or MariaDB server as a replica does, over PyMySQL's connection.

It uses GTID auto-positioning if the checkpoint has a GTID set (of MySQL, with tags, or of MariaDB); otherwise file and
position. A lost connection raises `ConnectionLost`. The reader then resumes at its checkpoint, so that nothing is read
twice or missed. Heartbeats distinguish an idle server from a dead one.
"""

from __future__ import annotations

import contextlib
import random
import select
import socket
import ssl
import time
from collections.abc import Iterator
from struct import Struct
from typing import Any, Final

import pymysql
from pymysql.constants import CR

from cdc.model.errors import UsageError
from cdc.model.tls import is_loopback
from ingest.binlog.format.codes import HEADER_SIZE, EventType
from ingest.binlog.format.errors import BinlogError, ConnectionLost, CorruptBinlog, LogPurged, PositionGone
from ingest.binlog.format.gtid import AnyGtidSet, GtidSet, MariaGtidSet
from ingest.binlog.format.packed import U16, U64
from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.stream import CRC32, Packet
from ingest.binlog.reading.whole import PACKET_GAP, ReadBuffer
from ingest.binlog.transports.mysql_login import CAUTIOUS_LOGIN, no_file_leaves
from ingest.binlog.transports.mysql_register import ACCESS, register
from ingest.binlog.transports.uri import ServerAddress

_DUMP: Final = 0x12
_DUMP_GTID: Final = 0x1E
_NON_BLOCK: Final = 0x01
_ANNOTATE: Final = 0x02
_THROUGH_GTID: Final = 0x04
_BUFFER: Final = 1 << 18
_ERR_PACKET: Final = 0xFF  # first byte of a packet without event; that of an event's packet is 0
_EOF_PACKET: Final = 0xFE
_WRAP: Final = 1 << 32
# Event header: length, and position of the next event.
_PLACE: Final = Struct("<9xII").unpack_from
# Rotate event: start of the next file's name.
_ROTATE_NAME: Final = HEADER_SIZE + 8
_COMMAND: Final = Struct("<BIHI")
_COMMAND_GTID: Final = Struct("<BHII")
_NOT_SERVED: Final = 1236
# error texts (lower case) of MySQL and MariaDB if their log does not contain the position
_GONE: Final = (
    "more gtids", "not in the master's binlog", "position > file size", "impossible position",
)  # fmt: skip
# error texts for a position whose log was purged
_PURGED: Final = ("purged", "could not find first log", "could not find gtid")
# error texts for a damaged log file
_DAMAGED: Final = (
    "bogus data", "crc check", "checksum", "truncated", "corrupt", "reading log event", "max_allowed_packet",
    "invalid event", "event too small",
)  # fmt: skip
_LONGEST_WAIT: Final = 30.0
# Seconds: a heartbeat may be late by that much on a busy machine.
_LEAST_SILENCE: Final = 5.0


def connect(address: ServerAddress, **options: Any) -> pymysql.connections.Connection[Any]:
    """Open an ordinary client connection.

    Raises UsageError if the login is refused, ConnectionLost if the server is unavailable.
    """
    try:
        return pymysql.connect(
            host=address.host,
            port=address.port,
            user=address.user,
            password=address.password,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=max(1, int(address.timeout)),
            **tls_options(address),
            **options,
        )
    except pymysql.err.OperationalError as error:
        code = error.args[0] if error.args else 0
        if code in ACCESS:
            raise UsageError(
                f"{address.host}:{address.port} refuses the user {address.user!r}",
                "check the password; reading binlogs requires REPLICATION SLAVE and REPLICATION CLIENT",
            ) from error
        raise ConnectionLost(f"{address.host}:{address.port} cannot be reached: {error.args[-1]}") from error
    except (OSError, RuntimeError, ssl.SSLError) as error:
        raise ConnectionLost(f"{address.host}:{address.port} cannot be reached: {error}") from error


def tls_options(address: ServerAddress) -> dict[str, Any]:
    """Return PyMySQL's arguments for a server's encryption and login. PyMySQL's default is preferred.

    A server that is neither verified nor on this machine cannot ask for the password itself. Raises UsageError if a
    certificate cannot be read.
    """
    mode, ca = address.ssl, address.ca
    verifies = mode in ("verify_ca", "verify") or (mode == "required" and bool(ca))
    login = {} if verifies or is_loopback(address.host) else {"auth_plugin_map": CAUTIOUS_LOGIN}
    if mode == "off":
        return {"ssl_disabled": True, **login}
    if mode == "preferred" and not address.cert:
        return login
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if not verifies:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if mode == "verify_ca":
            context.check_hostname = False
        if address.cert:
            context.load_cert_chain(address.cert, address.key or None)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(file for file in (ca, address.cert, address.key) if file)
        raise UsageError(f"certificates {files} cannot be read: {error}", "give readable PEM files") from error
    return {"ssl": context, **login}


class MysqlTransport:
    """The packets of one server. It connects at once, so that a wrong address fails early."""

    selects_gtids = True

    def __init__(self, address: ServerAddress) -> None:
        self.address = address
        self.reconnects = address.reconnect
        self._server_id = address.server_id or random.randrange(1 << 30, 1 << 31)
        self._connection: pymysql.connections.Connection[Any] | None = None
        self._closed = False
        self.checksum = 0
        self.maria = False
        self.buffer = ReadBuffer(PACKET_GAP)
        self._prepare()

    def head(self) -> BinlogPosition:
        """Return the server's newest position with its GTID set, at which a reader without a checkpoint starts.

        Raises UsageError if the server writes no binlog.
        """
        rows = self._query("SHOW BINARY LOG STATUS", "SHOW MASTER STATUS")
        if not rows:
            raise UsageError("the server writes no binlog", "start it with --log-bin and --binlog-format=ROW")
        file, position = rows[0][0], int(rows[0][1])
        gtids: AnyGtidSet | None = None
        if self.maria:
            found = self._query(f"SELECT BINLOG_GTID_POS('{file}', {position})")
            gtids = MariaGtidSet.parse(found[0][0] or "") if found else None
        elif len(rows[0]) > 4 and self._query("SELECT @@global.gtid_mode")[0][0] == "ON":
            gtids = GtidSet.parse(rows[0][4].replace("\n", ""))
        return BinlogPosition(file=file, position=position, gtids=gtids)

    def first(self) -> BinlogPosition:
        """Return the oldest position that the server still has. Raises UsageError if the server has no binlog."""
        rows = self._query("SHOW BINARY LOGS")
        if not rows:
            raise UsageError("the server has no binlogs", "start it with --log-bin and --binlog-format=ROW")
        return BinlogPosition(file=rows[0][0], position=4)

    def packets(self, start: BinlogPosition) -> Iterator[Packet]:
        """Yield the events from a checkpoint on. Ends at the newest event unless `address.follow`.

        Raises ConnectionLost if the connection fails.
        """
        if self._connection is None:
            self._prepare()
        connection = self._connection
        assert connection is not None
        if not start.file and start.gtids is None:
            start = self.head()
        if self.address.follow:
            register(connection, self._server_id, self.address.host)
        self._send_dump(connection, start)
        self._connection = None  # from here on, the connection only carries events
        sock: socket.socket = connection._sock  # type: ignore[attr-defined]  # PyMySQL has no public way to its socket
        silence = max(self.address.heartbeat * 3, _LEAST_SILENCE) if self.address.heartbeat else None
        sock.settimeout(silence)
        self._dumping = connection
        self.buffer = ReadBuffer(PACKET_GAP)
        self._source = _Source(sock, self.buffer)
        try:
            yield from self._events(self._source, start)
        except (TimeoutError, OSError, ssl.SSLError) as error:
            if self._closed:
                return
            raise ConnectionLost(f"the connection to {self.address.host} was lost: {error}") from error
        finally:
            with contextlib.suppress(OSError, pymysql.err.Error):
                connection._force_close()  # type: ignore[attr-defined]  # a dump cannot be ended regularly

    _dumping: pymysql.connections.Connection[Any] | None = None
    _source: _Source | None = None

    def idle(self, settling: float = 0.0) -> bool:
        """Return whether no event of the log arrives within `settling` seconds."""
        return self._source is None or self._source.empty(settling)

    def _events(self, source: _Source, start: BinlogPosition) -> Iterator[Packet]:
        buffer = self.buffer
        buffer.file, buffer.position = start.file, 0
        high = start.position & ~(_WRAP - 1)
        while True:
            first, event = source.packet()
            if first:
                if first == _ERR_PACKET:
                    self._refused(event)
                if first == _EOF_PACKET and len(event) < 8:
                    if self.address.follow and not self._closed:
                        raise ConnectionLost(f"{self.address.host} ended the stream")
                    return
            last = buffer.position
            if len(event) < _ROTATE_NAME and (len(event) < HEADER_SIZE or event[4] == EventType.ROTATE):
                raise CorruptBinlog("an event is shorter than its header", where=f"{buffer.file}:{last}")
            length, stated = _PLACE(event)
            if event[4] == EventType.ROTATE:
                size = len(event) - (4 if self.checksum else 0)
                yield event, buffer.file, last, stated
                buffer.file = event[_ROTATE_NAME:size].rstrip(b"\0").decode()
                buffer.position = U64(event, HEADER_SIZE)[0]
                high = buffer.position & ~(_WRAP - 1)
                continue
            if not stated:
                yield event, buffer.file, last, 0
                continue
            if high + stated < last and last - (high + stated) > _WRAP // 2:
                high += _WRAP
            buffer.position = last = high + stated
            yield event, buffer.file, last - length, last

    def _refused(self, data: bytes) -> None:
        code = U16(data, 0)[0]
        text = data[8:].decode("utf-8", "replace")
        if code == _NOT_SERVED:
            message = f"{self.address.host} cannot serve this position: {text}"
            if any(sign in text.lower() for sign in _GONE):
                raise PositionGone(
                    message, "its binlogs were reset since, or it is another server; take a new snapshot"
                )
            if any(sign in text.lower() for sign in _PURGED):
                raise LogPurged(message, "its binlogs were purged since; take a new snapshot")
            if "server_id" in text or "server_uuid" in text:
                raise BinlogError(message, "give each reader of the server a unique server_id")
            if any(sign in text.lower() for sign in _DAMAGED):
                raise CorruptBinlog(message, "check the server's error log")
            raise BinlogError(message, "check the server's error log")
        if code in ACCESS:
            raise UsageError(f"{self.address.host}: {text}", "grant REPLICATION SLAVE, REPLICATION CLIENT")
        raise ConnectionLost(f"{self.address.host}: error {code}: {text}")

    def wait(self, attempt: int) -> None:
        """Wait before a new connection attempt: from 0.1 to 30 seconds."""
        time.sleep(min(_LONGEST_WAIT, 0.1 * 2 ** min(attempt, 10)) * (0.5 + random.random() / 2))

    def close(self) -> None:
        """End `packets`. Any thread may call it."""
        self._closed = True
        for connection in (self._connection, self._dumping):
            sock = getattr(connection, "_sock", None)
            if sock is not None:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)
                with contextlib.suppress(OSError):
                    sock.close()
        self._connection = None

    def _query(self, *statements: str) -> tuple[Any, ...]:
        """Return the rows of the first of these statements that the server's version supports."""
        if self._connection is None:
            self._prepare()
        try:
            for statement in statements[:-1]:
                with contextlib.suppress(pymysql.err.ProgrammingError):
                    return self._rows(statement)
            return self._rows(statements[-1])
        except pymysql.err.OperationalError as error:
            if error.args[0] in ACCESS:
                raise UsageError(f"{self.address.host}: {error.args[-1]}", "grant REPLICATION CLIENT") from error
            if error.args[0] in (CR.CR_SERVER_LOST, CR.CR_SERVER_GONE_ERROR):
                raise ConnectionLost(f"{self.address.host}: {error.args[-1]}") from error
            raise UsageError(
                f"{self.address.host}: {error.args[-1]}", f"check why the server refuses {statements[-1]}"
            ) from error

    def _rows(self, statement: str) -> tuple[Any, ...]:
        assert self._connection is not None
        with no_file_leaves(), self._connection.cursor() as cursor:
            cursor.execute(statement)
            return tuple(cursor.fetchall())

    def _prepare(self) -> None:
        """Open the connection, and configure its session as that of a replica."""
        connection = connect(self.address)
        self._connection = connection
        self.maria = "mariadb" in str(self._query("SELECT @@version")[0][0]).lower()
        nanoseconds = int(self.address.heartbeat * 1_000_000_000)
        settings = ["@master_binlog_checksum=@@global.binlog_checksum", f"@master_heartbeat_period={nanoseconds}"]
        if self.maria:
            settings.append("@mariadb_slave_capability=4")
        else:
            settings += [
                "@source_binlog_checksum=@@global.binlog_checksum",
                f"@source_heartbeat_period={nanoseconds}",
            ]
        self._query("SET " + ", ".join(settings))
        self.checksum = CRC32 if self._query("SELECT @@global.binlog_checksum")[0][0] == "CRC32" else 0

    def _send_dump(self, connection: Any, start: BinlogPosition) -> None:
        flags = 0 if self.address.follow else _NON_BLOCK
        name = start.file.encode()
        gtids = None if self.address.by_place and start.file else start.gtids
        if isinstance(gtids, GtidSet) and not self.maria:
            encoded = gtids.encode()
            command = _COMMAND_GTID.pack(_DUMP_GTID, flags | _THROUGH_GTID, self._server_id, 0)
            command += (4).to_bytes(8, "little") + len(encoded).to_bytes(4, "little") + encoded
        else:
            if isinstance(gtids, MariaGtidSet) and self.maria:
                self._query(f"SET @slave_connect_state='{gtids}', @slave_gtid_strict_mode=0")
                name, position = b"", 4
            else:
                position = start.position
            if position >= _WRAP:
                raise UsageError(f"position {position} is beyond 4 GiB", "start at a GTID set")
            flags |= _ANNOTATE if self.maria else 0
            command = _COMMAND.pack(_DUMP, position, flags, self._server_id) + name
        try:
            connection._write_bytes(len(command).to_bytes(3, "little") + b"\0" + command)
        except (OSError, pymysql.err.Error) as error:
            raise ConnectionLost(f"the connection to {self.address.host} was lost: {error}") from error


class _Source:
    """Splits bytes from a socket into the packets of MySQL's protocol."""

    def __init__(self, sock: socket.socket, buffer: ReadBuffer) -> None:
        self._sock, self._buffer = sock, buffer
        self._encrypted = isinstance(sock, ssl.SSLSocket)

    def empty(self, settling: float) -> bool:
        """Return whether reading would block for more than `settling` seconds."""
        if self._buffer.at < len(self._buffer.block):
            return False
        return not self._arrived(settling)

    def _arrived(self, settling: float = 0.0) -> bool:
        """Return whether data is available, or arrives within `settling` seconds."""
        pending = self._sock.pending() if isinstance(self._sock, ssl.SSLSocket) else 0
        return bool(pending or select.select([self._sock], [], [], settling)[0])

    def packet(self) -> tuple[int, bytes]:
        """Return the next packet as its first byte and the rest. Packets of 16 MiB are joined with the ones that
        continue them."""
        buffer = self._buffer
        at, block = buffer.at, buffer.block
        if len(block) - at < 4:
            at, block = 0, self._fill(4)
        size = block[at] | block[at + 1] << 8 | block[at + 2] << 16
        if not size:
            raise ConnectionError("an empty packet")
        end = at + 4 + size
        if end > len(block):
            block = self._fill(4 + size)
            at, end = 0, 4 + size
        buffer.at = end
        if size == 0xFFFFFF:
            return block[at + 4], block[at + 5 : end] + self._more()
        return block[at + 4], block[at + 5 : end]

    def _more(self) -> bytes:
        """Return the rest of a packet of the maximum size from the packets that continue it."""
        parts: list[bytes] = []
        size = 0xFFFFFF
        while size == 0xFFFFFF:
            head = self._fill(4)
            size = head[0] | head[1] << 8 | head[2] << 16
            block = self._fill(4 + size)
            parts.append(block[4 : 4 + size])
            self._buffer.at = 4 + size
        return b"".join(parts)

    def _fill(self, size: int) -> bytes:
        """Read from the socket until the block has at least `size` unread bytes."""
        buffer = self._buffer
        parts = [buffer.block[buffer.at :]]
        have = len(parts[0])
        buffer.block, buffer.at = b"", 0
        # TLS delivers at most 16 KiB at a time, too little to contain many whole transactions.
        while have < size or (self._encrypted and have < _BUFFER and self._arrived()):
            part = self._sock.recv(max(_BUFFER, min(size - have, 1 << 24)))
            if not part and have < size:
                raise ConnectionError("the server closed the connection")
            if not part:  # return the data so far; the next read finds the end again
                break
            parts.append(part)
            have += len(part)
        buffer.block = b"".join(parts)
        return buffer.block
