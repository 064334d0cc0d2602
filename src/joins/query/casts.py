"""Compile casts and literals of dates and times to Spark SQL that never raises."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.typed import Typed, any_of, refuse
from joins.query.value_types import DATETIME, NULL, family, spark_type, type_of_cast


def moment(node: exp.Expr, text: str, *, day: bool) -> Typed:
    """Compile a date literal (`day`) or timestamp literal. Raises Unsupported if `text` is not one."""
    try:
        if day:
            value = dt.date.fromisoformat(text).isoformat()
            return Typed(sql=f"DATE'{value}'", type=LogicalType(kind="date"))
        timestamp = dt.datetime.fromisoformat(text)
        if timestamp.tzinfo is not None:  # all moments are in UTC
            timestamp = timestamp.astimezone(dt.UTC).replace(tzinfo=None)
    except (ValueError, OverflowError):
        refuse(node, f"'{text}' is no {'date' if day else 'timestamp'}", "'2026-01-31' or '2026-01-31 12:00:00'")
    return Typed(sql=f"TIMESTAMP_NTZ'{timestamp.isoformat(sep=' ')}'", type=DATETIME)


def cast(node: exp.Expr, compile_: Callable[[exp.Expr], Typed]) -> Typed:
    """Compile a CAST or TRY_CAST. Raises Unsupported if Spark has no such cast, or ignores a part of it."""
    to = type_of_cast(node.args["to"])
    if to is None:
        refuse(node, f"CAST to {node.args['to'].sql('spark')}", "INT, BIGINT, DECIMAL(p,s), DOUBLE, STRING, DATE, …")
    literal = node.this
    if isinstance(literal, exp.Literal) and literal.is_string and family(to) in ("date", "moment"):
        return moment(node, literal.this, day=family(to) == "date")
    inner = compile_(literal)
    impossible = {"bytes", "geometry"} | ({"date", "moment"} if family(to) in ("number", "bool") else set())
    if (family(inner.type) in impossible and inner.type != to) or (
        family(inner.type) in ("number", "bool") and family(to) in ("date", "moment", "bytes")
    ):
        refuse(node, f"CAST of {inner.type} to {to}", "year(d), month(d), date_format(d, 'yyyyMMdd')")
    sql = f"try_cast({inner.sql} AS {spark_type(to)})"
    if family(inner.type) == "text" and family(to) == "moment":
        # the plain cast ignores an offset; TIMESTAMP, in UTC, applies it, but takes a time alone for one of today
        sql = f"CASE WHEN {sql} IS NOT NULL THEN CAST(try_cast({inner.sql} AS TIMESTAMP) AS TIMESTAMP_NTZ) END"
    # sqlglot reads CAST and TRY_CAST alike; only the latter asks for NULL
    never = inner.type == NULL or node.args.get("safe")
    failure = None if never else f"({sql} IS NULL AND {inner.sql} IS NOT NULL)"
    return Typed(sql=sql, type=to, failed=any_of(inner.failed, failure))
