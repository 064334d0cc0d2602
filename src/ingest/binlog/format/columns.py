"""Columns of a table: types from the TABLE_MAP, other attributes from optional metadata or from a schema."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from ingest.binlog.format.codes import INTEGER_SIZES, ColumnType
from ingest.binlog.format.errors import UndecodableValue

T = ColumnType


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedColumn:
    """One column of a TABLE_MAP event.

    `size` is the number of bytes of the value or of its length prefix, `width` the declared bytes of a string.
    `precision` and `scale` are those of DECIMAL, `digits` those of a fractional second (-1: unknown). None means
    unknown for `unsigned`, `charset` ("binary": bytes) and `labels` of ENUM and SET; values that depend on it are
    refused or marked. `named` is False if the name is only an ordinal number (`@1`), `visible` for an INVISIBLE column.
    `geometry` is the number of a spatial type (1: point), `dimensions` the length of a VECTOR. `declared` is the SQL
    type in a schema ("inet6", "uuid").
    """

    index: int
    name: str
    type: ColumnType
    named: bool = False
    nullable: bool = True
    size: int = 0
    width: int = 0
    precision: int = 0
    scale: int = 0
    digits: int = 0
    unsigned: bool | None = None
    charset: str | None = None
    labels: tuple[str, ...] | None = None
    visible: bool = True
    geometry: int | None = None
    dimensions: int | None = None
    declared: str = ""

    @property
    def is_point(self) -> bool:
        """Return whether the column is one of points, according to metadata or a schema."""
        return self.declared == "point" or (not self.declared and self.geometry == 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnHint:
    """A column from a schema, to complete a TABLE_MAP; `type` is information_schema's COLUMN_TYPE: `enum('a','b')`.

    `spare` hints come last: columns that a server may have hidden after the others. An empty `type` means any type. An
    empty `name` gives the column no name.
    """

    name: str
    type: str
    charset: str | None = None
    spare: bool = False


class SchemaSource(Protocol):
    """Source of a table's columns at a position, such as a schema history, a server or a file."""

    def schema_at(self, table: tuple[str, str], position: Any) -> Sequence[ColumnHint] | None:
        """Return the columns of a table, (database, name), in order; None if it is unknown at the position."""
        ...


NUMERIC: Final = frozenset({*INTEGER_SIZES, T.FLOAT, T.DOUBLE, T.DECIMAL, T.NEWDECIMAL})
CHARACTER: Final = frozenset(
    {T.STRING, T.VAR_STRING, T.VARCHAR, T.BLOB, T.TINY_BLOB, T.MEDIUM_BLOB, T.LONG_BLOB}
    | {T.MARIA_BLOB_COMPRESSED, T.MARIA_VARCHAR_COMPRESSED}
)
LABELLED: Final = frozenset({T.ENUM, T.SET})
# by their numbers in a TABLE_MAP
GEOMETRIES: Final = (
    "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
    "geometrycollection", "geomcollection",
)  # fmt: skip

_HINT: Final = re.compile(r"^\s*([a-z]+\d?)\s*(?:\((.*)\))?\s*(.*)$", re.IGNORECASE | re.DOTALL)
_FUNCTIONAL_INDEX: Final = re.compile(r"^(?:[0-9a-f]{32}|!hidden!.*)$")
_LABEL: Final = re.compile(r"'((?:[^'\\]|''|\\.)*)'\s*,?\s*", re.DOTALL)
# Declared type → types in the binlog that may store it. A schema that contradicts this is one of another position.
_STORED_AS: Final[dict[str, frozenset[ColumnType]]] = {
    "tinyint": frozenset({T.TINY}),
    "boolean": frozenset({T.TINY}),
    "smallint": frozenset({T.SHORT}),
    "mediumint": frozenset({T.INT24}),
    "int": frozenset({T.LONG}),
    "integer": frozenset({T.LONG}),
    "bigint": frozenset({T.LONGLONG}),
    "float": frozenset({T.FLOAT}),
    "double": frozenset({T.DOUBLE}),
    "decimal": frozenset({T.NEWDECIMAL, T.DECIMAL}),
    "numeric": frozenset({T.NEWDECIMAL, T.DECIMAL}),
    "bit": frozenset({T.BIT}),
    "year": frozenset({T.YEAR}),
    "date": frozenset({T.DATE, T.NEWDATE}),
    "time": frozenset({T.TIME, T.TIME2}),
    "datetime": frozenset({T.DATETIME, T.DATETIME2}),
    "timestamp": frozenset({T.TIMESTAMP, T.TIMESTAMP2}),
    "enum": frozenset({T.ENUM}),
    "set": frozenset({T.SET}),
    "json": frozenset({T.JSON, *CHARACTER}),
    "vector": frozenset({T.VECTOR, *CHARACTER}),
    **dict.fromkeys(GEOMETRIES, frozenset({T.GEOMETRY})),
    **dict.fromkeys(("inet4", "inet6", "uuid", "char", "binary"), frozenset({T.STRING, T.VAR_STRING})),
    **dict.fromkeys(("varchar", "varbinary", "xmltype"), CHARACTER),
    **dict.fromkeys(
        (f"{size}{kind}" for size in ("tiny", "", "medium", "long") for kind in ("text", "blob")), CHARACTER
    ),
}


def labels_of(arguments: str) -> tuple[str, ...]:
    """Return the labels in `enum(…)` or `set(…)`, without quotes; `arguments` is the text in the brackets."""
    return tuple(
        re.sub(r"''|\\(.)", lambda m: m[1] or "'", found, flags=re.DOTALL) for found in _LABEL.findall(arguments)
    )


def apply_hint(column: LoggedColumn, hint: ColumnHint, table: str) -> LoggedColumn:
    """Complete a column with a schema's attributes; those in the binlog take precedence.

    Raises UndecodableValue if the schema contradicts the binlog.
    """
    if hint.spare and not hint.type:
        return column if column.named or not hint.name else replace(column, name=hint.name, named=True)
    match = _HINT.match(hint.type)
    if not match:
        raise UndecodableValue(f"the schema of {table} has an unreadable type {hint.type!r}")
    kind, arguments, rest = match[1].lower(), match[2] or "", match[3].lower()
    stored = _STORED_AS.get(kind)
    if stored is not None and column.type not in stored:
        raise UndecodableValue(
            f"{table}.{hint.name} is {hint.type} in the schema, but {column.type.name} in the binlog",
            "the schema belongs to another position; use the one that was valid there",
        )
    changes: dict[str, Any] = {"declared": kind}
    if not column.named and hint.name:
        changes |= {"name": hint.name, "named": True}
    if column.unsigned is None and column.type in NUMERIC:
        changes["unsigned"] = "unsigned" in rest or "zerofill" in rest
    if column.charset is None and (column.type in CHARACTER or column.type in LABELLED):
        binary = kind.endswith(("binary", "blob")) or kind in ("inet4", "inet6", "uuid", "vector")
        changes["charset"] = "binary" if binary else hint.charset or ("utf8mb4" if kind == "json" else None)
    if column.labels is None and column.type in LABELLED:
        changes["labels"] = labels_of(arguments)
    if column.type is T.DECIMAL:
        precision, _, scale = arguments.partition(",")
        changes |= {"precision": int(precision or 10), "scale": int(scale or 0)}
    if column.type in (T.TIME, T.DATETIME, T.TIMESTAMP):
        changes["digits"] = int(arguments or 0)
    return replace(column, **changes)


def apply_schema(columns: Sequence[LoggedColumn], hints: Sequence[ColumnHint], table: str) -> tuple[LoggedColumn, ...]:
    """Complete all columns with a schema's attributes. Raises UndecodableValue if the number of columns differs.

    MySQL 8.0.13–8.0.17 adds hidden columns of functional indexes at the end, without values; they need no hint.
    """
    sure = [hint for hint in hints if not hint.spare]
    hints = [*sure, *[hint for hint in hints if hint.spare][: max(0, len(columns) - len(sure))]]
    hidden = [column for column in columns if column.named and _FUNCTIONAL_INDEX.match(column.name)]
    if len(columns) - len(sure) == len(hidden) and list(columns[len(sure) :]) == hidden:
        known = zip(columns[: len(sure)], sure, strict=True)
        return (*(apply_hint(column, hint, table) for column, hint in known), *hidden)
    if len(columns) != len(hints):
        raise UndecodableValue(
            f"the schema of {table} has {len(hints)} columns, but the binlog has {len(columns)}",
            "the schema belongs to another position; use the one that was valid there",
        )
    return tuple(apply_hint(column, hint, table) for column, hint in zip(columns, hints, strict=True))
