"""The same SELECT over the source tables, answered by DuckDB: what the far end of the pipeline must equal."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from struct import iter_unpack
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp

from cdc.topology.topology import Table, Topology
from cdc.words.geometry import ewkt_of, point_of, struct_of
from cdc.words.schema import TableId
from cdc.words.types import SPATIAL, Canonical, Kind, LogicalType
from console.verify.mysql_tables import SourceTable
from joins.truth.question import question, typed
from joins.truth.sql_evaluate import canonical as joins_canonical
from joins.truth.sql_oracle import prepare

_ARROW: dict[Kind, Any] = {
    "bool": pa.bool_(),
    "int8": pa.int8(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "uint64": pa.uint64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "date": pa.date32(),
    "datetime": pa.timestamp("us"),
    "timestamp": pa.timestamp("us"),
    "string": pa.string(),
    "json": pa.string(),
    "time": pa.duration("us"),
    "bytes": pa.binary(),
    "point": pa.string(),
    "geometry": pa.string(),
    "list": pa.list_(pa.float32()),
}


def answer(topology: Topology, table: Table, sources: Mapping[TableId, SourceTable]) -> list[dict[str, Canonical]]:
    """Rows of an aggregated table's query, canonical values by output column; KeyError for a table not given.

    A query that numbers rows needs its tables' schemas.
    """
    names = {table_id: f"source_{n}" for n, table_id in enumerate(sources)}
    with duckdb.connect() as database:
        prepare(database)
        for table_id, name in names.items():
            database.register(name, _arrow(sources[table_id]))

        def types_of(select: exp.Select, expressions: list[exp.Expr]) -> list[str]:
            return [str(row[1]) for row in database.execute(f"DESCRIBE {typed(select, expressions)}").fetchall()]

        schemas = {table_id: schema for table_id, source in sources.items() if (schema := source.schema) is not None}
        cursor = database.execute(question(topology, table, names, types_of, schemas))
        columns = [description[0] for description in cursor.description or []]
        return [dict(zip(columns, map(canonical, row), strict=True)) for row in cursor.fetchall()]


def canonical(value: Any) -> Canonical:
    """Canonical form (`cdc.words.types`) of a value of DuckDB; here TIME is an interval, which the joins keep as
    text.
    """
    if isinstance(value, list):
        return [canonical(member) for member in value]  # type: ignore[misc]  # a list has no NULL and no list in it
    return _duration(value) if isinstance(value, dt.timedelta) else joins_canonical(value)


def _duration(value: dt.timedelta) -> str:
    micros = value // dt.timedelta(microseconds=1)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    digits = f".{fraction:06d}".rstrip("0") if fraction else ""
    return ("-" if micros < 0 else "") + text + digits


def _arrow(table: SourceTable) -> Any:
    """The rows that the source publishes: one whose key cannot be represented is a dead-letter record."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    found = {
        name: _arrow_values(values, type_) for (name, type_), values in zip(table.columns, columns, strict=True)
    }  # fmt: skip
    made = pa.table({name: pa.array(found[name], _arrow_type(type_)) for name, type_ in table.columns})
    keys = [found[name] for name in (table.schema.primary_key if table.schema else ()) if name in found]
    if any(None in key for key in keys):
        made = made.filter(pa.array([None not in key for key in zip(*keys, strict=True)]))
    return made


def _arrow_values(values: Sequence[Any], type_: LogicalType) -> Sequence[Any]:
    """What Arrow takes: MySQL has no booleans but numbers, and sets that the driver gives as sets."""
    if type_.kind == "bool":
        return [None if value is None else bool(value) for value in values]
    if type_.kind in SPATIAL:
        return [None if value is None else _ewkt(value) for value in values]
    if type_.kind == "list":
        return [None if value is None else [n for (n,) in iter_unpack("<f", bytes.fromhex(value))] for value in values]
    if type_.kind in ("date", "datetime", "timestamp"):  # MySQL's driver gives a day that is none as text
        return [None if isinstance(value, str) else value for value in values]
    if type_.kind == "string":
        return [",".join(value) if isinstance(value, set | frozenset) else value for value in values]
    return values


def _ewkt(value: bytes | str) -> str:
    """A geometry as MySQL's driver gives it, or a point of PostgreSQL's as it is printed."""
    if isinstance(value, bytes):
        return ewkt_of(struct_of(value, point=False))
    x, y = value.strip("()").split(",")
    return ewkt_of(point_of(float(x), float(y)))


def _arrow_type(type_: LogicalType) -> Any:
    return pa.decimal128(type_.precision, type_.scale) if type_.kind == "decimal" else _ARROW[type_.kind]
