"""Register a reader at a MySQL or MariaDB server, which then lists it among its replicas (SHOW REPLICAS)."""

from __future__ import annotations

import socket
from typing import Any, Final

import pymysql
from pymysql.constants import ER

from cdc.model.errors import UsageError
from ingest.binlog.format.errors import ConnectionLost

# errors of a server that refuses a user, or what the user asks for
ACCESS: Final = frozenset(
    {ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR, 1045, 1227, 1251}
)
_REGISTER: Final = 0x15  # COM_REGISTER_SLAVE
_LONGEST: Final = 60  # bytes that the server keeps of a replica's host name


def register(connection: Any, server_id: int, host: str) -> None:
    """Appear in the list of replicas of the server `host` as long as the connection lasts.

    The name that it shows is no host's: a tool that connects to listed replicas must not find another server there. A
    proxy that does not know the command only misses the entry. Raises UsageError if the user may not replicate, and
    ConnectionLost for any other error.
    """
    name = f"tailorbird@{socket.gethostname()}".encode()[:_LONGEST]
    # server id, then host, user and password with their lengths, then port, rank and the primary's id
    content = server_id.to_bytes(4, "little") + bytes([len(name)]) + name + bytes(2) + bytes(2 + 4 + 4)
    try:
        connection._execute_command(_REGISTER, content)
        connection._read_ok_packet()
    except pymysql.err.MySQLError as error:
        code = error.args[0] if error.args else 0
        if code in ACCESS:
            raise UsageError(f"{host}: {error.args[-1]}", "grant REPLICATION SLAVE") from error
        if code != ER.UNKNOWN_COM_ERROR:
            raise ConnectionLost(f"{host}: cannot register as a replica: {error}") from error
