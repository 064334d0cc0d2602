"""Convert ChangeEvent → Debezium's envelope in Avro: the schemas of a table's keys and envelopes, and their values.

The envelope is a record `Envelope` with `before`, `after`, `source`, `op`, `ts_ms` and `transaction`, in a namespace
that is the topic's name. Columns have Avro's own logical types (`TYPES`). Every column of a row may be NULL and has the
default NULL, because an event may lack columns, and so that a schema stays readable after columns are added or
dropped. Columns of the key may not be NULL. Sources: Debezium's documentation of "Avro serialization"; Avro's
specification, "Logical Types".
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from cdc.formats.avro_names import avro_name, avro_names
from cdc.formats.debezium import to_envelope
from cdc.model.event import ChangeEvent, Row
from cdc.model.schema import Column, TableSchema
from cdc.model.types import SPATIAL, Kind, LogicalType

Schema = dict[str, Any]
_EPOCH = dt.datetime(1970, 1, 1)
_DAY = dt.date(1970, 1, 1).toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)
_UNSIGNED_DIGITS = 20
TYPES: Mapping[Kind, str] = {
    "bool": "boolean", "int8": "int", "int16": "int", "int32": "int", "int64": "long", "uint64": "decimal(20, 0)",
    "decimal": "decimal(precision, scale)", "float32": "float", "float64": "double", "date": "date",
    "datetime": "local-timestamp-micros", "timestamp": "timestamp-micros", "time": "string", "string": "string",
    "json": "string", "bytes": "bytes", "list": "array", "point": "record (x, y, wkb, srid)",
    "geometry": "record (wkb, srid)",
}  # fmt: skip
_PLAIN: Mapping[str, Any] = {
    "date": {"type": "int", "logicalType": "date"},
    "datetime": {"type": "long", "logicalType": "local-timestamp-micros"},
    "timestamp": {"type": "long", "logicalType": "timestamp-micros"},
    "uint64": {"type": "bytes", "logicalType": "decimal", "precision": _UNSIGNED_DIGITS, "scale": 0},
}
_SOURCE = (
    ("version", "string"), ("connector", "string"), ("name", "string"), ("ts_ms", "long"), ("snapshot", "string"),
    ("db", "string"), ("table", "string"), ("server_id", "long"), ("gtid", ["null", "string"]), ("file", "string"),
    ("pos", "long"), ("row", "long"), ("sequence", "long"), ("partial", "boolean"), ("last_update_only", "boolean"),
    ("exact", "long"), ("inexact_after", "long"),
)  # fmt: skip
_ABSENT = {"partial": False, "last_update_only": False, "exact": 0, "inexact_after": 0}
_TRANSACTION = (("id", "string"), ("total_order", "long"), ("data_collection_order", "long"))


class AvroEnvelopes:
    """The keys and envelopes of one table under one schema, for one topic.

    `key` and `value` are Avro schemas. `key_of` and `value_of` return the values that fastavro writes under them.
    """

    def __init__(self, schema: TableSchema, topic: str) -> None:
        namespace = ".".join(avro_name(part) for part in topic.split("."))
        self._columns = _named(schema.columns)
        by_column = {column.name: name for name, column, _ in self._columns}
        self._key = [(by_column[name], name, column) for name in schema.primary_key if (column := schema.column(name))]
        self._key_values = [(name, of, avro_writer(column.type)) for name, of, column in self._key]
        self.key = _record(
            f"{namespace}.Key", [(name, avro_type(column.type, namespace)) for name, _, column in self._key]
        )
        self.value = self._envelope(namespace)

    def _envelope(self, namespace: str) -> Schema:
        defined = set[str]()
        fields = []
        for name, column, _ in self._columns:
            type_ = avro_type(column.type, namespace, defined)
            fields.append({"name": name, "type": ["null", type_], "default": None})
        row = {"type": "record", "name": f"{namespace}.Value", "fields": fields}
        return {
            "type": "record",
            "name": f"{namespace}.Envelope",
            "fields": [
                {"name": "before", "type": ["null", row], "default": None},
                {"name": "after", "type": ["null", f"{namespace}.Value"], "default": None},
                {"name": "source", "type": _record(f"{namespace}.Source", _SOURCE)},
                {"name": "op", "type": "string"},
                {"name": "ts_ms", "type": ["null", "long"], "default": None},
                {
                    "name": "transaction",
                    "type": ["null", _record(f"{namespace}.Block", _TRANSACTION)],
                    "default": None,
                },
            ],
        }

    def key_of(self, row: Row) -> dict[str, Any]:
        """Return the key of a row."""
        return {name: write(row[column]) for name, column, write in self._key_values}

    def value_of(self, event: ChangeEvent, topology: str) -> dict[str, Any]:
        """Return the envelope of an event. `topology` is the first part of `source.name`."""
        envelope = to_envelope(event, topology)
        return {
            **envelope,
            "before": self._row(event.before),
            "after": self._row(event.after),
            "source": _ABSENT | envelope["source"],
        }

    def _row(self, row: Row | None) -> dict[str, Any] | None:
        if row is None:
            return None
        values = ((name, row.get(column.name), write) for name, column, write in self._columns)
        return {name: None if value is None else write(value) for name, value, write in values}


def avro_type(kind: LogicalType, namespace: str, defined: set[str] | None = None) -> Any:
    """Return the Avro type of a column. `defined` are the records that the schema defines already; new ones are
    added."""
    if kind.element is not None:
        return {"type": "array", "items": avro_type(kind.element, namespace, defined)}
    if kind.kind in SPATIAL:
        name = f"{namespace}.{kind.kind.capitalize()}"
        if defined is not None and name in defined:
            return name
        if defined is not None:
            defined.add(name)
        place = (("x", "double"), ("y", "double")) if kind.kind == "point" else ()
        return _record(name, [*place, ("wkb", "bytes"), ("srid", ["null", "int"])])
    if kind.kind == "decimal":
        return {"type": "bytes", "logicalType": "decimal", "precision": kind.precision, "scale": kind.scale}
    return _PLAIN.get(kind.kind) or TYPES[kind.kind]


def avro_writer(kind: LogicalType) -> Callable[[Any], Any]:
    """Return a function from the canonical value of a type to fastavro's; not called for NULL."""
    if kind.element is not None:
        write = avro_writer(kind.element)
        return lambda value: [write(one) for one in value]
    match kind.kind:
        case "decimal" | "uint64":
            return Decimal
        case "float32" | "float64":
            return float
        case "date":
            return lambda value: dt.date.fromisoformat(value.removesuffix("Z")).toordinal() - _DAY
        case "datetime" | "timestamp":
            return lambda value: (dt.datetime.fromisoformat(value.removesuffix("Z")) - _EPOCH) // _MICROSECOND
        case "bytes":
            return base64.b64decode
        case "point" | "geometry":
            return lambda value: {**value, "wkb": base64.b64decode(value["wkb"])}
        case _:
            return lambda value: value


def _named(columns: tuple[Column, ...]) -> list[tuple[str, Column, Callable[[Any], Any]]]:
    names = avro_names(column.name for column in columns)
    return [(name, column, avro_writer(column.type)) for name, column in zip(names, columns, strict=True)]


def _record(name: str, fields: Any) -> Schema:
    return {"type": "record", "name": name, "fields": [{"name": field, "type": type_} for field, type_ in fields]}
