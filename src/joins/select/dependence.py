"""Find GROUP BY columns that the others determine (part of stage 3, see `joins.select`).

`GROUP BY o.id, o.status, c.name` with a customer per order has one group per `o.id`: the primary key of orders
determines the other columns of the order, and of the customer that it looks up. So `o.id` alone is a key of the groups,
and the other columns can be computed like aggregates, of equal values. In a many-to-many join, the key of each side
determines the columns of that side."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import exp

from joins.select.bound import BoundPair, BoundTree
from joins.select.rows import QueryRows, keys_of
from joins.select.tree import Branch, exact_types

_Column = tuple[str, str]  # alias and name
_LITERALS = (exp.Literal, exp.Boolean)


def determined_keys(inner: BoundTree, count: int, wanted: frozenset[int]) -> tuple[int, ...]:
    """Return which of the first `count` columns of a query the remaining ones determine, as indexes.

    Those of `wanted` remain. At least one column remains."""
    nodes = [item.expression for item in inner.flat.items[:count]]
    kept = list(range(count))
    for index in reversed(range(count)):
        others = [node for i, node in enumerate(nodes) if i in kept and i != index]
        if index not in wanted and others and _columns(nodes[index]) <= _closure(inner, others):
            kept.remove(index)
    return tuple(index for index in range(count) if index not in kept)


def _columns(node: exp.Expr) -> set[_Column]:
    return {(column.table, column.name) for column in node.find_all(exp.Column)}


def _closure(inner: BoundTree, nodes: Iterable[exp.Expr]) -> set[_Column]:
    """Return the columns that have one value where the expressions have one value each."""
    known = {(node.table, node.name) for node in nodes if isinstance(node, exp.Column)}
    while True:
        more = _step(inner, known) - known
        if not more:
            return known
        known |= more


def _step(inner: BoundTree, known: set[_Column]) -> set[_Column]:
    found = set(_fixed(inner, known))
    for branch in inner.tree.branches.values():
        alias, shape = branch.alias, inner.flat.shapes[branch.alias]
        keys = [{(alias, name) for name in key} for key in keys_of(shape) if key and _is_there(inner, alias, key)]
        if any(key <= known for key in keys) or _is_looked_up(branch, known):
            found |= {(alias, name) for name in shape.places()}
        if isinstance(read := inner.flat.readings.get(alias), BoundPair):
            found |= {(alias, name) for name in _in_pair(read, {name for of, name in known if of == alias})}
        if branch.parent is not None and not inner.tree.optional(alias):
            for own, theirs in branch.pairs:
                pair = {(alias, own), (branch.parent.alias, theirs)}
                found |= pair if pair & known else set()
    return found


def _in_pair(pair: BoundPair, known: set[str]) -> Iterable[str]:
    """Yield the columns of a many-to-many join that the `known` ones determine: those of each side by themselves.

    A side that may lack a row needs a known column that is NULL only then."""
    for side, optional in ((pair.left, pair.right_stays), (pair.right, pair.left_stays)):
        items = {item.name: item.expression for item in side.flat.items}
        own = known & items.keys()
        if optional and not any(not column.nullable for column in side.rows.columns if column.name in own):
            continue
        closure = _closure(side, [items[name] for name in own])
        yield from (name for name, node in items.items() if _columns(node) <= closure and own)


def _is_there(inner: BoundTree, alias: str, key: tuple[str, ...]) -> bool:
    """Return whether a key of NULLs means one thing: no row, or a row of that key."""
    shape = inner.flat.shapes[alias]
    if not isinstance(shape, QueryRows) or not inner.tree.optional(alias):
        return True
    return any(not column.nullable for column in shape.columns if column.name in key)


def _is_looked_up(branch: Branch, known: set[_Column]) -> bool:
    """Return whether known columns decide which row of a table is joined, and whether one is."""
    if branch.parent is None:
        return False
    also = set[_Column]().union(*(_columns(one.expression) for one in branch.residual))
    asked = {(branch.parent.alias, theirs) for _, theirs in branch.pairs} | also
    return {one for one in asked if one[0] != branch.alias} <= known


def _fixed(inner: BoundTree, known: set[_Column]) -> Iterable[_Column]:
    """Yield the columns that WHERE sets equal to a literal, or to a known column."""
    for condition in inner.tree.filters:
        node = condition.expression.unnest()
        if not isinstance(node, exp.EQ):
            continue
        left, right = node.this.unnest(), node.expression.unnest()
        for one, other in ((left, right), (right, left)):
            if not isinstance(one, exp.Column) or not exact_types(inner.flat, one, other):
                continue
            if isinstance(other, exp.Literal) and not other.is_string and "e" in other.name.lower():
                continue  # a double is equal to several integers
            if isinstance(other, _LITERALS) or (isinstance(other, exp.Column) and _columns(other) <= known):
                yield one.table, one.name
