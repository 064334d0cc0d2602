"""Compute the expected content of a joined table: run its SELECT over the source tables in DuckDB."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from struct import iter_unpack
from typing import Any

import duckdb
import pyarrow as pa

from cdc.model.errors import Skippable
from cdc.model.geometry import NoGeometry, ewkt_of, point_of, struct_of
from cdc.model.schema import TableId
from cdc.model.types import SPATIAL, Canonical, Kind, LogicalType
from cdc.topology.topology import Table, Topology
from ingest.binlog.format.canonical import json_text
from joins.oracle.duckdb_query import moment_text, question
from joins.oracle.sql_functions import Functions, arrow_type
from joins.oracle.sql_oracle import prepare, rows_of
from joins.query.value_types import MOST_DIGITS
from tailorbird.verify.mysql_tables import SourceTable


@dataclass(frozen=True, slots=True, kw_only=True)
class OracleAnswer:
    """The rows of a query's result, with canonical values by column.

    The `unknown` columns are left out, each for the given reason: DuckDB may compute other values than the join."""

    rows: list[dict[str, Canonical]]
    unknown: Mapping[str, str]


def answer(
    topology: Topology, table: Table, sources: Mapping[TableId, SourceTable], clock_ms: int | None = None
) -> OracleAnswer:
    """Return the result of a joined table's query over the given source tables. Raises KeyError if one is missing.

    `clock_ms` is what `now()` means; without it, the result of a query with `now()` is unknown.

    Raises Skippable if the whole result is unknown: DuckDB reports an error, or an expression that selects rows
    cannot be evaluated with certainty. A query with ROW_NUMBER() needs the schemas of its tables."""
    names = {table_id: f"source_{n}" for n, table_id in enumerate(sources)}
    columns = {table_id: dict(source.columns) for table_id, source in sources.items()}
    schemas = {table_id: schema for table_id, source in sources.items() if (schema := source.schema) is not None}
    now = "" if clock_ms is None else moment_text(clock_ms)
    asked = question(topology, table, names, columns, schemas, now)
    try:
        with duckdb.connect() as database:
            prepare(database)
            functions = Functions(database)
            functions.register(asked.functions)
            for table_id, name in names.items():
                database.register(name, _arrow(sources[table_id]))
            rows, reasons = rows_of(database.execute(asked.sql), asked), functions.reasons
    except (duckdb.Error, pa.ArrowException, ValueError, OverflowError, ArithmeticError) as error:
        raise Skippable(f"DuckDB cannot answer its query: {_first_line(error)}", "nothing was compared") from None
    whole, unknown = asked.unknown(reasons)
    if whole or (missing := [name for name in table.row_key if name in unknown]):
        why = whole or unknown[missing[0]]
        raise Skippable(f"its set of rows depends on {why}", "nothing was compared")
    kept = [{name: value for name, value in row.items() if name not in unknown} for row in rows] if unknown else rows
    return OracleAnswer(rows=kept, unknown=unknown)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def duration(value: dt.timedelta) -> str:
    """Return the canonical TIME text of a duration, which the database driver returns for TIME."""
    micros = value // dt.timedelta(microseconds=1)
    seconds, fraction = divmod(abs(micros), 1_000_000)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"
    digits = f".{fraction:06d}".rstrip("0") if fraction else ""
    return ("-" if micros < 0 else "") + text + digits


def _arrow(table: SourceTable) -> Any:
    """Return the rows that the source publishes as Arrow. Rows whose key cannot be represented are dead letters and
    missing."""
    columns = list(zip(*table.rows, strict=True)) or [()] * len(table.columns)
    found = {
        name: values if type_.kind == "json" and table.json_as_logged else _arrow_values(values, type_)
        for (name, type_), values in zip(table.columns, columns, strict=True)
    }
    made = pa.table({name: pa.array(found[name], arrow_type(type_)) for name, type_ in table.columns})
    keys = [found[name] for name in (table.schema.primary_key if table.schema else ()) if name in found]
    if any(None in key for key in keys):
        made = made.filter(pa.array([None not in key for key in zip(*keys, strict=True)]))
    return made


def _arrow_values(values: Sequence[Any], type_: LogicalType) -> Sequence[Any]:
    """Convert values of the database driver to values that Arrow accepts.

    MySQL's driver returns booleans as numbers, SET values as sets, JSON with blanks, and TIME as a duration. Arrow
    has no decimals of more than 38 digits."""
    convert = _CONVERTED.get(type_.kind)
    if type_.kind == "decimal" and type_.precision > MOST_DIGITS:
        convert = partial(_digits, scale=type_.scale)
    return values if convert is None else [None if value is None else convert(value) for value in values]


def _ewkt(value: bytes | str) -> str | None:
    """Return the EWKT text of MySQL's binary geometry or PostgreSQL's printed point. None if it has no canonical
    form."""
    try:
        if isinstance(value, bytes):
            return ewkt_of(struct_of(value, point=False))
        x, y = value.strip("()").split(",")
        return ewkt_of(point_of(float(x), float(y)))
    except NoGeometry:
        return None


def _numbers(value: str) -> list[float]:
    """Return the numbers in a VECTOR value of MySQL's driver."""
    return [n for (n,) in iter_unpack("<f", bytes.fromhex(value))]


def _digits(value: Any, *, scale: int) -> str:
    return f"{value:.{scale}f}"


def _moment(value: Any) -> Any:
    return None if isinstance(value, str) else value  # MySQL's driver returns an invalid date as text


def _text(value: Any) -> str:
    return ",".join(value) if isinstance(value, set | frozenset) else value


_CONVERTED: dict[Kind, Callable[[Any], Any]] = {
    "bool": bool,
    "string": _text,
    "json": json_text,
    "list": _numbers,
    **dict.fromkeys(("date", "datetime", "timestamp"), _moment),
    **dict.fromkeys(SPATIAL, _ewkt),
    "time": lambda value: duration(value) if isinstance(value, dt.timedelta) else value,
}
