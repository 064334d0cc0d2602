"""What a MySQL server must be for its log to be captured, where its log ends, and what its tables look like."""

from __future__ import annotations

from collections.abc import Mapping

from cdc.errors import Fatal, UsageError
from cdc.event import Position
from cdc.schema import Column, TableId, TableSchema
from cdc.topology import Source
from ingest.agent.columns import Charset, same_columns
from ingest.agent.mysql_connection import Connection, query, translated
from ingest.agent.values import is_supported

# variable → the value that capture relies on; an absent variable counts as the empty text
_REQUIRED = {
    "log_bin": "ON",
    "binlog_format": "ROW",
    "binlog_row_image": "FULL",
    "binlog_row_metadata": "FULL",
    "gtid_mode": "ON",
    "enforce_gtid_consistency": "ON",
    "binlog_row_value_options": "",
    "binlog_checksum": "CRC32",
}
_STATIC = {"log_bin", "gtid_mode", "enforce_gtid_consistency"}


def check_server(connection: Connection, source: Source) -> None:
    """Fatal unless the server logs whole rows with names and GTIDs, each with the statement that makes it so."""
    names = [*_REQUIRED, "binlog_transaction_compression"]
    with translated(source, "read the server's variables"):
        marks = ", ".join(["%s"] * len(names))
        found = dict(query(connection, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({marks})", *names))
    for name, wanted in _REQUIRED.items():
        value = str(found.get(name, ""))
        if value.upper() != wanted:
            remedy = f"SET PERSIST {name} = {wanted or repr('')}"
            if name in _STATIC:
                remedy = f"set {name}={wanted} in my.cnf and restart the server"
            raise Fatal(
                f"source {source.name}: {name} is {value or 'not there'}, capture needs {wanted or 'it empty'}", remedy
            )
    if str(found.get("binlog_transaction_compression", "OFF")).upper() == "ON":
        raise Fatal(
            f"source {source.name}: the server compresses transactions in its log",
            "SET PERSIST binlog_transaction_compression = OFF",
        )


def head(connection: Connection, source: Source) -> Position:
    """Where the log ends; every transaction in its GTID set is visible to statements that begin later."""
    with translated(source, "read the log's end"):
        rows = query(connection, "SHOW MASTER STATUS")
    if not rows:
        raise Fatal(f"source {source.name}: the server writes no binary log", "set log_bin in my.cnf and restart it")
    file, pos, _, _, gtid_set = rows[0]
    return Position(file=str(file), pos=int(pos), gtid_set=str(gtid_set).replace("\n", ""), sequence=0)


def check_position(connection: Connection, source: Source, gtid_set: str) -> None:
    """Fatal when the server's log no longer continues a position, or never was the log that was read."""
    with translated(source, "compare the stored position with the log"):
        purged, ahead = query(
            connection,
            "SELECT GTID_SUBTRACT(@@GLOBAL.gtid_purged, %s), GTID_SUBTRACT(%s, @@GLOBAL.gtid_executed)",
            gtid_set,
            gtid_set,
        )[0]
    over = "start over under a new topology name to take a new snapshot"
    if purged:
        raise Fatal(
            f"source {source.name}: the server has purged transactions that were never read: {_one_line(purged)}",
            f"raise binlog_expire_logs_seconds, and {over}",
        )
    if ahead:
        raise Fatal(
            f"source {source.name}: transactions that were read are unknown to this server: {_one_line(ahead)} "
            "(it was reset, restored or replaced)",
            f"point the source at the right server, or {over}",
        )


def charsets(connection: Connection, source: Source) -> dict[int, Charset]:
    """Character set of every collation id, as the server itself says."""
    sql = (
        "SELECT c.ID, c.CHARACTER_SET_NAME, s.MAXLEN FROM information_schema.COLLATIONS c "
        "JOIN information_schema.CHARACTER_SETS s ON s.CHARACTER_SET_NAME = c.CHARACTER_SET_NAME"
    )
    with translated(source, "read the character sets"):
        return {int(i): Charset(name=str(name), width=int(width)) for i, name, width in query(connection, sql)}


def table_schemas(
    connection: Connection, source: Source, known: Mapping[TableId, TableSchema]
) -> dict[TableId, TableSchema]:
    """Schemas of the captured tables now; UsageError for a missing table, one without key or with an unknown type."""
    return {table: _table_schema(connection, source, table, known.get(table)) for table in source.tables}


def _table_schema(connection: Connection, source: Source, table: TableId, known: TableSchema | None) -> TableSchema:
    with translated(source, f"read the columns of {table}"):
        rows = query(
            connection,
            "SELECT COLUMN_NAME, COLUMN_TYPE, IS_NULLABLE, CHARACTER_SET_NAME FROM information_schema.COLUMNS "
            "WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s ORDER BY ORDINAL_POSITION",
            table.database,
            table.table,
        )
        keys = query(
            connection,
            "SELECT COLUMN_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s "
            "AND INDEX_NAME = 'PRIMARY' ORDER BY SEQ_IN_INDEX",
            table.database,
            table.table,
        )
        kinds = query(
            connection,
            "SELECT TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME = %s",
            table.database,
            table.table,
        )
    if not rows:
        raise UsageError(
            f"source {source.name}: table {table.database}.{table.table} is not there, or {source.username} may not "
            "SELECT from it",
            f"correct `tables:`, or GRANT SELECT ON {table.database}.* TO '{source.username}'@'%'",
        )
    if kinds and (kinds[0][0] != "BASE TABLE" or kinds[0][1] != "InnoDB"):
        raise UsageError(
            f"table {table} is a {kinds[0][0].lower()} of engine {kinds[0][1]}, which has no transactions",
            "capture InnoDB tables only",
        )
    if not keys:
        raise UsageError(
            f"table {table} has no primary key",
            f"ALTER TABLE {table.database}.{table.table} ADD PRIMARY KEY (…), or leave it out of `tables:`",
        )
    columns = tuple(_column(table, *map(_text, row)) for row in rows)
    key = tuple(str(name) for (name,) in keys)
    if known is not None and known.primary_key == key and same_columns(known.columns, columns):
        return known
    return TableSchema(table_id=table, version=known.version + 1 if known else 1, columns=columns, primary_key=key)


def _text(value: object) -> str | None:
    return None if value is None else str(value)


def _column(
    table: TableId, name: str | None, column_type: str | None, nullable: str | None, charset: str | None
) -> Column:
    assert name is not None, "information_schema names every column"
    assert column_type is not None, "information_schema types every column"
    column = Column(name=name, column_type=column_type, nullable=nullable == "YES", charset=charset)
    try:
        _ = column.type
        supported = charset is None or is_supported(charset)
        problem = "" if supported else f"character set {charset}"
    except ValueError:
        problem = f"type {column_type}"
    if problem:
        remedy = "convert it to utf8mb4" if "character" in problem else "leave its table out of `tables:`"
        raise UsageError(f"table {table}: column {name} has {problem}, which is not captured", remedy)
    return column


def _one_line(text: object) -> str:
    return str(text).replace("\n", " ")
