"""Decide where DuckDB behaves like the join: which values it compares, orders, distinguishes and aggregates alike."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from cdc.model.types import LogicalType
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Result
from joins.query.value_types import INTEGERS, MOST_DIGITS, NULL, family
from joins.select.names import text_of

Deps = frozenset[str]  # names of functions


@dataclass(slots=True)
class Rewritten:
    """An expression in DuckDB's SQL with its type. `deps` are the functions that it depends on."""

    sql: exp.Expr
    type: LogicalType
    deps: Deps = frozenset()


def counted(result: Result, parts: list[Rewritten], descending: Sequence[bool]) -> exp.Expr | None:
    """Return DuckDB's SQL of an aggregate function that both systems compute alike. None if they differ.

    `descending` is the order of the values of its bag, if it has one."""
    texts = [f"({part.sql.sql('duckdb')})" for part in parts]  # NOT binds less than IS NULL
    fields = {
        "all": ", ".join(texts),
        "there": " AND ".join(f"{one} IS NOT NULL" for one in texts),
        "type": f"DECIMAL({result.type.precision}, {result.type.scale})",
        "last": texts[-1] if texts else "",
        "order": ", ".join(
            f"{one} {'DESC NULLS LAST' if turned else 'ASC NULLS FIRST'}"
            for one, turned in zip(texts, descending, strict=False)
        ),
        "turned": "'DESC'" if any(descending[:1]) else "'ASC'",
        "given": exp.Literal.string(result.given[0]).sql("duckdb") if result.given else "",
    }
    types = [part.type for part in parts]
    for native in BY_NAME[result.function].native:
        if _CONDITIONS[native.condition](types):
            return exp.maybe_parse(native.sql.format(*texts, **fields), dialect="duckdb")
    return None


_SHORT = 18  # digits of decimals whose sum DuckDB computes in 38 digits: no realistic number of rows exceeds them


def ordered(type_: LogicalType) -> bool:
    """Return whether DuckDB orders and distinguishes values of a type like the join."""
    if type_.kind == "decimal":
        return 0 < type_.precision <= MOST_DIGITS
    return type_.kind not in ("time", "list", "float32", "float64")


_CONDITIONS: Mapping[str, Callable[[Sequence[LogicalType]], bool]] = {
    "always": lambda types: True,
    "ordered": lambda types: all(map(ordered, types)),
    "integers": lambda types: types[0].kind in INTEGERS,
    "short decimals": lambda types: types[0].kind == "decimal" and types[0].precision <= _SHORT,
}


def alike(types: list[LogicalType]) -> bool:
    """Return whether DuckDB compares values of these types like the join. It does so for one sortable type, integers of
    any width, texts, and dates with time. NULL is ignored."""
    kinds = {type_ for type_ in types if type_ != NULL}
    if not kinds or not all(map(ordered, kinds)):
        return False
    if all(type_.kind in INTEGERS for type_ in kinds):
        return True
    families = {family(type_) for type_ in kinds}
    return len(kinds) == 1 or families in ({"text"}, {"moment"})


def operands(node: exp.Expr) -> list[exp.Expr]:
    match node:
        case exp.In():
            return [node.this, *node.expressions]
        case exp.Between():
            return [node.this, node.args["low"], node.args["high"]]
        case exp.Coalesce():
            return [node.this, *node.expressions]
    return [node.this, node.expression]


def with_parts(node: exp.Expr, parts: list[Rewritten]) -> exp.Expr:
    copy = node.copy()
    first, *others = [part.sql for part in parts]
    copy.set("this", first)
    match copy:
        case exp.In() | exp.Coalesce():
            copy.set("expressions", others)
        case exp.Between():
            copy.set("low", others[0])
            copy.set("high", others[1])
        case _:
            copy.set("expression", others[0])
    return copy


def is_negative(node: exp.Expr) -> bool:
    return isinstance(node, exp.Neg) and isinstance(node.this, exp.Literal) and not node.this.is_string


def key_of(node: exp.Expr) -> str:
    return text_of(node.unnest())


def together(one: LogicalType, other: LogicalType) -> LogicalType:
    if one.kind in INTEGERS and other.kind in INTEGERS:
        return max(one, other, key=lambda type_: list(INTEGERS).index(type_.kind))
    return other if one == NULL else one
