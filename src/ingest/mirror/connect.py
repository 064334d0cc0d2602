"""Convert Kafka Connect's inline schemas, as Debezium writes them, to columns and value readers.

Source: Debezium's documentation of its connectors' data types. Names of logical types are Debezium's and Connect's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import orjson

from cdc.model.types import Canonical
from ingest.ddl.catalog import ColumnDefinition
from ingest.mirror import values
from ingest.mirror.values import Read, fixed

_CONNECT, _TIME, _DATA = "org.apache.kafka.connect.data", "io.debezium.time", "io.debezium.data"
# Types without a logical name: (column type, reader of values).
PLAIN: Mapping[str, tuple[str, Read]] = {
    "int8": ("tinyint", values.whole),
    "int16": ("smallint", values.whole),
    "int32": ("int", values.whole),
    "int64": ("bigint", values.whole),
    "float": ("float", values.number),
    "float32": ("float", values.number),
    "double": ("double", values.number),
    "float64": ("double", values.number),
    "boolean": ("bit(1)", values.flag),
    "string": ("longtext", values.text),
    "bytes": ("longblob", values.text),
}
LOGICAL: Mapping[str, tuple[str, Read]] = {
    f"{_CONNECT}.Date": ("date", values.day),
    f"{_TIME}.Date": ("date", values.day),
    f"{_TIME}.IsoDate": ("date", values.day),
    f"{_CONNECT}.Timestamp": ("datetime(3)", values.moment(1)),
    f"{_TIME}.Timestamp": ("datetime(3)", values.moment(1)),
    f"{_TIME}.MicroTimestamp": ("datetime(6)", values.moment(1000)),
    f"{_TIME}.NanoTimestamp": ("datetime(6)", values.moment(1_000_000)),
    f"{_TIME}.IsoTimestamp": ("datetime(6)", values.moment(1)),
    f"{_TIME}.ZonedTimestamp": ("timestamp(6)", values.moment(1)),
    f"{_CONNECT}.Time": ("time(3)", lambda value: values.clock(value, 1000)),
    f"{_TIME}.Time": ("time(3)", lambda value: values.clock(value, 1000)),
    f"{_TIME}.MicroTime": ("time(6)", values.clock),
    f"{_TIME}.NanoTime": ("time(6)", lambda value: values.clock(value // 1000)),
    f"{_TIME}.IsoTime": ("time(6)", values.clock),
    f"{_TIME}.ZonedTime": ("longtext", values.text),
    f"{_TIME}.Year": ("year", values.whole),
    f"{_DATA}.Json": ("json", values.json_text),
    f"{_DATA}.Uuid": ("char(36)", values.text),
    f"{_DATA}.FloatVector": ("vector", values.floats),
    f"{_DATA}.geometry.Geometry": ("geometry", values.geometry),
    f"{_DATA}.geometry.Geography": ("geometry", values.geometry),
    f"{_DATA}.geometry.Point": ("point", values.geometry),
}


def columns_of(
    fields: Sequence[Mapping[str, Any]],
) -> tuple[tuple[ColumnDefinition, ...], tuple[tuple[str, Read], ...]]:
    """Return the columns of a row's struct, and a value reader for each. Raises KeyError or TypeError if it is not a
    struct."""
    columns, reads = [], []
    for field in fields:
        column_type, read = _typed(field)
        name = str(field["field"])
        nullable = bool(field.get("optional", False))
        columns.append(ColumnDefinition(name=name, column_type=column_type, nullable=nullable, charset=None))
        reads.append((name, read))
    return tuple(columns), tuple(reads)


def _typed(field: Mapping[str, Any]) -> tuple[str, Read]:
    name, parameters = field.get("name", ""), field.get("parameters", {})
    if name == f"{_CONNECT}.Decimal":
        scale, precision = int(parameters["scale"]), int(parameters.get("connect.decimal.precision", 65))
        if 0 <= scale <= 30 and precision <= 65:
            return f"decimal({max(precision, scale)},{scale})", values.precise(scale)
        return "longtext", values.precise(max(scale, 0))
    if name == f"{_DATA}.VariableScaleDecimal":
        return "longtext", _variable
    if name in LOGICAL:
        return LOGICAL[name]
    kind = field["type"]
    if kind in PLAIN:
        return PLAIN[kind]
    return ("json", _dumped) if kind in ("array", "map") else ("longtext", _dumped)


def _variable(value: Any) -> str:
    unscaled = values.precise(0)(value["value"])
    scale = int(value["scale"])
    return fixed(Decimal(str(unscaled)).scaleb(-scale), max(scale, 0))


def _dumped(value: Any) -> Canonical:
    return value if isinstance(value, str) else orjson.dumps(value).decode()
