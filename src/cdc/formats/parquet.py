"""Changes as rows of Parquet: one column per column of the table, and `_op`, `_ts`, `_sequence`, `_gtid` of the change.

A row is the image after the change, for a delete the image before it. Types are Parquet's own if they can represent
every value (`TYPES`). Needs pyarrow (`tailorbird[formats]`).
"""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from cdc.model.event import ChangeEvent
from cdc.model.schema import TableSchema
from cdc.model.types import SPATIAL, Kind, LogicalType, float_of

_EPOCH = dt.datetime(1970, 1, 1)
_DAY = dt.date(1970, 1, 1)
_WIDEST = 76  # digits of a 256-bit decimal
TYPES: dict[Kind, str] = {
    "bool": "bool", "int8": "int8", "int16": "int16", "int32": "int32", "int64": "int64", "uint64": "uint64",
    "decimal": "decimal(precision, scale)", "float32": "float", "float64": "double", "date": "date32",
    "datetime": "timestamp(us)", "timestamp": "timestamp(us, UTC)", "time": "string", "string": "string",
    "json": "string", "bytes": "binary", "list": "list",
    "point": "struct(x, y, wkb, srid)", "geometry": "struct(wkb, srid)",
}  # fmt: skip
OPERATIONS = {"c": "insert", "r": "read", "u": "update", "d": "delete", "t": "truncate"}


def arrow_type(kind: LogicalType) -> Any:
    """Return the column type. TIME becomes a string, because it may be longer than a day, or negative."""
    import pyarrow as pa

    plain = {
        "bool": pa.bool_(), "int8": pa.int8(), "int16": pa.int16(), "int32": pa.int32(), "int64": pa.int64(),
        "uint64": pa.uint64(), "float32": pa.float32(), "float64": pa.float64(), "date": pa.date32(),
        "datetime": pa.timestamp("us"), "timestamp": pa.timestamp("us", tz="UTC"), "bytes": pa.binary(),
    }  # fmt: skip
    if kind.element is not None:
        return pa.list_(arrow_type(kind.element))
    if kind.kind in SPATIAL:
        fields = [("wkb", pa.binary()), ("srid", pa.int64())]
        return pa.struct([*([("x", pa.float64()), ("y", pa.float64())] if kind.kind == "point" else []), *fields])
    if kind.kind == "decimal":
        assert kind.precision <= _WIDEST, "MySQL's have 65 digits"
        return (
            pa.decimal256(kind.precision, kind.scale)
            if kind.precision > 38
            else pa.decimal128(kind.precision, kind.scale)
        )
    return plain.get(kind.kind, pa.string())


def parquet_writer(kind: LogicalType) -> Callable[[Any], Any]:
    """Return a function from the canonical value of a type to pyarrow's; not called for NULL."""
    if kind.element is not None:
        report = parquet_writer(kind.element)
        return lambda value: [report(one) for one in value]
    match kind.kind:
        case "decimal":
            return Decimal
        case "float32" | "float64":
            return float
        case "date":
            return lambda value: dt.date.fromisoformat(value.removesuffix("Z"))
        case "datetime":
            return lambda value: dt.datetime.fromisoformat(value.removesuffix("Z"))
        case "timestamp":
            return lambda value: dt.datetime.fromisoformat(value.removesuffix("Z")).replace(tzinfo=dt.UTC)
        case "bytes":
            return base64.b64decode
        case "point" | "geometry":
            return lambda value: {**value, "wkb": base64.b64decode(value["wkb"])}
        case _:
            return lambda value: value


def parquet_reader(kind: LogicalType) -> Callable[[Any], Any]:
    """Return the inverse function of `parquet_writer`."""
    if kind.element is not None:
        convert = parquet_reader(kind.element)
        return lambda value: [convert(one) for one in value]
    match kind.kind:
        case "decimal":
            return lambda value: f"{value:f}"
        case "float32" | "float64":
            return float_of
        case "date":
            return lambda value: f"{value.isoformat()}Z"
        case "datetime" | "timestamp":
            return _moment
        case "bytes":
            return lambda value: base64.b64encode(value).decode()
        case "point" | "geometry":
            return lambda value: {**value, "wkb": base64.b64encode(value["wkb"]).decode()}
        case _:
            return lambda value: value


def _moment(value: dt.datetime) -> str:
    text = value.replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


class ParquetRows:
    """Converts changes of one table under one schema to the bytes of Parquet files. Raises UsageError without
    pyarrow."""

    def __init__(self, schema: TableSchema) -> None:
        from cdc.model.extras import extras_named

        with extras_named("formats"):
            import pyarrow as pa
        self._columns = [(one.name, parquet_writer(one.type)) for one in schema.columns]
        own = [
            ("_op", pa.string()),
            ("_ts", pa.timestamp("ms", tz="UTC")),
            ("_sequence", pa.int64()),
            ("_gtid", pa.string()),
        ]
        self.schema: Any = pa.schema(
            [*((one.name, arrow_type(one.type)) for one in schema.columns), *own],
            metadata={
                "database": schema.table_id.database,
                "table": schema.table_id.table,
                "version": str(schema.version),
            },
        )

    def file(self, events: Sequence[ChangeEvent]) -> bytes:
        """Return the bytes of one Parquet file with these changes, in order."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [(event.after if event.after is not None else event.before) or {} for event in events]
        values = [
            [None if row.get(name) is None else report(row[name]) for row in rows] for name, report in self._columns
        ]  # fmt: skip
        own = [
            [OPERATIONS[event.op] for event in events],
            [event.source.ts_ms for event in events],
            [event.source.sequence for event in events],
            [event.source.gtid for event in events],
        ]
        arrays = [pa.array(column, type=field.type) for column, field in zip([*values, *own], self.schema, strict=True)]
        out = pa.BufferOutputStream()
        pq.write_table(pa.Table.from_arrays(arrays, schema=self.schema), out, compression="zstd")
        data: bytes = out.getvalue().to_pybytes()
        return data
