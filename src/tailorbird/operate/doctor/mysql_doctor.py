"""Query a MySQL or MariaDB server for `doctor`.

Privileges are tested by trying them. SHOW GRANTS would not suffice, because roles and wildcards also count."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any

import pymysql
from pymysql.constants import ER

from cdc.model.errors import TailorbirdError
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.topology import Source
from ingest.ddl.catalog import Key
from ingest.events.foreign_keys import CHANGING
from ingest.mysql.mysql_connection import connected, settings, show_generated_keys
from ingest.mysql.mysql_replica import check_replica, on_replica
from tailorbird.operate.doctor.doctor import Cascade, Checkup, ServerInspection, TableInspection, UnreachableServer

_VARIABLES = (
    "log_bin",
    "binlog_format",
    "binlog_row_image",
    "binlog_row_value_options",
    "binlog_row_metadata",
    "gtid_mode",
    "binlog_expire_logs_seconds",
    "expire_logs_days",
    "server_id",
)
_TABLE = "SELECT ENGINE, TABLE_TYPE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s"
_LONGEST = (
    "SELECT MAX(TIMESTAMPDIFF(SECOND, t.trx_started, NOW())) FROM information_schema.INNODB_TRX t "
    "JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id "
    "WHERE p.USER = SUBSTRING_INDEX(CURRENT_USER(), '@', 1)"
)
_INDEXES = (
    "SELECT INDEX_NAME, COLUMN_NAME, NON_UNIQUE FROM information_schema.STATISTICS "
    "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY INDEX_NAME, SEQ_IN_INDEX"
)
_COLUMNS = (
    "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME, COLLATION_NAME FROM information_schema.COLUMNS "
    "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION"
)
_CASCADES = (
    "SELECT k.CONSTRAINT_NAME, k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, r.DELETE_RULE, r.UPDATE_RULE "
    "FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS r "
    "ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME "
    "AND r.TABLE_NAME = k.TABLE_NAME WHERE k.TABLE_SCHEMA = %s AND k.TABLE_NAME = %s AND k.ORDINAL_POSITION = 1 "
    "AND k.REFERENCED_TABLE_NAME IS NOT NULL"
)

_REGISTER_SLAVE = 0x15  # COM_REGISTER_SLAVE
# error codes of a server that refuses a login; with any other code the server was reached, or did not answer
_REFUSED = {ER.ACCESS_DENIED_ERROR, ER.DBACCESS_DENIED_ERROR, 1698}


def server_inspection(source: Source) -> ServerInspection | UnreachableServer:
    """Return the server's answers, or the reason why it cannot be reached or refuses the login."""
    try:
        return _inspect(source)
    except (pymysql.MySQLError, OSError) as error:
        problem = str(error.args[-1]) if error.args else str(error)
        return UnreachableServer(problem=problem, refused=bool(error.args) and error.args[0] in _REFUSED)


def replica_checkup(source: Source) -> Checkup:
    """Return whether the tables of a source can be read from its replica."""
    replica = on_replica(source)
    try:
        with connected(source) as primary, connected(replica) as other:
            check_replica(primary, other, source)
    except TailorbirdError as error:
        return Checkup(
            subject=f"source {source.name}", check="replica", status="fault", found=error.message, remedy=error.hint
        )
    address = f"{replica.hostname}:{replica.port}"
    return Checkup(subject=f"source {source.name}", check="replica", status="ok", found=address)


def _inspect(source: Source) -> ServerInspection:
    connection = pymysql.connect(**{**settings(source), "connect_timeout": 5}, read_timeout=30)
    with connection, connection.cursor() as cursor:
        show_generated_keys(connection)
        cursor.execute("SELECT VERSION()")
        version = str(cursor.fetchall()[0][0])
        marks = ", ".join(["%s"] * len(_VARIABLES))
        cursor.execute(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", _VARIABLES)
        variables = {str(name).lower(): str(value) for name, value in cursor.fetchall()}
        denied, replicas = list[str](), list[int]()
        if source.poll is None:
            maria = "mariadb" in version.lower()
            newest = not maria and int(version.split(".")[0]) >= 9
            if _refusal(cursor, "SHOW BINARY LOG STATUS" if newest else "SHOW MASTER STATUS"):
                denied.append("BINLOG MONITOR" if maria else "REPLICATION CLIENT")
            if not _refusal(cursor, "SHOW REPLICAS" if newest else "SHOW SLAVE HOSTS"):
                replicas = [int(row[0]) for row in cursor.fetchall()]
            elif not maria or not _registers(connection, source.server_id):
                denied.append("REPLICATION SLAVE")
        tables = [_table(cursor, source, table) for table in source.tables]
        longest = 0 if _refusal(cursor, _LONGEST) else int((cursor.fetchone() or (0,))[0] or 0)
    return ServerInspection(
        version=version, variables=variables, denied=tuple(denied), replicas=tuple(replicas), tables=tables,
        longest=longest,
    )  # fmt: skip


def _refusal(cursor: Any, sql: str) -> tuple[int, str] | None:
    """Run a statement. Return the server's error code and message if it refuses the statement, otherwise None."""
    try:
        cursor.execute(sql)
    except (pymysql.err.OperationalError, pymysql.err.ProgrammingError) as error:
        return int(error.args[0]), str(error.args[-1])
    return None


def _registers(connection: Any, server_id: int) -> bool:
    """Return whether the server accepts this connection as a replica with `server_id`.

    The registration ends with the connection. Reading MariaDB's list of replicas would need a greater privilege."""
    try:
        connection._execute_command(_REGISTER_SLAVE, struct.pack("<IBBBHII", server_id, 0, 0, 0, 0, 0, 0))
        connection._read_ok_packet()
    except (pymysql.err.OperationalError, pymysql.err.ProgrammingError):
        return False
    return True


def _table(cursor: Any, source: Source, table: TableId) -> TableInspection:
    name = f"{_quoted(table.database)}.{_quoted(table.table)}"
    shown = f"{table.database}.{table.table}"
    refused = _refusal(cursor, f"SELECT 1 FROM {name} LIMIT 0")
    if refused is not None:
        absent = refused[0] in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR)
        return TableInspection(name=shown, readable=refused[1], engine="", absent=absent)
    cursor.execute(_TABLE, (table.database, table.table))
    rows = cursor.fetchall()
    cursor.execute(_INDEXES, (table.database, table.table))
    keys = _keys(cursor.fetchall())
    cursor.execute(_COLUMNS, (table.database, table.table))
    columns = tuple(
        Column(
            name=str(name), column_type=_text(kind), nullable=nullable == "YES", charset=charset, collation=collation
        )
        for name, kind, nullable, charset, collation in cursor.fetchall()
    )
    cursor.execute(_CASCADES, (table.database, table.table))
    cascades = tuple(
        Cascade(name=str(key), parent=f"{database}.{parent}", rule=" ".join(rules))
        for key, database, parent, deleted, updated in cursor.fetchall()
        if (
            rules := [
                f"ON {what} {rule}" for what, rule in (("DELETE", deleted), ("UPDATE", updated)) if rule in CHANGING
            ]
        )
    )
    primary = next((key.columns for key in keys if key.kind == "primary"), ())
    return TableInspection(
        name=shown,
        readable=None,
        engine=str(rows[0][0] or "none") if rows else "none",
        sequence=bool(rows) and str(rows[0][1]).upper() == "SEQUENCE",
        view=bool(rows) and "VIEW" in str(rows[0][1]).upper(),
        schema=TableSchema(table_id=table, version=1, columns=columns, primary_key=primary),
        keys=keys,
        cascades=cascades,
        indexed=source.poll is None or any(key.columns[0] == source.poll.cursor for key in keys),
    )


def _keys(rows: Iterable[Sequence[object]]) -> tuple[Key, ...]:
    """Return the unique keys of a table, in the order in which capture chooses its key: first the primary key."""
    parts: dict[str, list[str]] = {}
    unique: set[str] = set()
    for index, column, duplicates in rows:
        # an expression is not a column
        parts.setdefault(str(index), []).append("" if column is None else str(column))
        if not int(str(duplicates)):
            unique.add(str(index))
    return tuple(
        Key(name=name, kind="primary" if name == "PRIMARY" else "unique" if name in unique else "plain", columns=(*c,))
        for name, c in parts.items()
    )


def _text(value: object) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
