"""Turn a query whose rows are numbered into a separate query for the first rows of each partition.

Rows that are equal in the order are distinguished by their key, so that both engines, and repeated runs, number them
alike. The same query for another database needs this tie-breaker: `ties` holds it by the position of the window.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from sqlglot import exp

from cdc.model.types import SPATIAL
from cdc.topology.topology import Topology
from joins.query.finish import text_of_expression
from joins.query.value_types import INT32
from joins.select.bound import BoundTop, BoundTree
from joins.select.flat import Flat, FlatItem
from joins.select.pairing import PAIRS
from joins.select.rows import QueryColumn, QueryRows, keys_of
from joins.select.sql import Place, Select, refuse

Ties = dict[Place, tuple[exp.Expr, ...]]
_NO_GROUPS = ("float32", "float64", "json", "list", *SPATIAL)
_NO_ORDER = ("json", "list", *SPATIAL)


def name_key(topology: Topology, inner: BoundTree, bind: Callable[[Flat, Place], BoundTree]) -> BoundTree:
    """Return the same query with a key of its rows among its columns; TopologyError if they have none."""
    if inner.rows.primary_key:
        return inner
    root = inner.tree.root.alias
    primary = inner.flat.shapes[root].primary_key
    if not primary:
        what = f"the rows of {root or 'a UNION ALL'}, which are numbered, have no key"
        expected = "its key among its columns; of a UNION ALL also a literal of its own in each, 'web' AS channel"
        refuse(topology, inner.place, what, expected)
    hidden = [
        FlatItem(name=f"_k{i}", expression=exp.column(name, table=root, quoted=True), place=inner.place)
        for i, name in enumerate(primary)
    ]
    return bind(replace(inner.flat, items=[*inner.flat.items, *hidden]), inner.place)


def first_rows(topology: Topology, flat: Flat, select: Select, inner: BoundTree, ties: Ties) -> BoundTop:
    """Return the first rows of each partition of `inner`, which contains a key; `flat` is the original query."""
    ranking = select.ranking
    assert ranking is not None  # the caller has checked it
    columns = {column.name: column for column in inner.rows.columns}
    said = {item.name: item for item in flat.items}
    for names, kinds, word in (
        (flat.partition, _NO_GROUPS, "PARTITION"),
        ([n for n, _ in flat.order], _NO_ORDER, "ORDER"),
    ):
        for name in names:
            if columns[name].type.kind in kinds:
                what = f"{word} BY {text_of_expression(said[name].expression)}, a {columns[name].type}"
                expected = "values that compare exactly: CAST(… AS DECIMAL(18,6)), or AS STRING"
                refuse(topology, said[name].place, what, expected)
    key = inner.rows.primary_key
    ties[ranking.place] = _ties(topology, flat, select, inner)
    shown = [column for column in inner.rows.columns if column.name[0] != "_"]
    number = QueryColumn(name=ranking.name, type=INT32, nullable=False, origin="ROW_NUMBER()")
    shown.insert(_place_of_number(flat, select), number)
    hidden = [column for column in inner.rows.columns if column.name[0] == "_"]
    places = (*flat.partition, *((number.name,) if ranking.most > 1 else ()))
    keys = [one for one in (places, *keys_of(inner.rows)) if one]
    keys.sort(key=lambda one: any(name[0] == "_" for name in one))  # keys that a query can name come before others
    return BoundTop(
        inner=inner,
        partition=tuple(flat.partition),
        order=(*flat.order, *((name, False) for name in key)),
        number=number.name,
        most=ranking.most,
        rows=QueryRows(columns=(*shown, *hidden), primary_key=keys[0], also=tuple(keys[1:])),
    )


def _place_of_number(flat: Flat, select: Select) -> int:
    """Return the number's index among the columns that the query shows; a `*` before it represents several."""
    assert select.ranking is not None
    behind = sum(1 for item in select.items[select.ranking.at + 1 :] if item.star is None)
    shown = sum(1 for item in flat.items if item.name[0] != "_")
    if any(item.star is not None for item in select.items[select.ranking.at + 1 :]):
        return sum(1 for item in select.items[: select.ranking.at] if item.star is None)
    return shown - behind


def visible(reading: Flat) -> Flat:
    """Return a query of the columns that have usable names."""
    reading.items = [item for item in reading.items if item.name[0] != "_"]
    return reading


def _ties(topology: Topology, flat: Flat, select: Select, inner: BoundTree) -> tuple[exp.Expr, ...]:
    """Return the key of a query's rows as expressions of that query."""
    assert select.ranking is not None
    items = {item.name: item.expression for item in inner.flat.items}
    found = []
    for name in inner.rows.primary_key:
        node = items[name]
        said = _of_groups(flat, select, node) if select.grouped else _in_words(flat, node)
        if said is None:
            what = (
                "rows that are equal in the order of ROW_NUMBER() are distinguished by a key that the query cannot name"
            )
            expected = "the key of the table among the columns of the query in FROM"
            refuse(topology, select.ranking.place, what, expected)
        found.append(said)
    return tuple(found)


def _of_groups(flat: Flat, select: Select, key: exp.Expr) -> exp.Expr:
    """Return a column of the groups' key (`g0`, …) as the expression in the query or GROUP BY."""
    said = {one.expression.sql(): node for one, node in zip(flat.group, select.group, strict=True)}
    if not said:  # there is one group, so no ties
        return exp.Literal.number(1)
    meant = list(said)[int(key.name[1:])]
    words = {item.name: item.expression for item in select.items}
    names = (item.name for item in flat.items if item.expression.sql() == meant)
    return next((word for name in names if (word := words.get(name)) is not None), said[meant])


def _in_words(flat: Flat, node: exp.Expr) -> exp.Expr | None:
    """Return a column of the flattened query by the name that the original query can use for it.

    For example, the flat `q/o.id` is `q.order_id` where the query reads `(SELECT o.id AS order_id …) q`. Returns None
    if no name in the query's scope means this column.
    """
    assert isinstance(node, exp.Column)  # keys consist of columns
    alias, name = node.table, node.name
    while alias.startswith(PAIRS):
        alias, _, name = name.partition(".")
    wanted = exp.column(name, table=alias, quoted=True)
    for scoped, columns in flat.scope.items():
        for said, meant in columns.items():
            if meant == wanted and said[0] != "_":
                return exp.column(said, table=scoped, quoted=True)
    return None
