"""What a TABLE_MAP event says about a table, and which schema follows from it.

The metadata in the log belongs to the very rows behind it, so it decides; information_schema only knows how a table
looks now. Source: MySQL's Table_map_event with binlog_row_metadata=FULL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from cdc.errors import Fatal
from cdc.schema import Column, TableId, TableSchema
from ingest.agent.values import is_supported

BINARY = "binary"
# Names of the columns that MySQL adds for functional indexes; no statement can see them. Before 8.0.16 an MD5.
_HIDDEN, _HIDDEN_OLD = "!hidden!", re.compile(r"[0-9a-f]{32}")
_INTEGERS = {1: "tinyint", 2: "smallint", 9: "mediumint", 3: "int", 8: "bigint"}
_PLAIN = {4: "float", 5: "double", 10: "date", 13: "year", 245: "json"}
_TEMPORAL = {17: "timestamp", 18: "datetime", 19: "time"}
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_OLD_TEMPORAL = {7: "TIMESTAMP", 11: "TIME", 12: "DATETIME"}
_WIDTH = re.compile(r"^(tinyint|smallint|mediumint|int|bigint|year)\(\d+\)")
_FLOATING = re.compile(r"^(float|double)\([^)]*\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Charset:
    """A character set, by the id of one of its collations; `width` is its longest character in bytes."""

    name: str
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedColumn:
    """A column as the log describes it.

    `code` is MySQL's field type (ENUM 247 and SET 248 resolved), `size` its length in bytes where the type has one
    (string: longest value; blob and JSON: width of the length; enum, set, bit: bytes), `precision` and `scale` those
    of decimals, with `scale` the fractional digits of temporal types. `collation` is an id, None for types without.
    """

    name: str
    code: int
    size: int = 0
    precision: int = 0
    scale: int = 0
    unsigned: bool = False
    nullable: bool = True
    collation: int | None = None
    members: tuple[str, ...] = ()
    hidden: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTable:
    """A table as the log describes it; `primary_key` are column indexes in key order."""

    database: str
    table: str
    columns: tuple[LoggedColumn, ...]
    primary_key: tuple[int, ...]


def is_hidden(name: str, known: TableSchema | None) -> bool:
    """Whether MySQL made a column for itself; `known` is the table's schema before."""
    if name.startswith(_HIDDEN):
        return True
    return bool(_HIDDEN_OLD.fullmatch(name)) and known is not None and known.column(name) is None


def normal(column_type: str) -> str:
    """A column type without what the log does not carry: display widths and zerofill."""
    text = column_type.lower() if "'" not in column_type else column_type
    text = text.replace(" zerofill", "")
    return _FLOATING.sub(r"\1", _WIDTH.sub(r"\1", text))


def column_type(column: LoggedColumn, charsets: Mapping[int, Charset]) -> str:
    """The type as information_schema prints it, without display width; Fatal for what cannot be captured."""
    code, unsigned = column.code, " unsigned" if column.unsigned else ""
    if code in _INTEGERS:
        return _INTEGERS[code] + unsigned
    if code in _PLAIN:
        return _PLAIN[code] + (unsigned if code in (4, 5) else "")
    if code in _TEMPORAL:
        return f"{_TEMPORAL[code]}({column.scale})" if column.scale else _TEMPORAL[code]
    if code == 246:
        return f"decimal({column.precision},{column.scale}){unsigned}"
    if code == 16:
        return f"bit({column.precision})"
    if code in (247, 248):
        texts = ",".join("'" + member.replace("'", "''") + "'" for member in column.members)
        return f"{'enum' if code == 247 else 'set'}({texts})"
    if code in (15, 253, 254, 252):
        charset = charset_of(column, charsets)
        binary = charset.name == BINARY
        if code == 252:
            return _BLOBS[column.size] + ("blob" if binary else "text")
        name = ("binary" if binary else "char") if code == 254 else ("varbinary" if binary else "varchar")
        return f"{name}({column.size // charset.width})"
    if code in _OLD_TEMPORAL:
        raise Fatal(
            f"column {column.name} is stored in the {_OLD_TEMPORAL[code]} format of MySQL 5.5",
            "run ALTER TABLE … FORCE at the source",
        )
    raise Fatal(
        f"column {column.name} has field type {code}, which is not captured", "leave its table out of `tables:`"
    )


def charset_of(column: LoggedColumn, charsets: Mapping[int, Charset]) -> Charset:
    """Character set of a text column; Fatal when text in it cannot be decoded exactly."""
    charset = charsets.get(column.collation) if column.collation is not None else None
    if charset is None or not (charset.name == BINARY or is_supported(charset.name)):
        found = charset.name if charset else f"collation {column.collation}"
        raise Fatal(f"column {column.name}: character set {found} is not captured", "convert the column to utf8mb4")
    return charset


def schema_of(
    logged: LoggedTable, source: str, known: TableSchema | None, charsets: Mapping[int, Charset]
) -> TableSchema:
    """Schema of the rows behind a TABLE_MAP: the known one while it holds, else the next version of it.

    Fatal, naming the table, when the log describes something that cannot be captured.
    """
    table_id = TableId(source=source, database=logged.database, table=logged.table)
    try:
        columns = tuple(_column(c, charsets) for c in logged.columns if not c.hidden)
    except Fatal as error:
        raise Fatal(f"table {table_id}: {error.message}", error.hint) from error
    key = tuple(logged.columns[i].name for i in logged.primary_key)
    if not key:
        raise Fatal(f"table {table_id} has no primary key any more", "add one and take a new snapshot")
    if known is not None and known.primary_key == key and same_columns(known.columns, columns):
        return known
    return TableSchema(table_id=table_id, version=known.version + 1 if known else 1, columns=columns, primary_key=key)


def same_columns(left: tuple[Column, ...], right: tuple[Column, ...]) -> bool:
    """Whether two lists of columns mean the same rows, however their types are printed."""
    return [(c.name, normal(c.column_type), c.nullable, c.charset) for c in left] == [
        (c.name, normal(c.column_type), c.nullable, c.charset) for c in right
    ]


def _column(column: LoggedColumn, charsets: Mapping[int, Charset]) -> Column:
    charset: str | None = None
    if column.code in (15, 253, 254, 252, 247, 248):
        name = charset_of(column, charsets).name
        charset = None if name == BINARY else name
    return Column(
        name=column.name,
        column_type=column_type(column, charsets),
        nullable=column.nullable,
        charset=charset,
    )
