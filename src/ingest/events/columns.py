"""Convert the columns of a TABLE_MAP event with full metadata to schema columns.

This metadata describes the rows that follow it in the log. information_schema shows only the table's current columns,
so the metadata takes precedence. Source: MySQL's Table_map_event with binlog_row_metadata=FULL.
"""

from __future__ import annotations

import re

from cdc.model.schema import Column
from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.columns import GEOMETRIES, LoggedColumn
from ingest.binlog.format.tablemap import TableMap
from ingest.events.hidden import Trim

# Names of the columns that MySQL adds for functional indexes; statements cannot use them. Before 8.0.16 an MD5.
_HIDDEN, _HIDDEN_OLD = "!hidden!", re.compile(r"[0-9a-f]{32}")
_INTEGERS = {T.TINY: "tinyint", T.SHORT: "smallint", T.INT24: "mediumint", T.LONG: "int", T.LONGLONG: "bigint"}
_PLAIN = {T.FLOAT: "float", T.DOUBLE: "double", T.DATE: "date", T.NEWDATE: "date", T.YEAR: "year", T.JSON: "json"}
_TEMPORAL = {
    T.TIMESTAMP2: "timestamp", T.TIMESTAMP: "timestamp", T.DATETIME2: "datetime", T.DATETIME: "datetime",
    T.TIME2: "time", T.TIME: "time",
}  # fmt: skip
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
# Bytes of a character set's longest character, if more than one.
_WIDTHS = {
    "utf8mb4": 4, "utf8mb3": 3, "utf8": 3, "ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "gbk": 2,
    "big5": 2, "sjis": 2, "cp932": 2, "ujis": 3, "eucjpms": 3, "euckr": 2, "gb2312": 2,
}  # fmt: skip
_DECLARED = {"uuid", "inet4", "inet6"}
_DISPLAY = re.compile(r"^(tinyint|smallint|mediumint|int|bigint|year)\(\d+\)")
_COMPRESSED = re.compile(r" /\*m!\d+ compressed\*/", re.IGNORECASE)
_FLOATING = re.compile(r"^(float|double)\([^)]*\)")
_CHARACTER = {
    T.STRING, T.VAR_STRING, T.VARCHAR, T.BLOB, T.ENUM, T.SET, T.TINY_BLOB, T.MEDIUM_BLOB, T.LONG_BLOB,
    T.MARIA_VARCHAR_COMPRESSED, T.MARIA_BLOB_COMPRESSED,
}  # fmt: skip


def is_hidden(name: str) -> bool:
    """Return whether a column name is one that MySQL gives to a column for a functional index."""
    return name.startswith(_HIDDEN) or bool(_HIDDEN_OLD.fullmatch(name))


def described(table: TableMap, trim: Trim | None = None) -> tuple[tuple[Column, ...], tuple[str, ...]]:
    """Return columns and primary key of a TABLE_MAP with full metadata, without columns that `trim` removes.

    The primary key omits the period column that MariaDB adds to the key of a system-versioned table.
    """
    hidden, end = (trim.hidden, trim.end) if trim else (frozenset[str](), "")
    shown = [column for column in table.columns if not is_hidden(column.name) and column.name not in hidden]
    key = [table.columns[index].name for index, _ in table.primary_key]
    return tuple(map(_column, shown)), tuple(name for name in key if name not in hidden and name != end)


def same_columns(left: tuple[Column, ...], right: tuple[Column, ...]) -> bool:
    """Return whether two lists of columns describe the same rows, even if their types are printed differently."""
    return [_meaning(column) for column in left] == [_meaning(column) for column in right]


def _meaning(column: Column) -> tuple[str, str, bool, str | None]:
    charset = "utf8mb3" if column.charset == "utf8" else column.charset
    return column.name, _normal(column.column_type), column.nullable, charset


def _normal(column_type: str) -> str:
    """Return a column type without display width and zerofill, which the log does not contain."""
    text = column_type.lower() if "'" not in column_type else column_type
    text = _COMPRESSED.sub("", text.replace(" zerofill", ""))
    text = text.replace("geomcollection", "geometrycollection")
    return _FLOATING.sub(r"\1", _DISPLAY.sub(r"\1", text))


def _column(column: LoggedColumn) -> Column:
    charset = column.charset if column.type in _CHARACTER and column.charset != "binary" else None
    return Column(name=column.name, column_type=_type(column), nullable=column.nullable, charset=charset)


def _type(column: LoggedColumn) -> str:
    """Return a column's type as information_schema prints it, without display width."""
    kind, unsigned = column.type, " unsigned" if column.unsigned else ""
    if column.declared in _DECLARED:  # the log contains it as BINARY
        return column.declared
    if kind in _INTEGERS:
        return _INTEGERS[kind] + unsigned
    if kind in _PLAIN:
        return _PLAIN[kind] + (unsigned if kind in (T.FLOAT, T.DOUBLE) else "")
    if kind in _TEMPORAL:
        return f"{_TEMPORAL[kind]}({column.digits})" if column.digits > 0 else _TEMPORAL[kind]
    if kind == T.NEWDECIMAL:
        return f"decimal({column.precision},{column.scale}){unsigned}"
    if kind == T.BIT:
        return f"bit({column.width})"
    if kind in (T.ENUM, T.SET):
        labels = ",".join("'" + label.replace("'", "''") + "'" for label in column.labels or ())
        return f"{'enum' if kind == T.ENUM else 'set'}({labels})"
    binary = column.charset == "binary"
    if kind in (T.BLOB, T.TINY_BLOB, T.MEDIUM_BLOB, T.LONG_BLOB, T.MARIA_BLOB_COMPRESSED):
        return _BLOBS[column.size] + ("blob" if binary else "text")
    if kind in (T.STRING, T.VAR_STRING, T.VARCHAR, T.MARIA_VARCHAR_COMPRESSED):
        base = "binary" if binary else "char"
        # a compressed column has one byte more, for the compression method
        width = (column.width - (kind == T.MARIA_VARCHAR_COMPRESSED)) // _WIDTHS.get(column.charset or "", 1)
        return f"{'' if kind == T.STRING else 'var'}{base}({width})"
    if kind == T.GEOMETRY:
        return GEOMETRIES[column.geometry or 0]
    if kind == T.VECTOR:
        return f"vector({column.dimensions})" if column.dimensions else "vector"
    return column.type.name.lower()
