"""The oracle of random databases: rows that MySQL or MariaDB returns to SELECT, as a consumer of the topics should have
them.

The conversions are independent and use no code under test.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Iterable
from datetime import date
from decimal import Decimal
from typing import Any

from tests.databases.mysql_tables import quoted
from tests.databases.shown import Cell, OddValue, ShownColumn, ShownTable

_SPATIAL = {
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
}  # fmt: skip
_INTEGERS = {"tinyint", "smallint", "mediumint", "int", "bigint", "year"}
_BYTES = {"binary", "varbinary", "blob", "tinyblob", "mediumblob", "longblob"}


def shown(cursor: Any, database: str) -> dict[str, ShownTable]:
    """Return every table of a database that stores rows of its own, by name."""
    cursor.execute("SET SESSION time_zone = '+00:00', sql_mode = ''")
    cursor.execute(
        "SELECT TABLE_NAME, TABLE_TYPE, ENGINE FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s "
        "AND TABLE_TYPE NOT IN ('VIEW', 'SEQUENCE', 'TEMPORARY')", (database,),
    )  # fmt: skip
    tables = {name: (kind, engine) for name, kind, engine in cursor.fetchall()}
    cursor.execute(
        "SELECT TABLE_NAME, COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, IS_NULLABLE, EXTRA FROM information_schema.COLUMNS "
        "WHERE TABLE_SCHEMA = %s ORDER BY TABLE_NAME, ORDINAL_POSITION", (database,),
    )  # fmt: skip
    columns: dict[str, list[ShownColumn]] = {}
    for table, name, kind, column_type, nullable, _ in cursor.fetchall():
        one = ShownColumn(name=name, kind=kind, column_type=column_type, nullable=nullable == "YES")
        columns.setdefault(table, []).append(one)
    keys = _keys(cursor, database)
    found = {}
    for table, (kind, engine) in tables.items():
        reported = columns.get(table, [])
        nullable = {column.name for column in reported if column.nullable}
        key = _usable(keys.get(table, {}), nullable)
        found[table] = ShownTable(
            name=table,
            kind=kind,
            engine=engine or "",
            columns=tuple(reported),
            key=key,
            rows=_rows(cursor, database, table, reported),
        )
    return found


def _keys(cursor: Any, database: str) -> dict[str, dict[str, list[tuple[str | None, Any]]]]:
    """Return the unique keys of each table: by name, their columns with the indexed prefix."""
    cursor.execute(
        "SELECT TABLE_NAME, INDEX_NAME, COLUMN_NAME, SUB_PART FROM information_schema.STATISTICS "
        "WHERE TABLE_SCHEMA = %s AND NON_UNIQUE = 0 ORDER BY TABLE_NAME, INDEX_NAME, SEQ_IN_INDEX", (database,),
    )  # fmt: skip
    found: dict[str, dict[str, list[tuple[str | None, Any]]]] = {}
    for table, index, column, part in cursor.fetchall():
        found.setdefault(table, {}).setdefault(index, []).append((column, part))
    return found


def _usable(keys: dict[str, list[tuple[str | None, Any]]], nullable: set[str]) -> tuple[str, ...]:
    """Return the columns of a key that identifies rows, or (); a key over a prefix does not identify them."""
    for name in sorted(keys, key=lambda one: one != "PRIMARY"):
        parts = keys[name]
        if all(column is not None and part is None and column not in nullable for column, part in parts):
            return tuple(str(column) for column, _ in parts)
    return ()


def _rows(cursor: Any, database: str, table: str, columns: Iterable[ShownColumn]) -> list[dict[str, Cell]]:
    readers = [(column, *_reader(column)) for column in columns]
    asked = ", ".join(expression.format(quoted(column.name).replace("{", "{{")) for column, expression, _ in readers)
    cursor.execute(f"SELECT {asked} FROM {quoted(database)}.{quoted(table)}")
    rows = []
    for values in cursor.fetchall():
        row: dict[str, Cell] = {}
        for (column, _, read), printed in zip(readers, values, strict=True):
            row[column.name] = None if printed is None else read(printed)
        rows.append(row)
    return rows


def _reader(column: ShownColumn) -> tuple[str, Callable[[Any], Cell]]:
    """Return an expression that reads a column exactly, and the conversion of its result."""
    kind = column.kind
    if kind in _SPATIAL:
        return "HEX({0})", lambda printed: spatial(bytes.fromhex(printed))
    if kind == "vector":
        return "HEX({0})", lambda printed: [one for (one,) in struct.iter_unpack("<f", bytes.fromhex(printed))]
    if kind in _INTEGERS:
        return "CAST({0} AS CHAR)", int
    if kind == "decimal":
        return (
            "CAST({0} AS CHAR)",
            lambda printed: str(Decimal(printed)) if "zerofill" in column.column_type else printed,
        )
    if kind == "float":
        return "{0}+0e0", lambda printed: struct.unpack("f", struct.pack("f", float(printed)))[0]
    if kind == "double":
        return "{0}+0e0", float  # a CAST to CHAR of MySQL 9 prints 16 digits of some
    if kind == "bit":
        width = int(column.column_type[4:-1])
        return "CAST({0}+0 AS CHAR)", lambda printed: _bits(int(printed), width)
    if kind == "date":
        return "CAST({0} AS CHAR)", lambda printed: _day(printed, "Z")
    if kind in ("datetime", "timestamp"):
        return "CAST({0} AS CHAR)", _moment
    if kind == "time":
        return "CAST({0} AS CHAR)", lambda printed: _trimmed(printed)
    if kind == "json":
        return "HEX(CAST({0} AS CHAR CHARACTER SET utf8mb4))", lambda printed: as_json(bytes.fromhex(printed).decode())
    if kind in _BYTES:
        return "HEX({0})", lambda printed: base64.b64encode(bytes.fromhex(printed)).decode()
    if kind in ("uuid", "inet4", "inet6"):
        return "CAST({0} AS CHAR)", str
    return "HEX(CONVERT({0} USING utf8mb4))", lambda printed: bytes.fromhex(printed).decode("utf-8", "surrogatepass")


def _bits(value: int, width: int) -> Cell:
    if width == 1:
        return bool(value)
    return base64.b64encode(value.to_bytes((width + 7) // 8, "little")).decode()


def _day(printed: str, ending: str) -> str:
    try:
        return date.fromisoformat(printed).isoformat() + ending
    except ValueError:
        return OddValue(printed)


def _moment(printed: str) -> Cell:
    day = _day(printed[:10], "T")
    return day if isinstance(day, OddValue) else f"{day}{_trimmed(printed[11:])}Z"


def _trimmed(printed: str) -> str:
    return printed.rstrip("0").rstrip(".") if "." in printed else printed


def spatial(stored: bytes) -> Cell:
    """Convert a geometry as the server stores it, four bytes of SRID and its WKB, to the form in which two are
    compared."""
    if len(stored) < 9:
        return OddValue(stored.hex())  # MariaDB stores no bytes for a NULL in a NOT NULL column
    return "geometry", f"{int.from_bytes(stored[:4], 'little')} {stored[4:].hex()}"


def published_geometry(value: Any) -> Cell:
    """Convert a published geometry to the same form."""
    return "geometry", f"{value['srid'] or 0} {base64.b64decode(value['wkb']).hex()}"


def as_json(text: str) -> Cell:
    """Parse a JSON text; numbers compare by value."""
    return ("json", repr(_meaning(json.loads(text))))


def _meaning(found: Any) -> Any:
    if isinstance(found, dict):
        return sorted((key, _meaning(one)) for key, one in found.items())
    if isinstance(found, list):
        return [_meaning(one) for one in found]
    if isinstance(found, int | float) and not isinstance(found, bool):
        return float(found)
    return found
