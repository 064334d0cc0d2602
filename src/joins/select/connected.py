"""Find joined tables that no equality connects with another table, and equalities within OR (part of stage 1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sqlglot import exp

from joins.select.names import text_of
from joins.select.rewrite.subqueries import is_scalar
from joins.select.sql import Join, conjuncts


def unconnected(joins: Sequence[Join], where: Sequence[exp.Expr]) -> Join | None:
    """Return the first join without an equality of its table, or an expression over it, with another table. None if
    every join has one."""
    pool = [*(part for join in joins if join.inner for part in join.on), *where]
    for join in joins:
        alias = join.relation.alias
        named = bool(join.using) or join.natural or meets_all(join)
        if not is_scalar(alias) and not named and not _connects(alias, pool if join.inner else join.on):
            return join
    return None


def meets_all(join: Join) -> bool:
    """Return whether a join may compare every row with every other one: a CROSS JOIN, or `ON a.x < b.y`."""
    compared = [one for one in join.on if len({column.table for column in one.find_all(exp.Column)}) > 1]
    return join.cross or (
        join.inner and bool(compared) and not any(isinstance(one.unnest(), exp.EQ) for one in compared)
    )


def _connects(alias: str, conditions: Sequence[exp.Expr]) -> bool:
    for condition in conditions:
        part = condition.unnest()
        if not isinstance(part, exp.EQ):
            continue
        sides = [{column.table for column in side.find_all(exp.Column)} for side in (part.this, part.expression)]
        if all(sides) and {alias, ""} & (sides[0] | sides[1]) and sides != [{alias}, {alias}]:
            return True
    return False


def factored(conditions: Iterable[exp.Expr]) -> tuple[exp.Expr, ...]:
    """Return conditions in which what all alternatives of an OR share is a condition of its own.

    `(a AND b) OR (a AND c)` is `a AND (b OR c)`, in three-valued logic too; `a` may be the equality that joins two
    tables."""
    return tuple(one for condition in conditions for one in _factored(condition))


def _factored(condition: exp.Expr) -> list[exp.Expr]:
    alternatives = [conjuncts(one) for one in _alternatives(condition)]
    first, *others = alternatives
    if not others:
        return [condition]
    shared = [one for one in first if all(_has(other, one) for other in others)]
    if not shared:
        return [condition]
    rest = [[one for one in some if not _has(shared, one)] for some in alternatives]
    if not all(rest):  # one alternative is what all share
        return shared
    return [*shared, exp.or_(*(exp.and_(*some) for some in rest))]


def _has(conditions: Iterable[exp.Expr], wanted: exp.Expr) -> bool:
    """Return whether a condition is among others; the sides of an equality may be in either order."""
    turned = exp.EQ(this=wanted.expression, expression=wanted.this).copy() if isinstance(wanted, exp.EQ) else wanted
    return any(text_of(one) in (text_of(wanted), text_of(turned)) for one in conditions)


def _alternatives(condition: exp.Expr) -> Iterator[exp.Expr]:
    node = condition.unnest()
    if isinstance(node, exp.Or):
        yield from _alternatives(node.this)
        yield from _alternatives(node.expression)
    else:
        yield node
