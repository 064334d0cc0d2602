"""Check that the binary log of a MySQL server can be captured; read the log's end and the tables' definitions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from cdc.model.errors import Fatal, UsageError
from cdc.model.event import Position
from cdc.model.identifiers import fold_identifier
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.ddl.dialect import Dialect
from ingest.ddl.schema_history import catalog_of
from ingest.events.changed import TablesChanged
from ingest.events.columns import same_columns
from ingest.events.left_out import unnamed
from ingest.events.restricted import restriction_of
from ingest.events.tables import Tables
from ingest.mysql.mysql_connection import Connection, each, query, translated
from ingest.records.capture_interfaces import LogReplaced, PositionLost, ServerTables

# variable → required value; an absent variable counts as the empty text
_REQUIRED = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_value_options": "",
}
_STATIC = {"log_bin"}


def check_server(connection: Connection, source: Source) -> None:
    """Raise Fatal if the server does not log whole rows. The remedy is the statement that corrects the setting."""
    with translated(source, "read the server's variables"):
        marks = ", ".join(["%s"] * len(_REQUIRED))
        found = dict(query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", *_REQUIRED))
    for name, wanted in _REQUIRED.items():
        value = str(found.get(name, ""))
        if value.upper() != wanted:
            remedy = f"SET PERSIST {name} = {wanted or repr('')}"
            if name in _STATIC:
                remedy = f"set {name}={wanted} in my.cnf and restart the server"
            raise Fatal(
                f"source {source.name}: {name} is {value or 'absent'}, but capture needs {wanted or 'an empty value'}",
                remedy,
            )


def head(connection: Connection, source: Source) -> Position:
    """Return the current end of the log. Statements that begin later see every transaction in its GTID set.

    Raises Fatal if the server writes no binary log.
    """
    with translated(source, "read the log's end"):
        version = str(query(connection, "SELECT VERSION()")[0][0])
        maria = "mariadb" in version.lower()
        newer = not maria and tuple(int(n) for n in re.findall(r"\d+", version)[:2]) >= (8, 2)
        rows = query(connection, "SHOW BINARY LOG STATUS" if newer else "SHOW MASTER STATUS")
        if not rows:
            raise Fatal(
                f"source {source.name}: the server writes no binary log", "set log_bin in my.cnf and restart it"
            )
        file, pos = str(rows[0][0]), int(rows[0][1])
        if maria:
            gtids = str(query(connection, "SELECT BINLOG_GTID_POS(%s, %s)", file, pos)[0][0] or "")
        else:
            gtids = str(rows[0][4]).replace("\n", "") if len(rows[0]) > 4 else ""
    return Position(file=file, pos=pos, gtid_set=gtids, sequence=0)


def check_position(connection: Connection, source: Source, position: Position) -> None:
    """Raise PositionLost when the server has purged the log after the position, LogReplaced when it is another log."""
    over = f"set `position_lost: resnapshot` at source {source.name}: capture then re-reads all tables automatically"
    gtid_set = position.gtid_set
    if not gtid_set or re.fullmatch(r"[\d,-]+", gtid_set):  # MariaDB itself compares GTIDs when the stream opens
        _check_file(connection, source, position, over)
        return
    with translated(source, "compare the stored position with the log"):
        purged, ahead = query(
            connection,
            "SELECT GTID_SUBTRACT(@@GLOBAL.gtid_purged, %s), GTID_SUBTRACT(%s, @@GLOBAL.gtid_executed)",
            gtid_set,
            gtid_set,
        )[0]
    if ahead:
        raise LogReplaced(
            f"source {source.name}: this server does not know transactions that were read: {_one_line(ahead)} "
            "(it was reset, restored or replaced)",
            f"point the source at the right server, or {over}",
        )
    if purged:
        raise PositionLost(
            f"source {source.name}: the server has purged transactions that were never read: {_one_line(purged)}",
            f"raise binlog_expire_logs_seconds, and {over}",
        )


def _check_file(connection: Connection, source: Source, position: Position, over: str) -> None:
    with translated(source, "list the server's binary logs"):
        files = {str(row[0]): int(row[1]) for row in query(connection, "SHOW BINARY LOGS")}
    if position.gtid_set:
        return
    if position.file not in files:
        # a server that was reset, or another one, has no newer file
        purged = any(
            name.rpartition(".")[0] == position.file.rpartition(".")[0] for name in files if name > position.file
        )
        raise (PositionLost if purged else LogReplaced)(
            f"source {source.name}: the server has no binary log {position.file} (purged, reset or replaced)",
            f"raise the retention of its binary logs, and {over}",
        )
    if files[position.file] < position.pos:
        raise LogReplaced(
            f"source {source.name}: {position.file} ends at {files[position.file]}, "
            f"but {position.pos} was already read (the server was reset or replaced)",
            f"point the source at the right server, or {over}",
        )


def holds(connection: Connection, source: Source, position: Position) -> bool:
    """Return whether the server's log still contains everything from a position on.

    For MariaDB, and for positions without GTIDs, it checks only whether the position's file exists."""
    if position.gtid_set and not re.fullmatch(r"[\d,-]+", position.gtid_set):
        try:
            check_position(connection, source, position)
        except PositionLost:
            return False
        return True
    with translated(source, "list the server's binary logs"):
        return position.file in {str(row[0]) for row in query(connection, "SHOW BINARY LOGS")}


_COLUMNS = """SELECT TABLE_SCHEMA, TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME,
COLLATION_NAME, COLUMN_DEFAULT, EXTRA, GENERATION_EXPRESSION
FROM information_schema.COLUMNS WHERE {} ORDER BY TABLE_SCHEMA, TABLE_NAME, ORDINAL_POSITION"""
_STATISTICS = """SELECT TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, COLUMN_NAME, NON_UNIQUE
FROM information_schema.STATISTICS WHERE {}
ORDER BY TABLE_SCHEMA, TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX"""
_TABLES = """SELECT t.TABLE_SCHEMA, t.TABLE_NAME, c.CHARACTER_SET_NAME, t.TABLE_TYPE, t.ENGINE, t.TABLE_COLLATION
FROM information_schema.TABLES t
LEFT JOIN information_schema.COLLATION_CHARACTER_SET_APPLICABILITY c ON c.COLLATION_NAME = t.TABLE_COLLATION
WHERE {} ORDER BY t.TABLE_SCHEMA, t.TABLE_NAME"""
_SCHEMATA = """SELECT SCHEMA_NAME, DEFAULT_CHARACTER_SET_NAME, DEFAULT_COLLATION_NAME
FROM information_schema.SCHEMATA
WHERE {}"""

_COLUMN_NAMES = (
    "table_schema", "table_name", "column_name", "column_type", "is_nullable", "character_set_name", "collation_name",
    "column_default", "extra", "generation_expression",
)  # fmt: skip
# TABLE_TYPE of relations with stored rows; the others are views.
_TABLE_TYPES = frozenset({"BASE TABLE", "SYSTEM VERSIONED", "SEQUENCE"})
_STATISTICS_NAMES = ("table_schema", "table_name", "index_name", "column_name", "non_unique")
_SCHEMA_NAMES = ("schema_name", "default_character_set_name", "default_collation_name")
_TABLE_NAMES = ("table_schema", "table_name", "character_set_name", "table_type", "engine", "table_collation")


def seen(connection: Connection, source: Source) -> ServerTables:
    """Return all tables of the captured databases as information_schema shows them, and the server's dialect."""
    with translated(source, "read the tables' columns"):
        dialect, charset = dialect_of(connection, source)

        def rows(sql: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
            # one by one: those of 20,000 tables take hundreds of MiB
            of_tables = ("SCHEMA_NAME",) if sql is _SCHEMATA else ("TABLE_SCHEMA", "TABLE_NAME")
            which, arguments = in_databases(source, dialect, *of_tables)
            for found in each(connection, sql.format(which), *arguments):
                row = dict(zip(names, found, strict=True))
                if "table_name" in row:
                    place = dialect.table_name(str(row["table_schema"]), str(row["table_name"]))
                    row["table_schema"], row["table_name"] = place
                yield row

        tables = list(rows(_TABLES, _TABLE_NAMES))
        schemata = list(rows(_SCHEMATA, _SCHEMA_NAMES))
        for row in schemata:
            row["schema_name"] = dialect.database_name(str(row["schema_name"]))
        kinds = {(t["table_schema"], t["table_name"]): (str(t["table_type"]), str(t["engine"] or "")) for t in tables}
        base = [t for t in tables if str(t["table_type"]) in _TABLE_TYPES]
        names = {(t["table_schema"], t["table_name"]) for t in base}
        columns = (c for c in rows(_COLUMNS, _COLUMN_NAMES) if (c["table_schema"], c["table_name"]) in names)
        catalog = catalog_of(columns, rows(_STATISTICS, _STATISTICS_NAMES), base, schemata, charset, dialect)
    if limit := restriction_of(source):
        catalog = limit.catalog(catalog)
    reads = _can_read(connection, source, dialect)
    left_out = dict(_unnamed(connection, source, names))
    return ServerTables(catalog=catalog, dialect=dialect, kinds=kinds, reads=reads, left_out=left_out)


def in_databases(source: Source, dialect: Dialect, database: str, table: str = "") -> tuple[str, list[str]]:
    """Return the condition that a row of information_schema is of a captured database, or a table of a merged one, and
    its arguments. `database` and `table` are the names of columns; without `table`, all tables of a database count."""
    known = sorted({fold_identifier(name) for name in source.databases} if dialect.fold_names else source.databases)
    conditions, arguments = [f"{database} IN ({', '.join(['%s'] * len(known))})"], known
    for merged in source.merged:
        of_table = f" AND {table} = %s" if table else ""
        conditions.append(f"({database} LIKE %s ESCAPE '!'{of_table})")
        arguments += [merged.like(), *([merged.table_id.table] if table else [])]
    return f"({' OR '.join(conditions)})", arguments


def _unnamed(
    connection: Connection, source: Source, names: Iterable[tuple[str, str]]
) -> Iterator[tuple[tuple[str, str], tuple[str, str]]]:
    """Yield the existing tables that may only be decoded by name, with the reason, if the log does not name columns."""
    existing = (TableId(source=source.name, database=database, table=table) for database, table in names)
    captured = (table for table in existing if source.captures(table))
    tables = [table for table in captured if (rule := source.rule_of(table)) is not None and rule.by_name]
    if not tables:
        return
    with translated(source, "read the server's variables"):
        found = query(connection, "SHOW GLOBAL VARIABLES WHERE Variable_name = 'binlog_row_metadata'")
    if found and str(found[0][1]).upper() == "FULL":
        return
    for table in tables:
        yield (table.database, table.table), unnamed(table, supported=bool(found))


def dialect_of(connection: Connection, source: Source) -> tuple[Dialect, str]:
    """Return the server's SQL dialect and its character_set_server.

    Raises UsageError if the topology lists one table twice, in spellings that the server treats as equal.
    """
    ((version, charset, fold, explicit),) = query(
        connection,
        "SELECT VERSION(), @@character_set_server, @@lower_case_table_names, @@explicit_defaults_for_timestamp",
    )
    maria = "mariadb" in str(version).lower()
    numbers = [int(n) for n in re.findall(r"\d+", str(version))[:3]]
    folds = int(fold) > 0
    tables = sorted({*source.tables, *source.rules}) if folds else []
    spelt = {
        (fold_identifier(table.database), fold_identifier(table.table)): (table.database, table.table)
        for table in tables
    }
    databases = {fold_identifier(name): name for name in sorted(source.databases)} if folds else {}
    if twice := [
        t for t in tables if spelt[fold_identifier(t.database), fold_identifier(t.table)] != (t.database, t.table)
    ]:
        other = ".".join(spelt[fold_identifier(twice[0].database), fold_identifier(twice[0].table)])
        raise UsageError(
            f"source {source.name}: {twice[0].name} and {other} are one table, since lower_case_table_names is {fold}",
            "list it once in `tables:`",
        )
    dialect = Dialect(
        server="mariadb" if maria else "mysql",
        version=numbers[0] * 10000 + numbers[1] * 100 + numbers[2],
        explicit_timestamps=str(explicit) in ("1", "ON"),
        fold_names=folds,
        spelt=spelt,
        spelt_databases=databases,
    )
    return dialect, str(charset)


def _can_read(connection: Connection, source: Source, dialect: Dialect) -> bool:
    """Return whether snapshots are possible: without GTIDs, only a lock assigns rows to a position, and it must be
    enabled."""
    if dialect.server == "mariadb" or source.snapshot_locking_mode == "minimal":
        return True
    with translated(source, "read the server's GTID mode"):
        return str(query(connection, "SELECT @@GLOBAL.gtid_mode")[0][0]) == "ON"


def captured_schemas(connection: Connection, source: Source) -> dict[TableId, TableSchema]:
    """Return the current schemas of all captured tables, without those that are left out, and of merged tables."""
    _, change = _tables(connection, source)
    return {schema.table_id: schema for schema in (*change.schemas, *change.merged)}


def _tables(connection: Connection, source: Source) -> tuple[Tables, TablesChanged]:
    shown = seen(connection, source)

    def captured(database: str, table: str) -> bool:
        return source.captures(TableId(source=source.name, database=database, table=table))

    tables = Tables(
        source.name, source.databases, captured, shown.dialect, rule_of=source.rule_of, listed=source.tables,
        kinds=shown.kinds, merged=source.merged,
    )  # fmt: skip
    return tables, tables.begin(shown.catalog)


def table_schemas(
    connection: Connection, source: Source, known: Mapping[TableId, TableSchema]
) -> dict[TableId, TableSchema]:
    """Return the current schemas of the captured tables. `known` are earlier ones: an unchanged schema keeps its
    version.

    Raises UsageError for a table that does not exist, has no key, or has a column of unknown type.
    """
    tables, change = _tables(connection, source)
    for why in tables.left_out().values():
        raise UsageError(why.message, why.hint)
    found: dict[TableId, TableSchema] = {}
    for schema in change.schemas:
        last = known.get(schema.table_id)
        same = last and last.primary_key == schema.primary_key and same_columns(last.columns, schema.columns)
        found[schema.table_id] = replace(schema, version=last.version + (not same) if last else 1)
    return found


def _one_line(text: object) -> str:
    return str(text).replace("\n", " ")
