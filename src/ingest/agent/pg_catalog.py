"""Read the schemas, tables and columns of a PostgreSQL database that the policy allows to leave the host."""

from __future__ import annotations

from collections.abc import Iterator

from ingest.agent.policy import LocalConnection
from ingest.agent.policy_check import ServerDatabase
from ingest.fleet.catalog import DatabaseSeen, TableSeen
from ingest.postgres.pg_connection import PgConnection, connected, translated
from ingest.postgres.selects import literal

# the kinds of tables that capture can publish; a partitioned table has the rows of its partitions
_TABLES = """SELECT c.oid, c.relname, CASE c.relkind WHEN 'p' THEN
(SELECT sum(p.reltuples) FROM pg_partition_tree(c.oid) t JOIN pg_class p ON p.oid = t.relid WHERE t.isleaf)
ELSE c.reltuples END::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition AND n.nspname = {} ORDER BY 2"""
_COLUMNS = """SELECT a.attrelid, a.attname, format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {} AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum"""


def seen(local: LocalConnection, agent: str) -> Iterator[DatabaseSeen]:
    """Implements `catalogs.seen`; the databases are schemas."""
    for schema, tables in _schemas(local):
        found = tuple(one for table in tables if (one := _shown(local, schema, table)) is not None)
        yield DatabaseSeen(agent=agent, connection=local.alias, database=schema, tables=found, type=local.type)


def databases_of(local: LocalConnection) -> Iterator[ServerDatabase]:
    """Implements `catalogs.databases_of`. PostgreSQL's log always names columns."""
    for schema, tables in _schemas(local):
        names = {table.name: tuple(column for column, _ in table.columns) for table in tables}
        yield ServerDatabase(name=schema, tables=names, names_columns=True)


def _shown(local: LocalConnection, schema: str, table: TableSeen) -> TableSeen | None:
    allowed = local.table(schema, table.name)
    if allowed is None:
        return None
    shown = tuple((column, kind) for column, kind in table.columns if allowed.shows(column))
    return TableSeen(name=table.name, rows=table.rows, columns=shown)


def _schemas(local: LocalConnection) -> Iterator[tuple[str, list[TableSeen]]]:
    source = local.source()
    with connected(source) as connection:
        for schema in local.databases:
            with translated(source, "list the tables"):
                tables = _tables(connection, schema)
            yield schema, tables


def _tables(connection: PgConnection, schema: str) -> list[TableSeen]:
    columns: dict[str, list[tuple[str, str]]] = {}
    for oid, name, kind in connection.texts(_COLUMNS.format(literal(schema))):
        columns.setdefault(oid, []).append((name, kind))
    return [
        TableSeen(name=name, rows=int(rows) if rows and int(rows) >= 0 else None, columns=tuple(columns.get(oid, ())))
        for oid, name, rows in connection.texts(_TABLES.format(literal(schema)))
    ]
