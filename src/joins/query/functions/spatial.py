"""Define functions of geometries: ST_X, ST_Y, ST_Longitude, ST_Latitude, ST_SRID, ST_AsText (ST_AsWKT).

A geometry's value is its EWKT (`cdc.model.geometry`), so each function is a text operation with the same result in
Spark
and DuckDB. ST_X is the first stored coordinate, which is the longitude for a geographic SRID. MySQL 8 returns the
latitude instead, as that SRID's definition lists it first; MariaDB returns the longitude.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp

from joins.query.expressions import ExpressionCompiler, Function
from joins.query.typed import Typed, escaped, refuse
from joins.query.value_types import FLOAT64, INT64, STRING, family

_POINT = "^(SRID=[0-9]+;)?POINT[(]([^ ]+) ([^)]+)[)]$"
_SRID = "^SRID=([0-9]+);"


class StX(exp.Expression, exp.Func):
    """The syntax node of `ST_X(point)` and `ST_Longitude(point)`."""

    arg_types: ClassVar = {"this": True}
    _sql_names: ClassVar = ["ST_X", "ST_LONGITUDE"]


class StY(exp.Expression, exp.Func):
    """The syntax node of `ST_Y(point)` and `ST_Latitude(point)`."""

    arg_types: ClassVar = {"this": True}
    _sql_names: ClassVar = ["ST_Y", "ST_LATITUDE"]


class StSrid(exp.Expression, exp.Func):
    """The syntax node of `ST_SRID(geometry)`."""

    arg_types: ClassVar = {"this": True}
    _sql_names: ClassVar = ["ST_SRID"]


class StAsText(exp.Expression, exp.Func):
    """The syntax node of `ST_AsText(geometry)` and `ST_AsWKT(geometry)`."""

    arg_types: ClassVar = {"this": True}
    _sql_names: ClassVar = ["ST_ASTEXT", "ST_ASWKT"]


_NODES = {name: node for node in (StX, StY, StSrid, StAsText) for name in node._sql_names}


def renamed(statement: exp.Expr) -> exp.Expr:
    """Return the statement with its geometry calls, which sqlglot does not know, replaced by the node types here."""
    top = exp.Paren(this=statement)
    for node in list(top.find_all(exp.Anonymous)):
        kind = _NODES.get(node.name.upper())
        if kind is not None and len(node.expressions) == 1:
            node.replace(kind(this=node.expressions[0]))
    inner: exp.Expr = top.this
    inner.pop()
    return inner


def spark_sql(node: exp.Expr, value: str) -> str:
    """Return Spark SQL of a geometry function. `value` is SQL that yields the geometry's EWKT text.

    The result is NULL for NULL, and for a coordinate of a geometry that is not a point."""
    if isinstance(node, StAsText):
        return f"regexp_replace({value}, {escaped(_SRID)}, '')"
    if isinstance(node, StSrid):
        found = f"coalesce(try_cast(regexp_extract({value}, {escaped(_SRID)}, 1) AS BIGINT), CAST(0 AS BIGINT))"
        return f"CASE WHEN {value} IS NOT NULL THEN {found} END"
    return f"try_cast(regexp_extract({value}, {escaped(_POINT)}, {2 if isinstance(node, StX) else 3}) AS DOUBLE)"


def _compiled(compiler: ExpressionCompiler, node: exp.Expr) -> Typed:
    typed = compiler.compile(node.this)
    if family(typed.type) not in ("geometry", "null"):
        refuse(node, f"{typed.type} in {node.sql('spark')}", "a column of a spatial type, such as POINT")
    result = STRING if isinstance(node, StAsText) else INT64 if isinstance(node, StSrid) else FLOAT64
    value = typed.sql if typed.type.kind in ("point", "geometry") else "CAST(NULL AS STRING)"
    return Typed(sql=spark_sql(node, value), type=result, failed=typed.failed)


SPATIAL_FUNCTIONS: dict[type[exp.Expr], Function] = dict.fromkeys((StX, StY, StSrid, StAsText), _compiled)
