"""Connect to a MySQL or MariaDB server, and turn PyMySQL's errors into those of `cdc.model.errors`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pymysql
from pymysql.constants import CR, ER
from pymysql.converters import conversions
from pymysql.cursors import SSCursor

from cdc.model.errors import Fatal, Retriable, Skippable, TableChanged, TailorbirdError, UsageError
from cdc.model.schema import TableId
from cdc.model.tls import TlsMode, remedy_of
from cdc.topology.topology import Source
from ingest.binlog.transports.mysql_login import no_file_leaves
from ingest.binlog.transports.mysql_transport import tls_options
from ingest.binlog.transports.uri import ServerAddress, Ssl

# PyMySQL's converters without those for results: values stay the server's text; only parameters are converted.
_TEXT_ONLY: Any = {key: value for key, value in conversions.items() if not isinstance(key, int)}
_DENIED = {
    ER.ACCESS_DENIED_ERROR,
    ER.DBACCESS_DENIED_ERROR,
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,
}
_UNAVAILABLE = {
    CR.CR_CONN_HOST_ERROR,
    CR.CR_CONNECTION_ERROR,
    CR.CR_SERVER_GONE_ERROR,
    CR.CR_SERVER_LOST,
    ER.SERVER_SHUTDOWN,
    ER.CON_COUNT_ERROR,
    ER.LOCK_WAIT_TIMEOUT,
    ER.LOCK_DEADLOCK,
    ER.QUERY_INTERRUPTED,
}
# Codes of errors before the login: TLS failed, or the server asked for the password itself (`mysql_login`).
_LOGIN_FAILED = {
    CR.CR_CONN_HOST_ERROR,
    CR.CR_SSL_CONNECTION_ERROR,
    CR.CR_AUTH_PLUGIN_CANNOT_LOAD,
    CR.CR_AUTH_PLUGIN_ERR,
}
# Errors of a table that was altered or dropped since its columns were read: read the columns again.
_CHANGED = {ER.TABLE_DEF_CHANGED, ER.BAD_FIELD_ERROR, ER.NO_SUCH_TABLE}
_LOG_REFUSED = 1236  # ER_MASTER_FATAL_ERROR_READING_BINLOG
_LOG_REMEDIES = {
    "server_id": "give each reader of the server a unique server_id",
    "max_allowed_packet": "raise max_allowed_packet at the server",
    "purged": "raise binlog_expire_logs_seconds, and set `position_lost: resnapshot` to re-read all tables",
}


Connection = pymysql.connections.Connection


_SSL: Mapping[TlsMode, Ssl] = {
    "disabled": "off", "preferred": "preferred", "required": "required",
    "verify_ca": "verify_ca", "verify_identity": "verify",
}  # fmt: skip


def address_of(source: Source, *, heartbeat: float = 10.0) -> ServerAddress:
    """Return a source's server, with login, TLS and replica id. `heartbeat` is in seconds."""
    tls = source.tls
    return ServerAddress(
        host=source.hostname,
        port=source.port,
        user=source.username,
        password=source.password,
        ssl=_SSL[tls.mode],
        ca=tls.ca,
        cert=tls.cert,
        key=tls.key,
        server_id=source.server_id,
        heartbeat=heartbeat,
        reconnect=False,
    )


def settings(source: Source) -> dict[str, Any]:
    """Return PyMySQL's arguments for a connection to a source, without timeouts."""
    return {
        "host": source.hostname,
        "port": source.port,
        "user": source.username,
        "password": source.password,
        "charset": "utf8mb4",
        "connect_timeout": 10,
        "autocommit": True,
        **tls_options(address_of(source)),
    }


@contextmanager
def translated(source: Source, doing: str) -> Iterator[None]:
    """Turn PyMySQL's errors in the block into Retriable, UsageError or Fatal; messages name the source and `doing`."""
    try:
        with no_file_leaves():
            yield
    except TailorbirdError:
        raise
    except pymysql.MySQLError as error:
        raise _translate(error, source, doing) from error
    except OSError as error:
        raise Retriable(_message(source, doing, str(error))) from error


def named(source: Source) -> str:
    """Return how messages name the replica: with its address, unless a host's policy hides it from the gateway."""
    at = source.snapshot
    assert at is not None, "only a source with a replica is compared"
    return f"replica {at.hostname}:{at.port}" if source.permitted is None else "replica"


def _message(source: Source, doing: str, text: str) -> str:
    """Return an error's message, with the server's address unless it is a replica that a host's policy hides."""
    at, where = source.snapshot, f"{source.hostname}:{source.port}"
    if source.permitted is not None and at is not None and (at.hostname, at.port) == (source.hostname, source.port):
        where = named(source)
        text = re.sub(rf"(?<![\w-]){re.escape(source.hostname)}(?![\w-])", "(replica)", text, flags=re.I)
    return f"source {source.name} ({where}): {doing}: {text}"


@contextmanager
def reading(source: Source, table: TableId) -> Iterator[None]:
    """Translate errors while one table is read. Those that concern only this table (privilege, engine) become
    Skippable."""
    try:
        with translated(source, f"read {table}"):
            yield
    except (UsageError, Fatal) as error:
        grant = f"GRANT SELECT ON {table.name} TO '{source.username}'@'%'"
        raise Skippable(
            error.message, grant if isinstance(error, UsageError) else "correct it at the server"
        ) from error


@contextmanager
def connected(source: Source, *, read_timeout: float | None = 60.0) -> Iterator[Connection]:
    """Open a connection to a source and close it after the block. Values are text, and the session is in UTC."""
    with translated(source, "connect"):
        connection = pymysql.connect(**settings(source), conv=_TEXT_ONLY, read_timeout=read_timeout)
    try:
        with translated(source, "set up the session"), connection.cursor() as cursor:
            cursor.execute("SET time_zone = '+00:00', sql_mode = ''")
            show_generated_keys(connection)
        yield connection
    finally:
        if connection.open:
            connection.close()


def show_generated_keys(connection: Connection) -> None:
    """Make the session show the invisible primary keys that MySQL (from 8.0.30 on) generates."""
    shown = "show_gipk_in_create_table_and_information_schema"
    with connection.cursor() as cursor:
        cursor.execute("SHOW SESSION VARIABLES LIKE %s", (shown,))
        if cursor.fetchall():
            cursor.execute(f"SET SESSION {shown} = ON")


def query(connection: Connection, sql: str, *arguments: object) -> list[tuple[Any, ...]]:
    """Return all rows of a small query; values are text."""
    with connection.cursor() as cursor:
        cursor.execute(sql, arguments or None)
        return list(cursor.fetchall())


def each(connection: Connection, sql: str, *arguments: object) -> Iterator[tuple[Any, ...]]:
    """Yield the rows of a query as they arrive; values are text. Read all of them before the connection's next
    query."""
    with connection.cursor(SSCursor) as cursor:
        cursor.execute(sql, arguments or None)
        yield from cursor.fetchall_unbuffered()


def _translate(error: pymysql.MySQLError, source: Source, doing: str) -> TailorbirdError:
    code = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    text = str(error.args[1]) if len(error.args) > 1 else str(error)
    message = _message(source, doing, text)
    if code in _DENIED:
        grant = f"GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO '{source.username}'@'%'"
        return UsageError(message, f"check username and password, then {grant}")
    if code == _LOG_REFUSED:
        for sign, remedy in _LOG_REMEDIES.items():
            if sign in text:
                return Fatal(message, remedy)
        return Fatal(message, "check the server's error log")
    if code in _CHANGED:
        return TableChanged(message)
    if code in _LOGIN_FAILED and (remedy := remedy_of(text)):
        return Retriable(message, remedy)
    if code in _UNAVAILABLE or isinstance(error, pymysql.err.InterfaceError):
        return Retriable(message)
    return Fatal(message)
