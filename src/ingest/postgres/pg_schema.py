"""Check that the log of a PostgreSQL server can be captured, and read the definitions of its tables."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from cdc.model.errors import Skippable, UsageError
from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.ddl.catalog import Catalog, ColumnDefinition, Key, TableDefinition, TableName
from ingest.ddl.dialect import Dialect
from ingest.events.published import published
from ingest.events.restricted import without_values
from ingest.postgres.column_types import PgType, PgTypes, first_of
from ingest.postgres.harmless import STORED_FROM, Member, Refusal, refusal_of
from ingest.postgres.messages import lsn_of, record_end
from ingest.postgres.pg_connection import PgConnection, connected, translated
from ingest.postgres.relations import TableShown
from ingest.postgres.selects import in_schemas
from ingest.records.capture_interfaces import ServerTables

Row = TypeVar("Row", bound=tuple[Any, ...])
OLDEST = 150_000
_TYPES = "SELECT oid, typname, typtype, typelem, typbasetype, typtypmod FROM pg_type WHERE typtype <> 'c'"
_TABLES = """SELECT n.nspname, c.relname, c.oid, c.relreplident, c.relkind FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND c.relpersistence = 'p' AND NOT c.relispartition AND {}"""
_COLUMNS = """SELECT a.attrelid, a.attname, a.atttypid, a.atttypmod, a.attnotnull, a.atthasmissing,
a.attmissingval::text, a.atthasdef FROM pg_attribute a
WHERE a.attrelid IN ({}) AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated IN ('', {})
ORDER BY a.attrelid, a.attnum"""
# Unique indexes on plain columns that cover all rows of a table.
_KEYS = """SELECT i.indrelid, c.relname, i.indisprimary, i.indisreplident,
(SELECT string_agg(coalesce(a.attname, ''), chr(1) ORDER BY k.place) FROM unnest(i.indkey[0:i.indnkeyatts - 1])
WITH ORDINALITY k(number, place) LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE i.indrelid IN ({}) AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
AND i.indexprs IS NULL ORDER BY i.indrelid, NOT i.indisprimary, NOT i.indisreplident, c.relname"""
# The tables that store the rows of some tables: themselves, or their partitions at every depth.
_MEMBERS = """WITH RECURSIVE tree(root, oid) AS (
SELECT c.oid, c.oid FROM pg_class c WHERE c.oid IN ({}) UNION ALL
SELECT t.root, i.inhrelid FROM tree t JOIN pg_class p ON p.oid = t.oid AND p.relkind = 'p'
JOIN pg_inherits i ON i.inhparent = t.oid AND NOT i.inhdetachpending)
SELECT t.root, c.oid, n.nspname, c.relname, c.relkind, c.relpersistence, c.relreplident, x.indexrelid IS NOT NULL,
a.made LIKE '%s%', a.made LIKE '%v%', coalesce((SELECT string_agg(g.attgenerated::text, '') FROM pg_attribute g
WHERE g.attrelid = c.oid AND g.attnum = ANY (x.indkey::int2[])), ''), c.relfilenode
FROM tree t JOIN pg_class c ON c.oid = t.oid JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT coalesce(string_agg(attgenerated::text, ''), '') FROM pg_attribute
WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped) a(made)
LEFT JOIN LATERAL (SELECT indexrelid, indkey FROM pg_index WHERE indrelid = c.oid AND indisvalid AND indimmediate
AND CASE c.relreplident WHEN 'd' THEN indisprimary WHEN 'i' THEN indisreplident END LIMIT 1) x ON true
WHERE c.relkind <> 'p' ORDER BY t.root, c.oid"""
REPLICA = "__replica__"  # name of the key of REPLICA IDENTITY USING INDEX in `TableDefinition.keys`


def check_server(connection: PgConnection, source: Source) -> None:
    """Raise UsageError, with the remedy, if the server's log cannot be decoded."""
    with translated(source, "read the server's settings"):
        ((level, standby),) = connection.texts("SELECT current_setting('wal_level'), pg_is_in_recovery()")
    if connection.version < OLDEST:
        raise UsageError(
            f"source {source.name}: the server is PostgreSQL {connection.version // 10_000}; at least 15 is needed",
            "poll it (type: sql), or upgrade it",
        )
    if level != "logical":
        raise UsageError(
            f"source {source.name}: wal_level is {level}, but capture needs logical",
            "ALTER SYSTEM SET wal_level = logical, and restart the server",
        )
    if standby == "t":
        raise UsageError(
            f"source {source.name}: the server is a standby, whose snapshots do not show running transactions",
            "point the source at the primary",
        )


def log_of(connection: PgConnection, source: Source) -> str:
    """Return a text that identifies the server's log: system identifier and timeline."""
    with translated(source, "identify the server"):
        ((system, timeline),) = connection.texts(
            "SELECT system_identifier, (SELECT timeline_id FROM pg_control_checkpoint()) FROM pg_control_system()"
        )
    return f"{system}/{timeline}"


def end_of_log(connection: PgConnection, source: Source) -> Position:
    """Return the current end of the log. Commits before it may become visible only a little later."""
    file = log_of(connection, source)
    with translated(source, "read the log's end"):
        ((lsn, segment),) = connection.texts(
            "SELECT pg_current_wal_insert_lsn(), setting FROM pg_settings WHERE name = 'wal_segment_size'"
        )
    return Position(file=file, pos=record_end(lsn_of(lsn), int(segment)), gtid_set="", sequence=0)


def end_of(source: Source) -> Position:
    """Return the current end of the log, over a connection of its own."""
    with connected(source) as connection:
        return end_of_log(connection, source)


def types_of(connection: PgConnection, source: Source) -> PgTypes:
    """Return the types of a database, which are read again when an unknown one occurs."""

    def load() -> Iterable[PgType]:
        with translated(source, "read the types"):
            rows = connection.texts(_TYPES)
        for oid, name, kind, element, base, modifier in rows:
            yield PgType(
                oid=int(oid), name=name, kind=kind, element=int(element), base=int(base), base_modifier=int(modifier)
            )

    return PgTypes(load)


def shown(connection: PgConnection, source: Source, which: str, types: PgTypes) -> dict[TableName, TableShown]:
    """Return the tables that meet a condition (`which`) over pg_class and pg_namespace, as the catalog has them now."""
    with translated(source, "read the tables' columns"), connection.one_moment():
        tables = connection.texts(_TABLES.format(which))
        if not tables:
            return {}
        numbers = ", ".join(row[2] for row in tables)
        # columns that a publication can contain: virtual columns are never logged
        generated = "'s'" if connection.version >= STORED_FROM else "''"
        columns = connection.texts(_COLUMNS.format(numbers, generated))
        keys = connection.texts(_KEYS.format(numbers))
        members = members_of(connection, source, numbers)
    own_columns, own_keys, own_members = grouped(columns), grouped(keys), grouped(members)
    defined: dict[tuple[str, ...], ColumnDefinition] = {}
    found: dict[TableName, TableShown] = {}
    for schema, table, oid, identity, kind in tables:
        own = own_keys.get(oid, [])
        marked = [Key(name=REPLICA, kind="plain", columns=(*key[4].split("\1"),)) for key in own if key[3] == "t"]
        listed = own_columns.get(oid, [])
        definition = TableDefinition(
            columns=tuple(_shared(types, column[1:], defined) for column in listed),
            keys=(*(_key(key) for key in own), *(marked if identity == "i" else ())),
            identity=oid,
        )
        if source.permitted is not None:
            rule = source.rule_of(TableId(source=source.name, database=schema, table=table))
            definition = without_values(definition, rule or TableRule())
        reads = {column[1]: types.typed(int(column[2]), int(column[3])).read for column in listed}
        stored_in = tuple(own_members.get(int(oid), ()))
        found[schema, table] = TableShown(int(oid), identity, definition, reads, kind == "p", stored_in)
    return found


def grouped(rows: Iterable[Row]) -> dict[Any, list[Row]]:
    """Return rows by their first field, the OID of a table: with thousands of tables, no loop may look at all rows for
    each of them."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[0], []).append(row)
    return found


def _shared(types: PgTypes, row: tuple[str, ...], known: dict[tuple[str, ...], ColumnDefinition]) -> ColumnDefinition:
    """Return the definition of a column. Equal columns of several tables are one object, which saves memory."""
    found = known.get(row)
    if found is None:
        found = known[row] = _column(types, row)
    return found


def members_query(numbers: str) -> str:
    """Return the query of the tables that store the rows of some tables, whose OIDs are an SQL list or query."""
    return _MEMBERS.format(numbers)


def members_of(connection: PgConnection, source: Source, numbers: str) -> list[Member]:
    """Return the tables that store the rows of some tables; `numbers` are the OIDs of these as an SQL list."""
    with translated(source, "read the tables' partitions"):
        rows = connection.texts(members_query(numbers))
    return [
        Member(
            root=int(row[0]), oid=int(row[1]), schema=row[2], name=row[3], kind=row[4], persistence=row[5],
            identity=row[6], usable=row[7] == "t", stored=row[8] == "t", virtual=row[9] == "t", generated=row[10],
            file=int(row[11]),
        )
        for row in rows
    ]  # fmt: skip


def _key(row: tuple[str, ...]) -> Key:
    _, name, primary, _, columns = row
    kind = ("PRIMARY", "primary") if primary == "t" else (name, "unique")
    return Key(name=kind[0], kind="primary" if primary == "t" else "unique", columns=(*columns.split("\1"),))


def _column(types: PgTypes, row: tuple[str, ...]) -> ColumnDefinition:
    name, oid, modifier, required, filled, missing, default = row
    typed = types.typed(int(oid), int(modifier))
    initial, known = None, default == "f" and required == "f"
    if filled == "t":
        try:
            value = first_of(missing)
            initial, known = None if value is None else typed.read(value), True
        except (ValueError, ArithmeticError):  # the value in older rows has no canonical form
            initial, known = None, False
    return ColumnDefinition(
        name=name,
        column_type=typed.column_type,
        nullable=required == "f",
        charset=None,
        initial=initial,
        initial_known=known,
    )


def table_by_oid(connection: PgConnection, source: Source, oid: int, types: PgTypes) -> TableShown | None:
    """Return the table with an OID; None if it does not exist."""
    return next(iter(shown(connection, source, f"c.oid = {oid}", types).values()), None)


def tables_of(connection: PgConnection, source: Source) -> dict[TableName, TableShown]:
    """Return all tables in the captured schemas whose kind can be published."""
    return shown(connection, source, in_schemas(source), types_of(connection, source))


def absent(source: Source, table: TableId) -> Refusal:
    """Return the refusal of a listed table that does not exist, or whose kind cannot be published."""
    return Refusal(
        f"source {source.name}: no table {table.database}.{table.table} in database {source.dbname}",
        "correct `tables:`, `database:` (the schema) or `dbname:`; views, partitions by themselves, temporary "
        "and unlogged tables are not captured",
    )


def refused(source: Source, table: TableId, one: TableShown, version: int, *, stored: bool = True) -> Refusal | None:
    """Return why a table is not captured: publishing would harm its application, or the log does not identify its rows.

    `stored`: the publication includes stored generated columns, or may be changed to include them. None if it can be
    captured.
    """
    keys = {key.name: key.columns for key in one.definition.keys}
    found = refusal_of(
        str(table), one.members, partitioned=one.partitioned, keyed="PRIMARY" in keys, version=version, stored=stored
    )
    if found is not None:
        return found
    rule = source.rule_of(table)
    key = (rule.message_key_columns if rule else ()) or keys.get("PRIMARY", ())
    alter = f'ALTER TABLE "{table.database}"."{table.table}" REPLICA IDENTITY FULL'
    named = {"f": None, "d": keys.get("PRIMARY", ()), "i": keys.get(REPLICA, ()), "n": ()}[one.identity]
    if named is not None and not named and not one.partitioned:
        return Refusal(
            f"table {table} has no replica identity that identifies its rows", f"ADD PRIMARY KEY (…), or {alter}"
        )
    if lacking := [name for name in key if one.definition.column(name) is None]:
        return Refusal(
            f"table {table} is captured under {', '.join(key)}, but the log lacks {lacking[0]}: it does not exist, or "
            "is a generated column that this server does not publish",
            f"message_key_columns of `tables:`, or {alter}",
        )
    if named and key and not set(key) <= set(named):
        return Refusal(
            f"table {table} is captured under {', '.join(key)}, but its replica identity has {', '.join(named)}",
            f"message_key_columns: [{', '.join(named)}], or {alter}",
        )
    try:
        published(one.definition.schema(table, 1), one.definition.keys, rule)
    except Skippable as error:
        return Refusal(error.message, error.hint)
    if source.replica_identity == "full" and one.identity != "f":
        return Refusal(
            f"table {table}: the topology requires replica_identity full, but the table does not have it", alter
        )
    return None


def seen_of(
    connection: PgConnection, tables: Mapping[TableName, TableShown], left_out: Mapping[TableName, Refusal]
) -> ServerTables:
    """Return the tables of the server for capture, without those that are left out."""
    catalog = Catalog(
        databases={schema: None for schema, _ in tables},
        tables={name: one.definition for name, one in tables.items() if name not in left_out},
    )
    dialect = Dialect(server="postgresql", version=connection.version)
    return ServerTables(catalog=catalog, dialect=dialect, decides=True, complete=True, left_out=left_out)
