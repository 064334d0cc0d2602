"""Find joined tables that no equality connects with another table (part of stage 1)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from joins.select.rewrite.subqueries import is_scalar
from joins.select.sql import Join


def unconnected(joins: Sequence[Join], where: Sequence[exp.Expr]) -> Join | None:
    """Return the first join without an equality of a column of its table and one of another table. None if none."""
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
        sides = [part.this.unnest(), part.expression.unnest()] if isinstance(part, exp.EQ) else []
        tables = [side.table for side in sides if isinstance(side, exp.Column)]
        if len(tables) == 2 and (alias in tables or "" in tables) and tables != [alias, alias]:
            return True
    return False
