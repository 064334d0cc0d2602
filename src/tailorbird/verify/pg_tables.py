"""Read whole PostgreSQL tables for a comparison.

Values are parsed from the server's text without the code of the capture, so that a fault in that code is found. The
lists of tables and columns, and the parsing of arrays, are shared with the capture."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from cdc.model.errors import UsageError
from cdc.model.filters import TableRule
from cdc.model.patterns import merged_named
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Kind, from_mysql
from cdc.topology.topology import Source
from ingest.binlog.format.canonical import Unrepresentable
from ingest.ddl.catalog import TableName
from ingest.postgres import pg_schema, selects
from ingest.postgres.pg_connection import PgConnection, connected, translated
from ingest.postgres.pg_digest import merged_now
from ingest.postgres.relations import TableShown
from tailorbird.verify.mysql_tables import SourceTable, TablesSnapshot, united
from tailorbird.verify.positions import text_of

_BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
Value = Callable[[str], Any]


def read_postgres(source: Source) -> dict[TableId, SourceTable]:
    """Read all captured tables of a source in one consistent snapshot. Raises Retriable while the source is
    unavailable."""
    with connected(source) as connection:
        names = [TableId(source=source.name, database=d, table=t) for d, t in pg_schema.tables_of(connection, source)]
    return dict(read_snapshot(source, [name for name in names if source.captures(name)]).tables)


def read_snapshot(source: Source, tables: Collection[TableId]) -> TablesSnapshot:
    """Read the given tables of a source in one consistent snapshot. Raises Retriable while the source is unavailable,
    UsageError if a table does not exist."""
    with connected(source) as connection:
        shown = pg_schema.tables_of(connection, source)
        for one in tables:
            if (one.database, one.table) not in shown and merged_named(one, source.merged) is None:
                raise UsageError(*pg_schema.absent(source, one))
        with translated(source, "read its tables"):
            connection.query(_BEGIN)
            connection.query("SELECT 1")  # takes the snapshot
        position = pg_schema.end_of_log(connection, source)  # at or after all changes in the snapshot
        with translated(source, "read its tables"):
            found = dict(_found(connection, source, tables, shown))
            connection.query("ROLLBACK")
    return TablesSnapshot(position=text_of(position), tables=found)


def _found(
    connection: PgConnection, source: Source, tables: Iterable[TableId], shown: Mapping[TableName, TableShown]
) -> Iterator[tuple[TableId, SourceTable]]:
    schemas: Mapping[TableId, TableSchema] = {}
    if source.merged:
        schemas, shown = merged_now(connection, source)

    def read(table: TableId) -> SourceTable:
        return _read(connection, source, table, shown[table.database, table.table])

    for table in tables:
        merged = merged_named(table, source.merged)
        yield table, read(table) if merged is None else united(merged, schemas, read)


def _read(connection: PgConnection, source: Source, table: TableId, shown: TableShown) -> SourceTable:
    rule = source.rule_of(table) or TableRule(exact_case=True)
    columns = tuple(
        Column(name=column.name, column_type=column.column_type, nullable=column.nullable)
        for column in shown.definition.columns
        if not rule.leaves_out(column.name)
    )
    keys = {key.name: key.columns for key in shown.definition.keys}
    schema = TableSchema(table_id=table, version=1, columns=columns, primary_key=keys.get("PRIMARY", ()))
    as_text = source.unrepresentable == "text"
    read = [_value(column, shown.reads[column.name], as_text=as_text) for column in columns]
    rows = [
        tuple(None if text is None else of(text.decode()) for of, text in zip(read, row, strict=True))
        for row in connection.query(
            selects.select_all(schema, selects.rows_of(table, partitioned=shown.partitioned), "")
        )
    ]
    return SourceTable(
        columns=tuple((column.name, from_mysql(column.column_type)) for column in columns),
        rows=rows,
        schema=schema,
        json_as_logged=True,
    )


def _value(column: Column, captured: Callable[[bytes], Any], *, as_text: bool) -> Value:
    """Return a function that parses the text of a column's value. It returns None for a value without a canonical
    form.

    `captured` is the parser of the capture, which is used for arrays."""
    kind = from_mysql(column.column_type).kind
    if kind == "json":
        # the topics contain arrays as JSON; json and jsonb values are the server's text
        return lambda text: _json(text, captured, as_text=as_text)
    return _VALUES.get(kind, str)


def _json(text: str, captured: Callable[[bytes], Any], *, as_text: bool) -> Any:
    try:
        return captured(text.encode())
    except Unrepresentable:  # an array with such a value becomes NULL as a whole, or a JSON string
        return json.dumps(text, ensure_ascii=False) if as_text else None


def _integer(text: str) -> int:
    return int(text)


def _flag(text: str) -> bool:
    return text in ("t", "1")


def _decimal(text: str) -> Decimal | None:
    found = Decimal(text)
    return found if found.is_finite() else None


def _day(text: str) -> dt.date | None:
    return dt.date.fromisoformat(text) if len(text) == 10 and text[4] == "-" else None


def _moment(text: str) -> dt.datetime | None:
    whole = text.removesuffix("+00")
    if len(whole) < 19 or whole[4] != "-" or whole.endswith("BC"):
        return None
    return dt.datetime.fromisoformat(whole.ljust(26, "0") if "." in whole else whole)


def _clock(text: str) -> dt.timedelta:
    hours, minutes, seconds = text.split(":")
    whole, _, fraction = seconds.partition(".")
    micros = int(fraction.ljust(6, "0") or 0)
    return dt.timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=micros)


def _point(text: str) -> str | None:
    finite = not any(word in text for word in ("NaN", "Infinity"))
    return text if finite else None  # no canonical form


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


_VALUES: Mapping[Kind, Value] = {
    "bool": _flag, "int8": _integer, "int16": _integer, "int32": _integer, "int64": _integer, "uint64": _integer,
    "float32": float, "float64": float, "decimal": _decimal, "date": _day, "datetime": _moment, "timestamp": _moment,
    "time": _clock, "bytes": _bytes, "point": _point,
}  # fmt: skip
