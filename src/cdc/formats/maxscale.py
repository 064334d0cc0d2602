"""Changes in the format of MaxScale's avrorouter: a schema line per version, then one object per row image.

    insert, read            one `insert`
    update                  `update_before` (if known) and `update_after`
    delete                  one `delete`
    truncate                nothing: the format cannot represent it (`rows_of` is empty)

Values are MySQL's own texts and numbers (`2017-09-15 10:12:00.5`, decimals as texts). Bytes in JSON follow Avro's JSON
encoding, a text whose code points are the bytes. Geometries are MySQL's bytes, vectors are arrays. Source: MariaDB's
documentation of the avrorouter and the CDC protocol. Two differences avoid data loss: decimals are texts, not doubles,
and transaction numbers are of type long.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cdc.formats.avro_names import avro_names
from cdc.model.event import ChangeEvent
from cdc.model.geometry import stored_of, struct_of
from cdc.model.schema import Column, TableSchema
from cdc.model.types import Canonical, LogicalType, Struct, float_of, from_mysql

NAMESPACE = "MaxScaleChangeDataSchema.avro"
EVENTS = ("insert", "update_before", "update_after", "delete")
_MARIA = re.compile(r"(\d+)-(\d+)-(\d+)")
_LENGTH = re.compile(r"\((\d+)")
_AVRO: dict[str, str | dict[str, str]] = {
    "bool": "int", "int8": "int", "int16": "int", "int32": "int", "int64": "long", "uint64": "long",
    "float32": "float", "float64": "double", "bytes": "bytes", "point": "bytes", "geometry": "bytes",
    "list": {"type": "array", "items": "float"},
}  # fmt: skip
# Names that a row has in addition to its columns. A column with one of these names is renamed.
HEADER = ("domain", "server_id", "sequence", "event_number", "timestamp", "event_type")


class TransactionNumber(NamedTuple):
    """A transaction as MaxScale names it, `domain-server_id-sequence`. For MariaDB it is the server's own GTID.

    For every other source the domain is 0, and `sequence` is Tailorbird's number of the transaction's first change. It
    grows from transaction to transaction, regardless of the server that ran it before or after a fail-over. Rows of a
    snapshot have server 0, and for MariaDB sequence 0: a reader that resumes there starts with all of them.
    """

    domain: int
    server_id: int
    sequence: int

    def __str__(self) -> str:
        return f"{self.domain}-{self.server_id}-{self.sequence}"


def parse_number(text: str) -> TransactionNumber:
    """Parse a transaction number; inverse of `str(TransactionNumber)`. Raises ValueError."""
    match = _MARIA.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a GTID such as 0-1-42")
    return TransactionNumber(*map(int, match.groups()))


def number_of(event: ChangeEvent) -> TransactionNumber:
    """Return the number of the transaction that a change belongs to."""
    source = event.source
    if source.gtid is not None and (match := _MARIA.fullmatch(source.gtid)):
        return TransactionNumber(*map(int, match.groups()))
    if event.op == "r":
        return TransactionNumber(0, 0, 0 if source.connector == "mariadb" else source.sequence)
    first = source.sequence - (event.transaction.total_order - 1 if event.transaction is not None else 0)
    return TransactionNumber(0, source.server_id, first)


def schema_line(schema: TableSchema, gtid: TransactionNumber) -> dict[str, Any]:
    """Return the schema line (JSON, also an Avro schema) for a table's rows from the transaction `gtid` on."""
    header: list[dict[str, Any]] = [
        {"name": "domain", "type": "int"},
        {"name": "server_id", "type": "long"},
        {"name": "sequence", "type": "long"},
        {"name": "event_number", "type": "long"},
        {"name": "timestamp", "type": "long"},
        {"name": "event_type", "type": {"type": "enum", "name": "EVENT_TYPES", "symbols": list(EVENTS)}},
    ]
    return {
        "namespace": NAMESPACE,
        "type": "record",
        "name": "ChangeRecord",
        "table": schema.table_id.table,
        "database": schema.table_id.database,
        "version": schema.version,
        "gtid": str(gtid),
        "fields": header + [_field(name, column) for name, column in _named(schema)],
    }


def _field(name: str, column: Column) -> dict[str, Any]:
    length = _LENGTH.search(column.column_type)
    return {
        "name": name,
        "type": ["null", _AVRO.get(column.type.kind, "string")],
        "real_type": column.column_type.split("(")[0].split()[0].lower(),
        "length": int(length[1]) if length else -1,
        "unsigned": "unsigned" in column.column_type.lower(),
    }


def _named(schema: TableSchema) -> list[tuple[str, Column]]:
    """Return the columns with their names in rows."""
    names = avro_names((column.name for column in schema.columns), HEADER)
    return list(zip(names, schema.columns, strict=True))


class RowWriter:
    """Writes the rows of one table under one schema, with values for JSON, or for Avro if `binary`."""

    def __init__(self, schema: TableSchema, *, binary: bool = False) -> None:
        self._columns = [
            (name, column.name, value_writer(column.type, binary=binary)) for name, column in _named(schema)
        ]  # fmt: skip

    def rows_of(self, event: ChangeEvent) -> list[dict[str, Any]]:
        """Return the row images of a change as JSON objects; none if the format cannot represent it.

        Within a transaction `event_number` increases; it may have gaps. A column that was not logged is null.
        """
        first = 2 * event.transaction.total_order - 1 if event.transaction is not None else 1
        number, seconds = number_of(event), event.source.ts_ms // 1000
        images: list[tuple[str, Mapping[str, Canonical], int]] = []
        if event.op in ("c", "r") and event.after is not None:
            images.append(("insert", event.after, first))
        elif event.op == "u" and event.after is not None:
            if event.before is not None:
                images.append(("update_before", event.before, first))
            images.append(("update_after", event.after, first + 1))
        elif event.op == "d" and event.before is not None:
            images.append(("delete", event.before, first))
        return [
            {
                "domain": number.domain,
                "server_id": number.server_id,
                "sequence": number.sequence,
                "event_number": at,
                "timestamp": seconds,
                "event_type": kind,
                **{shown: report(image.get(name)) for shown, name, report in self._columns},
            }
            for kind, image, at in images
        ]


def value_writer(kind: LogicalType, *, binary: bool) -> Callable[[Any], Any]:
    """Return a function from the canonical value of a type to the value in a row."""
    match kind.kind:
        case "bool":
            return lambda value: None if value is None else int(value)
        case "bytes" if binary:
            return lambda value: None if value is None else base64.b64decode(value)
        case "bytes":
            return lambda value: None if value is None else base64.b64decode(value).decode("latin-1")
        case "point" | "geometry" if binary:
            return lambda value: None if value is None else stored_of(value)
        case "point" | "geometry":
            return lambda value: None if value is None else stored_of(value).decode("latin-1")
        case "float32" | "float64" if binary:  # NaN and infinities are strings in JSON only
            return lambda value: None if value is None else float(value)
        case "uint64" if binary:  # Avro's long is signed: the same 64 bits, as MaxScale writes them
            return lambda value: None if value is None else (value + (1 << 63)) % (1 << 64) - (1 << 63)
        case "date":
            return lambda value: None if value is None else value.removesuffix("Z")
        case "datetime" | "timestamp":
            return lambda value: None if value is None else value.removesuffix("Z").replace("T", " ")
        case _:
            return lambda value: value


def value_reader(kind: LogicalType, *, binary: bool) -> Callable[[Any], Any]:
    """Return the inverse function of `value_writer`."""
    match kind.kind:
        case "bool":
            return lambda value: None if value is None else bool(value)
        case "bytes":
            return lambda value: None if value is None else _base64(value)
        case "point" | "geometry":
            return lambda value: None if value is None else _struct(value, point=kind.kind == "point")
        case "float32" | "float64" if binary:
            return lambda value: None if value is None else float_of(value)
        case "uint64" if binary:
            return lambda value: None if value is None else value % (1 << 64)
        case "date":
            return lambda value: None if value is None else f"{value}Z"
        case "datetime" | "timestamp":
            return lambda value: None if value is None else value.replace(" ", "T") + "Z"
        case _:
            return lambda value: value


def _struct(value: str | bytes, *, point: bool) -> Struct:
    return struct_of(value if isinstance(value, bytes) else value.encode("latin-1"), point=point)


def _base64(value: str | bytes) -> str:
    return base64.b64encode(value if isinstance(value, bytes) else value.encode("latin-1")).decode()


def columns_reported(fields: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Return the names and MySQL types of the columns in a schema line. Raises ValueError for an unknown kind of
    field."""
    found = []
    for field in fields:
        if field["name"] in HEADER or field.get("real_type") is None:
            continue
        real, length = str(field["real_type"]), int(field.get("length", -1))
        kind = real + (
            f"({length})" if length >= 0 and real in ("bit", "char", "varchar", "binary", "varbinary") else ""
        )
        if real in ("decimal", "numeric", "enum", "set"):
            kind = (
                "varchar(68)" if real in ("decimal", "numeric") else "longtext"
            )  # a schema line contains neither the scale of a decimal nor the members of an ENUM
        if real in ("datetime", "timestamp", "time"):
            kind = f"{real}(6)"
        found.append((str(field["name"]), kind + (" unsigned" if field.get("unsigned") else "")))
        from_mysql(found[-1][1])
    return found
