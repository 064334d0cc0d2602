"""Read from PostgreSQL what `tailorbird init` needs: the system catalogs and some rows of each table. Read-only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from cdc.model.errors import Retriable, UsageError
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.postgres import pg_schema
from ingest.postgres.pg_connection import PgConnection, connected, translated
from ingest.postgres.relations import TableShown
from ingest.postgres.selects import literal, named, quoted
from tailorbird.deploy.draft.address import POSTGRES
from tailorbird.deploy.draft.shape import FoundServer, FoundTable, Reference, Rows

_ROWS = 200
_LONGEST = 100  # characters of a value
_KINDS = {"v": "VIEW", "m": "MATERIALIZED VIEW", "f": "FOREIGN TABLE"}
_TABLES = """SELECT c.relname, c.relkind, c.relpersistence, greatest(c.reltuples, 0)::bigint
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = {} AND c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition ORDER BY c.relname"""
_NAMES = """(SELECT string_agg(a.attname, chr(1) ORDER BY k.place) FROM unnest(f.{0}) WITH ORDINALITY k(number, place)
JOIN pg_attribute a ON a.attrelid = f.{1} AND a.attnum = k.number)"""
_REFERENCES = f"""SELECT c.relname, {_NAMES.format("conkey", "conrelid")}, pn.nspname, p.relname,
{_NAMES.format("confkey", "confrelid")}
FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_class p ON p.oid = f.confrelid JOIN pg_namespace pn ON pn.oid = p.relnamespace
WHERE f.contype = 'f' AND f.conparentid = 0 AND n.nspname = {{}} ORDER BY c.relname, f.conname"""
_SCHEMAS = """SELECT nspname FROM pg_namespace WHERE nspname NOT LIKE 'pg\\_%' AND nspname <> 'information_schema'
ORDER BY nspname"""
# types whose values are not used for guesses
_UNREAD = {"bytes", "json"}


def read_shape(server: FoundServer, password: str) -> FoundServer:
    """Return the server with its tables and references. Raises UsageError if it is unreachable or refuses the login."""
    source = _source(server, password)
    try:
        with connected(source) as connection:
            _check_schema(connection, source, server)
            return replace(
                server,
                tables=tuple(_tables(connection, source, server)),
                references=tuple(_references(connection, source, server)),
            )
    except Retriable as error:
        raise UsageError(error.message, "start the server, or correct the address") from error


def count_keys(server: FoundServer, password: str, reference: Reference, values: Sequence[str]) -> int:
    """Count how many of the values are keys of the table that the reference leads to. `server` has that table.

    0 without values."""
    if not values:
        return 0
    source, parent, column = _source(server, password), reference.parent, quoted(reference.referenced[0])
    texts = ", ".join(literal(value) for value in values)
    with connected(source) as connection, translated(source, f"look for keys of {parent.table}"):
        ((count,),) = connection.texts(
            f"SELECT count(DISTINCT {column}) FROM {named(parent)} WHERE {column} IN ({texts})"
        )
    return int(count)


def _source(server: FoundServer, password: str) -> Source:
    """Return a source that connects to the server."""
    return Source(
        name=server.source,
        type="postgresql",
        hostname=server.hostname,
        port=server.port,
        username=server.username,
        password=password,
        dbname=server.dbname,
        database=server.database,
        tables=(),
        server_id=0,
        snapshot_mode="initial",
        tls=server.tls,
    )


def _check_schema(connection: PgConnection, source: Source, server: FoundServer) -> None:
    with translated(source, "look at its schemas"):
        names = [name for (name,) in connection.texts(_SCHEMAS)]
    if server.database not in names:
        raise UsageError(
            f"{server.hostname}:{server.port}/{server.dbname}: no schema {server.database}",
            f"write {POSTGRES}, with one of {', '.join(names) or 'those that exist'}",
        )


def _tables(connection: PgConnection, source: Source, server: FoundServer) -> Iterator[FoundTable]:
    types = pg_schema.types_of(connection, source)
    which = f"n.nspname = {literal(server.database)}"
    shown = pg_schema.shown(connection, source, which, types)
    with translated(source, "look at its tables"):
        tables = connection.texts(_TABLES.format(literal(server.database)))
    for name, kind, persistence, count in tables:
        table = TableId(source=server.source, database=server.database, table=name)
        found = shown.get((server.database, name))
        if found is None:
            schema = TableSchema(table_id=table, version=1, columns=(), primary_key=())
            what = _KINDS.get(kind, "UNLOGGED TABLE" if persistence == "u" else "TEMPORARY TABLE")
            yield FoundTable(schema=schema, kind=what)
            continue
        schema = found.definition.schema(table, 1)
        yield FoundTable(
            schema=schema,
            keys=found.definition.keys,
            count=int(count),
            rows=_rows(connection, source, schema),
            fault=_fault(source, table, found, connection.version),
        )


def _fault(source: Source, table: TableId, found: TableShown, version: int) -> str:
    """Return the reason why a table cannot be captured by a publication, or an empty text if it can."""
    refused = pg_schema.refused(source, table, found, version)
    return f"{refused.why.removeprefix(f'table {table} ')}: {refused.remedy}" if refused else ""


def _rows(connection: PgConnection, source: Source, schema: TableSchema) -> Rows:
    """Read some rows of a table, in no particular order. Long texts are shortened."""
    wanted = [column for column in schema.columns if column.type.kind not in _UNREAD]
    if not wanted:
        return ()
    texts = ", ".join(f"left({quoted(column.name)}::text, {_LONGEST})" for column in wanted)
    with translated(source, f"look at rows of {schema.table_id}"):
        rows = connection.query(f"SELECT {texts} FROM {named(schema.table_id)} LIMIT {_ROWS}")
    return tuple(
        {column.name: None if value is None else value.decode() for column, value in zip(wanted, row, strict=True)}
        for row in rows
    )


def _references(connection: PgConnection, source: Source, server: FoundServer) -> list[Reference]:
    with translated(source, "look at its foreign keys"):
        rows = connection.texts(_REFERENCES.format(literal(server.database)))
    found: list[Reference] = []
    for child, columns, schema, parent, referenced in rows:
        one = Reference(
            child=TableId(source=server.source, database=server.database, table=child),
            columns=tuple(columns.split("\1")),
            # a table of another schema belongs to no source here
            parent=TableId(source=server.source, database=schema, table=parent),
            referenced=tuple(referenced.split("\1")),
        )
        if one not in found:
            found.append(one)
    return found
