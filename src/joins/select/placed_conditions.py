"""Decide where the conditions of a bound tree are evaluated (part of stage 4, see `joins.select`).

A condition runs on the rows of one table, on whole rows, or inside the expressions of columns. The last case is
special to LEFT JOIN, whose extra ON conditions also decide the match. If such a condition uses only the joined
table, it filters that table's rows. If it also uses other tables, it cannot filter. So the columns of the joined
table, and of tables joined through it, become `CASE WHEN condition THEN column END`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlglot import exp

from joins.query.finish import compiled, text_of_expression, value
from joins.query.typed import Typed, Unsupported
from joins.select.bound import BoundTree
from joins.select.flat import Condition, FlatItem
from joins.select.tree import Branch


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedConditions:
    """The conditions of a tree by place: `filters` run on whole rows, `own` (by alias) on the rows of one table.

    `items` are the result columns, with the CASE expressions of LEFT JOIN conditions."""

    items: tuple[FlatItem, ...]
    filters: tuple[Condition, ...]
    own: Mapping[str, tuple[Condition, ...]]

    def used(self, bound: BoundTree) -> dict[str, set[str]]:
        """Return, by alias, the columns that the tree needs for keys, joins, expressions and conditions."""
        used = {alias: set(shape.primary_key) for alias, shape in bound.flat.shapes.items()}
        for branch in bound.tree.branches.values():
            for own, theirs in branch.pairs:
                assert branch.parent is not None  # pairs lead to a parent
                used[branch.alias].add(own)
                used[branch.parent.alias].add(theirs)
            used[branch.alias].update(own for own, _ in branch.constants)
        conditions = (*self.filters, *(one for some in self.own.values() for one in some))
        for node in (*(item.expression for item in self.items), *(one.expression for one in conditions)):
            for column in node.find_all(exp.Column):
                used[column.table].add(column.name)
        return used


def place_conditions(bound: BoundTree) -> PlacedConditions:
    """Decide where each condition of a bound tree is evaluated."""
    masks: dict[str, exp.Expr] = {}
    own: dict[str, tuple[Condition, ...]] = {}
    whole_row_conditions: list[Condition] = []
    for join in bound.flat.joins:
        branch = bound.tree.branches[join.alias]
        residual = branch.residual
        if residual and _of_its_rows(bound, branch):
            own[branch.alias], residual = residual, ()
        if branch.inner:  # another table is inner-joined through it, so this is a condition on the whole row
            whole_row_conditions += residual
        elif conditions := [*_of_parent(branch, masks), *(_masked(one.expression, masks) for one in residual)]:
            masks[branch.alias] = exp.and_(*conditions)
    items = tuple(
        FlatItem(
            name=item.name,
            expression=_masked(item.expression, masks),
            place=item.place,
            text=item.text or text_of_expression(item.expression),
        )
        for item in bound.flat.items
    )
    filters = tuple(
        Condition(
            expression=_masked(one.expression, masks),
            place=one.place,
            text=one.text or text_of_expression(one.expression),
        )
        for one in (*bound.tree.filters, *whole_row_conditions)
    )
    return PlacedConditions(items=items, filters=filters, own=own)


def _of_its_rows(bound: BoundTree, branch: Branch) -> bool:
    """Return whether the extra conditions of a LEFT JOIN use only a captured table's own columns and cannot fail."""
    if branch.alias in bound.flat.readings:
        return False
    shape = bound.flat.shapes[branch.alias]

    def resolve(column: exp.Column) -> Typed:
        found = shape.column(column.name)
        assert found is not None  # joins.select.flatten refuses unknown columns
        return value(column, 0, found.type)

    for condition in branch.residual:
        if {column.table for column in condition.expression.find_all(exp.Column)} != {branch.alias}:
            return False
        try:
            if compiled(condition.expression, resolve, condition=True).failed is not None:
                return False
        except Unsupported:  # reported where it is finally compiled
            return False
    return True


def _of_parent(branch: Branch, masks: Mapping[str, exp.Expr]) -> list[exp.Expr]:
    """Return the conditions under which the parent table of a branch has a match."""
    parent = branch.parent
    return [masks[parent.alias].copy()] if parent is not None and parent.alias in masks else []


def _masked(node: exp.Expr, masks: Mapping[str, exp.Expr]) -> exp.Expr:
    """Return the expression with columns of conditionally joined tables wrapped: `CASE WHEN condition THEN column
    END`.

    `masks` gives the condition by alias."""
    if not any(column.table in masks for column in node.find_all(exp.Column)):
        return node
    copy = exp.Paren(this=node.copy())
    for column in list(copy.find_all(exp.Column)):
        if column.table in masks:
            condition = masks[column.table].copy()
            column.replace(exp.Case(ifs=[exp.If(this=condition, true=column.copy())]))
    inner: exp.Expr = copy.this
    return inner
