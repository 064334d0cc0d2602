"""Read the databases, tables and columns of a MySQL or MariaDB server that the policy allows to leave the host."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.topology.topology import Source
from ingest.agent.policy import LocalConnection
from ingest.agent.policy_check import ServerDatabase
from ingest.events.restricted import without_labels
from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.mysql.mysql_connection import Connection, connected, query, translated

_TABLES = """SELECT TABLE_NAME, TABLE_ROWS FROM information_schema.TABLES
WHERE TABLE_SCHEMA = %s AND TABLE_TYPE = 'BASE TABLE' ORDER BY TABLE_NAME"""
_COLUMNS = """SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE FROM information_schema.COLUMNS
WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION"""
_METADATA = "SHOW GLOBAL VARIABLES WHERE Variable_name = 'binlog_row_metadata'"


def seen(local: LocalConnection, agent: str) -> Iterator[DatabaseSeen]:
    """Yield each database of a connection: its tables with estimated row counts, and the columns that may leave the
    host.

    Raises Retriable if the server is unavailable, UsageError if it refuses the login.
    """
    source = local.source()
    with connected(source) as connection:
        for database in local.databases:
            tables, columns = _read(connection, source, database)
            found = tuple(_tables(local, database, tables, columns))
            yield DatabaseSeen(agent=agent, connection=local.alias, database=database, tables=found)


def databases_of(local: LocalConnection) -> Iterator[ServerDatabase]:
    """Yield the names of tables and columns of each database of a connection, whatever the policy says of them.

    They are for the owner of the host only. Raises Retriable and UsageError as `seen`.
    """
    source = local.source()
    with connected(source) as connection:
        with translated(source, "read the server's variables"):
            found = query(connection, _METADATA)
        named = str(found[0][1]).upper() == "FULL" if found else None
        for database in local.databases:
            tables, columns = _read(connection, source, database)
            names = {str(name): tuple(column for column, _ in columns.get(str(name), ())) for name, _ in tables}
            yield ServerDatabase(name=database, tables=names, names_columns=named)


def _read(
    connection: Connection, source: Source, database: str
) -> tuple[list[tuple[object, ...]], dict[str, list[tuple[str, str]]]]:
    """Return name and estimated rows of each table, and name and type of each table's columns."""
    columns: dict[str, list[tuple[str, str]]] = {}
    with translated(source, "list the tables"):
        tables = query(connection, _TABLES, database)
        for table, name, kind in query(connection, _COLUMNS, database):
            columns.setdefault(str(table), []).append((str(name), str(kind)))
    return tables, columns


def _tables(
    local: LocalConnection,
    database: str,
    tables: list[tuple[object, ...]],
    columns: dict[str, list[tuple[str, str]]],
) -> Iterator[TableSeen]:
    for name, rows in tables:
        allowed = local.table(database, str(name))
        if allowed is not None:
            # the labels of a masked column are values of it
            shown = tuple(
                (column, kind if allowed.may_compare(column) else without_labels(kind))
                for column, kind in columns.get(str(name), ())
                if allowed.shows(column)
            )
            yield TableSeen(name=str(name), rows=None if rows is None else int(str(rows)), columns=shown)
