"""Read the rows events of a server with mysql-replication, an independent decoder (`tailorbird[compare]`)."""

from __future__ import annotations

import random
import struct
from collections.abc import Generator
from typing import Any

import pymysql

from cdc.model.errors import Retriable, UsageError
from cdc.model.extras import extras_named
from ingest.binlog.reading.position import BinlogPosition
from ingest.binlog.reading.second_opinion import OtherRows, TableFilter, ordered
from ingest.binlog.transports.mysql_transport import tls_options
from ingest.binlog.transports.uri import ServerAddress

# What its decoders raise for bytes or texts that they do not expect.
_FAILURES = (
    ArithmeticError, AttributeError, KeyError, IndexError, NotImplementedError, TypeError, ValueError, struct.error,
    RuntimeError, AssertionError,
)  # fmt: skip


def other_rows(
    address: ServerAddress, start: BinlogPosition, end: BinlogPosition, wanted: TableFilter | None
) -> Generator[OtherRows]:
    """Yield the rows events of wanted tables between two positions, each a file and an offset.

    An event that cannot be read before its table is known is one without a table, whatever is wanted.

    Raises UsageError if the package is missing, and Retriable if the connection fails.
    """
    with extras_named("compare"):
        from pymysqlreplication import BinLogStreamReader
        from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent
    stream = BinLogStreamReader(
        _login(address),
        server_id=random.randrange(1 << 30, 1 << 31), log_file=start.file, log_pos=start.position, resume_stream=True,
        only_events=[WriteRowsEvent, UpdateRowsEvent, DeleteRowsEvent], enable_logging=False,
        **_only(wanted),
    )  # fmt: skip
    try:
        while True:
            try:
                event = stream.fetchone()
            except _FAILURES as error:  # an event before the rows, such as a TABLE_MAP; the next one can be read
                yield OtherRows(file=stream.log_file, end=stream.log_pos, table="", failed=_failed(error))
                continue
            # MariaDB 11.4 logs no places within a transaction: then `log_pos` is the last one before it
            at = (stream.log_file, stream.log_pos)
            if event is None or ordered(*at) > ordered(end.file, end.position):
                return
            if wanted is None or wanted(event.schema, event.table):
                yield _rows(event, *at)
    except pymysql.MySQLError as error:
        raise Retriable(f"mysql-replication lost the server: {error}") from error
    finally:
        stream.close()


class _FoldedNames(frozenset[str]):
    """Contains names in any case; mysql-replication asks by `in`."""

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())


def _only(wanted: TableFilter | None) -> dict[str, Any]:
    """Return the arguments with which mysql-replication decodes no events of other databases and tables."""
    names = [name.split(".", 1) for name in wanted.names] if wanted is not None else []
    if not names:
        return {}
    only = {"only_schemas": _FoldedNames(database for database, _ in names)}
    if all(table != "*" for _, table in names):
        only["only_tables"] = _FoldedNames(table for _, table in names)
    return only


def _rows(event: Any, file: str, end: int) -> OtherRows:
    name = f"{event.schema}.{event.table}"
    try:
        rows = [
            (row["before_values"], row["after_values"]) if "before_values" in row else (row["values"],)
            for row in event.rows
        ]
    except _FAILURES as error:
        return OtherRows(file=file, end=end, table=name, failed=_failed(error))
    return OtherRows(file=file, end=end, table=name, rows=rows)


def _failed(error: Exception) -> str:
    """Describe an error without its message, which may contain values."""
    return f"mysql-replication raised {type(error).__name__}"


def check_metadata(address: ServerAddress) -> None:
    """Raise UsageError if the server does not log names and types of columns, without which nothing can be compared."""
    try:
        with pymysql.connect(**_login(address)) as connection, connection.cursor() as cursor:
            cursor.execute("SHOW GLOBAL VARIABLES LIKE 'binlog_row_metadata'")
            found = cursor.fetchone()
    except pymysql.MySQLError as error:
        raise Retriable(f"{address.host}:{address.port}: {error.args[-1]}") from error
    if found is None or str(found[1]).upper() != "FULL":
        raise UsageError(
            f"the server logs no names of columns (binlog_row_metadata is {found[1] if found else 'unknown'})",
            "SET GLOBAL binlog_row_metadata = FULL, and compare what is logged afterwards (--from)",
        )


def _login(address: ServerAddress) -> dict[str, Any]:
    login = {"host": address.host, "port": address.port, "user": address.user, "password": address.password}
    return {**login, **tls_options(address)}
