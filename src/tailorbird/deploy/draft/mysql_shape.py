"""Read from MySQL what `tailorbird init` needs: information_schema and some rows of each table. Read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from cdc.model.errors import Retriable, UsageError
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.mysql.mysql_connection import Connection, connected, query, translated
from ingest.mysql.mysql_schema import seen
from tailorbird.deploy.draft.address import MYSQL
from tailorbird.deploy.draft.shape import FoundServer, FoundTable, Reference, Rows, rules_of

_ROWS = 200
_LONGEST = 100  # characters of a value
_TABLES = "SELECT TABLE_NAME, TABLE_TYPE, ENGINE, TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s"
_KEYS = (
    "SELECT k.TABLE_NAME, k.CONSTRAINT_NAME, k.COLUMN_NAME, k.REFERENCED_TABLE_SCHEMA, k.REFERENCED_TABLE_NAME, "
    "k.REFERENCED_COLUMN_NAME, r.DELETE_RULE, r.UPDATE_RULE "
    "FROM information_schema.KEY_COLUMN_USAGE k JOIN information_schema.REFERENTIAL_CONSTRAINTS r "
    "ON r.CONSTRAINT_SCHEMA = k.CONSTRAINT_SCHEMA AND r.CONSTRAINT_NAME = k.CONSTRAINT_NAME "
    "AND r.TABLE_NAME = k.TABLE_NAME WHERE k.TABLE_SCHEMA = %s AND k.REFERENCED_TABLE_NAME IS NOT NULL "
    "ORDER BY k.TABLE_NAME, k.CONSTRAINT_NAME, k.ORDINAL_POSITION"
)
_DATABASES = (
    "SELECT SCHEMA_NAME FROM information_schema.SCHEMATA WHERE SCHEMA_NAME NOT IN "
    "('mysql', 'sys', 'information_schema', 'performance_schema') ORDER BY SCHEMA_NAME"
)
# types whose values are not used for guesses
_UNREAD = {"bytes", "json"}


def read_shape(server: FoundServer, password: str) -> FoundServer:
    """Return the server with its tables, up to 200 rows of each, and its references.

    Raises UsageError if it is unreachable, refuses the login, or has no such database."""
    source = _source(server, password)
    try:
        with connected(source) as connection, translated(source, "look at its tables"):
            _check_database(connection, server)
            return _shape(connection, source, server)
    except Retriable as error:
        raise UsageError(error.message, "start the server, or correct the address") from error


def _source(server: FoundServer, password: str) -> Source:
    """Return a source that connects to the server."""
    return Source(
        name=server.source,
        type="mysql",
        hostname=server.hostname,
        port=server.port,
        username=server.username,
        password=password,
        database=server.database,
        tables=(),
        server_id=1,
        snapshot_mode="initial",
        tls=server.tls,
    )


def count_keys(server: FoundServer, password: str, reference: Reference, values: Sequence[str]) -> int:
    """Count how many of the values are keys of the table that the reference leads to. `server` has that table.

    0 without values."""
    if not values:
        return 0
    source, parent, column = _source(server, password), reference.parent, _quoted(reference.referenced[0])
    marks = ", ".join(["%s"] * len(values))
    sql = f"SELECT COUNT(DISTINCT {column}) FROM {_table(parent)} WHERE {column} IN ({marks})"
    with connected(source) as connection, translated(source, f"look for keys of {parent.table}"):
        return int(query(connection, sql, *values)[0][0])


def _check_database(connection: Connection, server: FoundServer) -> None:
    names = [str(row[0]) for row in query(connection, _DATABASES)]
    if server.database not in names:
        what = f"no database {server.database}" if server.database else "the URL has no database"
        raise UsageError(
            f"{server.hostname}:{server.port}: {what}, or {server.username} has no access to it",
            f"write {MYSQL}, with one of {', '.join(names) or 'the databases that it can access'}",
        )


def _shape(connection: Connection, source: Source, server: FoundServer) -> FoundServer:
    shown = seen(connection, source)
    tables = []
    for name, kind, engine, count in query(connection, _TABLES, server.database):
        table_id = TableId(source=server.source, database=server.database, table=str(name))
        found = shown.catalog.tables.get((server.database, str(name)))
        schema = (
            found.schema(table_id, 1)
            if found is not None
            else TableSchema(table_id=table_id, version=1, columns=(), primary_key=())
        )
        tables.append(
            FoundTable(
                schema=schema,
                keys=found.keys if found is not None else (),
                kind=str(kind),
                engine=str(engine or "none"),
                count=int(count or 0),
                rows=_rows(connection, schema) if found is not None else (),
            )
        )
    tables.sort(key=lambda table: table.name)
    return replace(
        server,
        kind=shown.dialect.server,
        tables=tuple(tables),
        references=tuple(_references(connection, server)),
    )


def _rows(connection: Connection, schema: TableSchema) -> Rows:
    """Read some rows of a table, in no particular order. Long texts are shortened."""
    names, wanted = [], []
    for column in schema.columns:
        try:
            kind = column.type.kind
        except ValueError:
            continue
        if kind not in _UNREAD:
            names.append(column.name)
            name = _quoted(column.name)
            wanted.append(f"LEFT({name}, {_LONGEST})" if kind == "string" else name)
    if not names:
        return ()
    sql = f"SELECT {', '.join(wanted)} FROM {_table(schema.table_id)} LIMIT {_ROWS}"
    return tuple(dict(zip(names, map(_text, row), strict=True)) for row in query(connection, sql))


def _references(connection: Connection, server: FoundServer) -> list[Reference]:
    found: dict[tuple[str, str], list[tuple[str, ...]]] = {}
    for row in query(connection, _KEYS, server.database):
        found.setdefault((str(row[0]), str(row[1])), []).append(tuple(map(str, row[2:])))
    references: list[Reference] = []
    for (table, _), rows in found.items():
        child = TableId(source=server.source, database=server.database, table=table)
        # a table of another database belongs to no source here
        parent = TableId(source=server.source, database=rows[0][1], table=rows[0][2])
        reference = Reference(
            child=child,
            columns=tuple(row[0] for row in rows),
            parent=parent,
            referenced=tuple(row[3] for row in rows),
            rules=rules_of(rows[0][4], rows[0][5]),
        )
        if all((r.child, r.columns, r.parent) != (child, reference.columns, parent) for r in references):
            references.append(reference)
    return references


def _text(value: Any) -> str | None:
    if value is None:
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _table(table: TableId) -> str:
    return f"{_quoted(table.database)}.{_quoted(table.table)}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
