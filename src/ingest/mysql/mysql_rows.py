"""Read the rows of a SELECT as packets, in large pieces: PyMySQL reads each packet and each value by itself."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pymysql.connections import MySQLResult
from pymysql.constants import COMMAND, CR
from pymysql.err import InternalError, OperationalError
from pymysql.protocol import MysqlPacket

from cdc.model.schema import TableSchema
from ingest.events.log_events import Image
from ingest.events.values import image_of, readers_of
from ingest.mysql.mysql_connection import Connection
from ingest.mysql.row_packets import ResultColumn, packet_reader, packet_rows
from ingest.records.row_json import EncodedRow

_PIECE = 1 << 20  # bytes that are read at once
_CONTINUED = 0xFFFFFF  # the size of a packet that the next one continues
_EOF, _ERROR, _SHORTEST = 0xFE, 0xFF, 9


class PacketRows(MySQLResult):
    """The result of a SELECT, with its rows as packets."""

    packets: list[bytes]
    # attributes that the type hints of PyMySQL do not contain
    fields: list[Any]
    converters: list[tuple[str | None, Any]]

    def _read_rowdata_packet(self) -> None:
        connection: Any = self.connection
        self.packets = []
        for packet in _packets(connection):
            if packet[0] == _ERROR:
                MysqlPacket(packet, connection.encoding).raise_for_error()
            if packet[0] == _EOF and len(packet) < _SHORTEST:
                break
            self.packets.append(packet)
        self._encoding = connection.encoding

    def values(self, packet: bytes) -> tuple[Any, ...]:
        """Return the values of a row as PyMySQL returns them."""
        result: Any = self
        row: tuple[Any, ...] = result._read_row_from_packet(MysqlPacket(packet, self._encoding))
        return row

    def images(self, schema: TableSchema) -> list[Image | EncodedRow]:
        """Return the rows; the first columns of the result are those of the table."""
        width = len(schema.columns)
        shown = tuple(
            ResultColumn(field.type_code, field.flags, encoding)
            for field, (encoding, _) in zip(self.fields, self.converters, strict=True)
        )
        read, write = packet_reader(width), packet_rows(schema, shown[:width])
        found: list[Image | EncodedRow] = []
        for packet in self.packets:
            try:
                found.append(write(read(packet)))
            except ValueError:
                found.append(image_of(readers_of(schema), self.values(packet)[:width]))
        return found


def read_rows(connection: Connection, sql: str) -> PacketRows:
    """Execute a SELECT and return its result. Raises PyMySQL's errors."""
    client: Any = connection
    client._execute_command(COMMAND.COM_QUERY, sql.encode(client.encoding))
    result = PacketRows(connection)
    result.read()
    return result


def _packets(connection: Any) -> Iterator[bytes]:
    """Yield packets as they arrive. The caller ends after the last one of the result."""
    rest, begun = b"", b""
    while True:
        at, size = 0, len(rest)
        while size - at >= 4:
            length = int.from_bytes(rest[at : at + 3], "little")
            end = at + 4 + length
            if end > size:
                break
            if rest[at + 3] != connection._next_seq_id:
                connection._force_close()
                raise InternalError(f"Packet sequence number wrong: {rest[at + 3]}, not {connection._next_seq_id}")
            connection._next_seq_id = (connection._next_seq_id + 1) & 255
            packet, at = rest[at + 4 : end], end
            if length == _CONTINUED or begun:
                begun += packet
                if length == _CONTINUED:
                    continue
                packet, begun = begun, b""
            yield packet
        piece = _piece(connection)
        rest = rest[at:] + piece if at < size else piece


def _piece(connection: Any) -> bytes:
    try:
        piece: bytes = connection._rfile.read1(_PIECE)
    except OSError as error:
        connection._force_close()
        raise OperationalError(CR.CR_SERVER_LOST, f"Lost connection to MySQL server during query ({error})") from error
    if not piece:
        connection._force_close()
        raise OperationalError(CR.CR_SERVER_LOST, "Lost connection to MySQL server during query")
    return piece
