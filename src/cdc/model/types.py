"""The one table of types: MySQL column type → logical type → canonical value → bytes in HBase → field in Solr.

A *canonical value* is what the envelope's JSON carries, and every stage compares values in this form:

    kind                          canonical value
    bool                          True / False                  (BIT(1))
    int8 … int64, uint64, year    int
    decimal(p,s)                  str with exactly s fractional digits: "12.30"
    float32, float64              float, or "NaN", "Infinity", "-Infinity"  (Debezium's JSON has these as strings, too)
    date                          "2017-09-15Z"                 (Debezium IsoDate)
    datetime, timestamp           "2017-09-15T10:12:00.5Z"      (Debezium IsoTimestamp, UTC, trailing zeros dropped)
    time                          "-12:30:00.25"                (no zone: a MySQL TIME is a duration)
    string, json                  str
    bytes                         base64 str
    list<element>                 list of canonical values of the element, none of them NULL (collected by a query;
                                  a VECTOR is a list<float32>)
    point, geometry               in the log Debezium's struct, {"wkb": base64, "srid": number or null}, of a point with
                                  "x" and "y" in front; in later stages EWKT, "SRID=4326;POINT(2.35 48.85)"
                                  (`cdc.model.geometry`)

SQL NULL is None in every kind. Sources: Debezium MySQL connector with `decimal.handling.mode=string`,
`time.precision.mode=isostring`, `binary.handling.mode=base64`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

Kind = Literal[
    "bool", "int8", "int16", "int32", "int64", "uint64", "decimal", "float32", "float64",
    "date", "datetime", "timestamp", "time", "string", "json", "bytes",
    "list", "point", "geometry",
]  # fmt: skip
Member = bool | int | float | str
# Floating-point values that JSON has no number for, in their canonical form.
NOT_FINITE = ("NaN", "Infinity", "-Infinity")
Struct = dict[str, Member | None]
Canonical = Member | list[Member] | Struct | None
SPATIAL: Final = ("point", "geometry")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogicalType:
    """A kind, with precision and scale if the kind is decimal, and the type of its members if it is a list.

    No list contains lists or geometries.
    """

    kind: Kind
    precision: int = 0
    scale: int = 0
    element: LogicalType | None = None

    @property
    def member(self) -> LogicalType:
        """Return the type of each single value: of a list's members, else of the value itself."""
        return self.element or self

    def __str__(self) -> str:
        if self.element is not None:
            return f"list<{self.element}>"
        return f"decimal({self.precision},{self.scale})" if self.kind == "decimal" else self.kind


_SIGNED: dict[str, Kind] = {
    "tinyint": "int8",
    "smallint": "int16",
    "mediumint": "int32",
    "int": "int32",
    "integer": "int32",
    "bigint": "int64",
    "year": "int32",
}
# An unsigned type becomes the next wider signed one, so that every value fits.
_UNSIGNED: dict[str, Kind] = {
    "tinyint": "int16",
    "smallint": "int32",
    "mediumint": "int32",
    "int": "int64",
    "integer": "int64",
    "bigint": "uint64",
    "year": "int32",
}
_OTHERS: dict[str, Kind] = {
    "float": "float32",
    "double": "float64",
    "date": "date",
    "datetime": "datetime",
    "timestamp": "timestamp",
    "time": "time",
    "char": "string",
    "varchar": "string",
    "tinytext": "string",
    "text": "string",
    "mediumtext": "string",
    "longtext": "string",
    "enum": "string",
    "set": "string",
    "json": "json",
    "binary": "bytes",
    "varbinary": "bytes",
    "tinyblob": "bytes",
    "blob": "bytes",
    "mediumblob": "bytes",
    "longblob": "bytes",
    "uuid": "string",
    "inet4": "string",
    "inet6": "string",
    "point": "point",
    **dict.fromkeys(("geometry", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon"), "geometry"),
    **dict.fromkeys(("geometrycollection", "geomcollection"), "geometry"),
}
_SHAPE = re.compile(r"^\s*([a-z]+[46]?)\s*(?:\(([^)]*)\))?(.*)$", re.IGNORECASE | re.DOTALL)


@lru_cache(1 << 12)
def from_mysql(column_type: str) -> LogicalType:
    """Return the logical type of a MySQL `column_type` such as `decimal(10,2) unsigned`. Raises ValueError for an
    unknown one."""
    match = _SHAPE.match(column_type)
    if match is None:
        raise ValueError(f"not a column type: {column_type!r}")
    base, arguments, rest = match[1].lower(), match[2] or "", match[3].lower()
    if base in _SIGNED:
        return LogicalType(kind=(_UNSIGNED if "unsigned" in rest or "zerofill" in rest else _SIGNED)[base])
    if base in {"decimal", "numeric"}:
        precision, _, scale = arguments.partition(",")
        return LogicalType(kind="decimal", precision=int(precision or 10), scale=int(scale or 0))
    if base == "bit":
        return LogicalType(kind="bool" if (arguments or "1").strip() == "1" else "bytes")
    if base == "vector":
        return list_of(LogicalType(kind="float32"))
    if base in _OTHERS:
        return LogicalType(kind=_OTHERS[base])
    raise ValueError(f"column type {column_type!r} has no logical type")


def list_of(element: LogicalType) -> LogicalType:
    """Return the type of lists of an element, which is not a list itself."""
    assert element.kind != "list", "a list of lists"
    return LogicalType(kind="list", element=element)


def parse_type(text: str) -> LogicalType:
    """Parse a type as stored in layouts; inverse of `str(LogicalType)`. Raises ValueError for anything else."""
    if match := re.fullmatch(r"decimal\((\d+),(\d+)\)", text):
        return LogicalType(kind="decimal", precision=int(match[1]), scale=int(match[2]))
    if match := re.fullmatch(r"list<([^<>]+)>", text):
        return list_of(parse_type(match[1]))
    if text not in Kind.__args__ or text in ("decimal", "list"):  # type: ignore[attr-defined]  # Literal's members
        raise ValueError(f"not a logical type: {text!r}")
    return LogicalType(kind=text)  # type: ignore[arg-type]  # checked on the line above


def float_of(value: float) -> float | str:
    """Return the canonical value of a floating-point number: one that JSON cannot represent is a string."""
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
