"""Aggregates as Spark and this project mean them, in the words of DuckDB: a query's tree, rewritten for the oracle.

Where DuckDB means something else its answer is asked for in other words: sums have Spark's types, means of decimals are
decimals (rounded half up) as quotients are, a tie of `max_by` ends by the greater value and one of `min_by` by the
smaller, lists are ordered by their values.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import sqlglot
from sqlglot import exp

from cdc.words.types import LogicalType
from joins.query.value_types import INT32, INT64, arithmetic

# Decimals are counted without their point: `whole` takes it away, `pointed` sets it again. A sum of such numbers comes
# in two parts, since it may not fit 38 digits: it is NULL then. A quotient is rounded half up.
MACROS = """
CREATE OR REPLACE MACRO ten(digits) AS CAST(rpad('1', CAST(digits + 1 AS INTEGER), '0') AS HUGEINT);
CREATE OR REPLACE MACRO whole(x) AS CAST(replace(CAST(x AS VARCHAR), '.', '') AS HUGEINT);
CREATE OR REPLACE MACRO fitting(high, low) AS CASE WHEN abs(high + low // ten(19)) <= ten(19) THEN
    CASE WHEN abs(high * ten(19) + low) < ten(38) THEN high * ten(19) + low END END;
CREATE OR REPLACE MACRO divided(a, b, digits) AS CASE WHEN b <> 0 THEN sign(a) * sign(b) * (
    abs(a) // abs(b) * ten(digits) + (abs(a) % abs(b) * ten(digits) * 2 + abs(b)) // (2 * abs(b))) END;
CREATE OR REPLACE MACRO pointed(x, digits) AS CASE WHEN x < 0 THEN '-' ELSE '' END
    || CAST(abs(x) // ten(digits) AS VARCHAR) || '.'
    || lpad(CAST(abs(x) % ten(digits) AS VARCHAR), CAST(digits AS INTEGER), '0');
"""
TypesOf = Callable[[exp.Select, list[exp.Expr]], list[str]]
_NAMES = {"every": exp.LogicalAnd, "some": exp.LogicalOr, "mean": exp.Avg}
_KINDS: dict[type[exp.Expr], str] = {exp.LogicalAnd: "BOOL_AND", exp.LogicalOr: "BOOL_OR", exp.Any: "BOOL_OR"}


def rewritten(query: exp.Expr, types_of: TypesOf) -> exp.Expr:
    """The query, which it changes; `types_of` tells DuckDB's types of some expressions of a SELECT."""
    for select in reversed(list(query.find_all(exp.Select))):  # the innermost first: its columns have their types then
        for node in list(_own(select, exp.Anonymous)):
            if node.name.lower() in _NAMES:
                node.replace(_NAMES[node.name.lower()](this=node.expressions[0]))
        aggregates = list(_own(select, exp.AggFunc, exp.Any))
        for node in aggregates:
            _quotients(node, select, types_of)
        for node in aggregates:
            _replace(node, _aggregate(node, select, types_of))
        _quotients(select, select, types_of)
    return query


def _own(select: exp.Select, *kinds: type[exp.Expr]) -> Iterator[exp.Expr]:
    """Nodes of a SELECT without those of the SELECTs within it."""
    return (node for node in select.find_all(*kinds) if node.find_ancestor(exp.Select) is select)


def _replace(node: exp.Expr, text: str | None) -> None:
    """Put DuckDB's SQL in the place of an aggregate with its FILTER."""
    if text is not None:
        whole = node.parent if isinstance(node.parent, exp.Filter) else node
        whole.replace(exp.Paren(this=sqlglot.parse_one(text, read="duckdb")))


def _aggregate(node: exp.Expr, select: exp.Select, types_of: TypesOf) -> str | None:
    """DuckDB's SQL of an aggregate; None where it means the same as it is."""
    distinct = isinstance(node.this, exp.Distinct)
    argument = node.this.expressions[0] if distinct else node.this
    x = argument.sql("duckdb")
    only = "DISTINCT " if distinct else ""
    filter_ = node.parent.expression.this.sql("duckdb") if isinstance(node.parent, exp.Filter) else "TRUE"
    where = f"FILTER (WHERE {filter_})"
    match node:
        case exp.ArgMax() | exp.ArgMin():
            y = node.expression.sql("duckdb")
            order = "DESC NULLS LAST" if isinstance(node, exp.ArgMax) else "NULLS FIRST"
            return f"(list({x} ORDER BY {y} {order}, {x} {order}) FILTER (WHERE {y} IS NOT NULL AND ({filter_})))[1]"
        case exp.ArrayAgg() | exp.ArrayUniqueAgg():
            only = "DISTINCT " if distinct or isinstance(node, exp.ArrayUniqueAgg) else ""
            return f"coalesce(list({only}{x} ORDER BY {x}) FILTER (WHERE {x} IS NOT NULL AND ({filter_})), [])"
        case exp.CountIf():
            return f"count(*) FILTER (WHERE ({x}) AND ({filter_}))"
        case exp.LogicalAnd() | exp.LogicalOr() | exp.Any():
            return f"{_KINDS[type(node)]}({x}) {where}"
        case exp.Sum() | exp.Avg():
            type_ = _type(types_of(_rows(select), [argument])[0])
            if type_ is None or type_.kind != "decimal":
                if isinstance(node, exp.Avg):
                    return f"avg({only}{x}) {where}"
                return f"sum({only}{x}) {where}" if type_ is None else f"TRY_CAST(sum({only}{x}) {where} AS BIGINT)"
            high, low = (f"sum(whole({x}) {part} ten(19)) {where}" for part in ("//", "%"))
            if distinct:
                high, low = (f"sum(DISTINCT whole({x})) {where} {part} ten(19)" for part in ("//", "%"))
            if isinstance(node, exp.Sum):
                precision, scale = min(38, type_.precision + 10), type_.scale
                return f"CAST(pointed(fitting({high}, {low}), {scale}) AS DECIMAL({precision}, {scale}))"
            precision, scale = min(38, type_.precision + 4), min(38, type_.scale + 4)
            to = LogicalType(kind="decimal", precision=precision, scale=scale)
            return _divided(f"fitting({high}, {low})", f"count({only}{x}) {where}", to.scale - type_.scale, to)
    return None


def _quotients(within: exp.Expr, select: exp.Select, types_of: TypesOf) -> None:
    """A quotient of decimals is one, exact as far as Spark's type goes; of all else a double."""
    for node in reversed([node for node in _own(select, exp.Div) if within in (select, *_parents(node, select))]):
        sides = [node.this.unnest(), node.expression.unnest()]
        a, b = map(_type, types_of(select if node.find(exp.AggFunc) else _rows(select), sides))
        if a is None or b is None or "decimal" not in (a.kind, b.kind):
            continue
        a, b = _literal(sides[0]) or a, _literal(sides[1]) or b
        to = arithmetic("try_divide", a, b)
        assert to is not None
        first, second = (f"whole({side.sql('duckdb')})" for side in sides)
        text = _divided(first, second, to.scale - a.scale + b.scale, to)
        node.replace(exp.Paren(this=sqlglot.parse_one(text, read="duckdb")))


def _divided(a: str, b: str, digits: int, to: LogicalType) -> str:
    return f"CAST(pointed(divided({a}, {b}, {digits}), {to.scale}) AS DECIMAL({to.precision}, {to.scale}))"


def _rows(select: exp.Select) -> exp.Select:
    """A SELECT of the same tables that groups nothing."""
    bare = select.copy()
    for key in ("group", "having", "distinct"):
        bare.set(key, None)
    return bare


def _parents(node: exp.Expr, top: exp.Expr) -> Iterator[exp.Expr]:
    while node is not top and node.parent is not None:
        node = node.parent
        yield node


def _literal(node: exp.Expr) -> LogicalType | None:
    """Spark gives a whole number beside a decimal no more digits than it has."""
    if isinstance(node, exp.Literal) and node.is_int:
        return LogicalType(kind="decimal", precision=len(node.name), scale=0)
    return None


def _type(name: str) -> LogicalType | None:
    """A type of DuckDB's where it counts exactly; None for all others. Integers beyond a BIGINT are decimals."""
    if found := re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", name):
        return LogicalType(kind="decimal", precision=int(found[1]), scale=int(found[2]))
    if name == "UBIGINT":
        return LogicalType(kind="decimal", precision=20, scale=0)
    if name in ("BIGINT", "HUGEINT", "UINTEGER"):
        return INT64
    return INT32 if name in ("INTEGER", "SMALLINT", "TINYINT", "USMALLINT", "UTINYINT") else None
