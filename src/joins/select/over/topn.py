"""Split the numbering of rows off a query with ROW_NUMBER() (part of stage 3). The outer query reads the numbered
rows.

Rows that are equal in ORDER BY are numbered in the order of their key, so that every run numbers
them alike. `ties` records that key by the position of the ROW_NUMBER(), because a query for another database needs
it, too."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from sqlglot import exp

from cdc.model.types import SPATIAL
from cdc.topology.topology import Topology
from joins.query.finish import text_of_expression
from joins.query.value_types import INT32
from joins.select.bound import BoundTop, BoundTree
from joins.select.flat import Flat, FlatItem
from joins.select.pairing import FRONT, PAIRS
from joins.select.rows import QueryColumn, QueryRows, keys_of
from joins.select.sql import Place, Select, refuse

Ties = dict[Place, tuple[exp.Expr, ...]]
_NO_GROUPS = ("float32", "float64", "json", "list", *SPATIAL)
_NO_ORDER = ("json", "list", *SPATIAL)


def name_key(topology: Topology, inner: BoundTree, bind: Callable[[Flat, Place], BoundTree]) -> BoundTree:
    """Return the query with a key of its rows among its columns, by adding hidden columns (`_k0`, …) if necessary.

    Raises TopologyError if the rows have no key."""
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
    """Return the bound form of a query with ROW_NUMBER(): the first rows of each partition of `inner`.

    `inner` is the bound query without the numbering and contains a key. `flat` is the flattened query. Adds to
    `ties`."""
    ranking = select.ranking
    assert ranking is not None  # the caller has checked it
    columns = {column.name: column for column in inner.rows.columns}
    said = {item.name: item for item in flat.items}
    places = {name: (said[name].expression, said[name].place) for name in (*flat.partition, *dict(flat.order))}
    check_order(topology, columns, flat.partition, [name for name, _ in flat.order], places)
    key = inner.rows.primary_key
    ties[ranking.place] = ties_of_rows(topology, flat, select, inner, ranking.place)
    shown = [column for column in inner.rows.columns if column.name[0] != "_"]
    number = QueryColumn(name=ranking.name, type=INT32, nullable=False, origin="ROW_NUMBER()")
    shown.insert(_place_of_number(flat, select), number)
    hidden = [column for column in inner.rows.columns if column.name[0] == "_"]
    numbers = (*flat.partition, *((number.name,) if ranking.most > 1 else ()))
    keys = [one for one in (numbers, *keys_of(inner.rows)) if one]
    keys.sort(key=lambda one: any(name[0] == "_" for name in one))  # keys that a query can name come before others
    return BoundTop(
        inner=inner,
        partition=tuple(flat.partition),
        order=(*flat.order, *((name, False) for name in key)),
        number=number.name,
        most=ranking.most,
        rows=QueryRows(columns=(*shown, *hidden), primary_key=keys[0], also=tuple(keys[1:])),
    )


def check_order(
    topology: Topology,
    columns: Mapping[str, QueryColumn],
    partition: Sequence[str],
    order: Sequence[str],
    places: Mapping[str, tuple[exp.Expr, Place]],
) -> None:
    """Raise TopologyError for columns whose type cannot be in PARTITION BY or ORDER BY. `places` are their texts."""
    for names, kinds, word in ((partition, _NO_GROUPS, "PARTITION"), (order, _NO_ORDER, "ORDER")):
        for name in names:
            if columns[name].type.kind in kinds:
                node, place = places[name]
                what = f"{word} BY {text_of_expression(node)}, a {columns[name].type}"
                expected = "values that compare exactly: CAST(… AS DECIMAL(18,6)), or AS STRING"
                refuse(topology, place, what, expected)


def _place_of_number(flat: Flat, select: Select) -> int:
    """Return the index of the row number among the result columns. A `*` counts as several columns."""
    assert select.ranking is not None
    behind = sum(1 for item in select.items[select.ranking.at + 1 :] if item.star is None)
    shown = sum(1 for item in flat.items if item.name[0] != "_")
    if any(item.star is not None for item in select.items[select.ranking.at + 1 :]):
        return sum(1 for item in select.items[: select.ranking.at] if item.star is None)
    return shown - behind


def visible(reading: Flat) -> Flat:
    """Remove the hidden columns, whose names begin with `_`, from a flat query."""
    reading.items = [item for item in reading.items if item.name[0] != "_"]
    return reading


def ties_of_rows(
    topology: Topology, flat: Flat, select: Select, inner: BoundTree, place: Place
) -> tuple[exp.Expr, ...]:
    """Return the key of the ordered rows, as expressions that the original query can contain."""
    items = {item.name: item.expression for item in inner.flat.items}
    found = []
    for name in inner.rows.primary_key:
        node = items[name]
        said = _of_groups(flat, select, node) if select.grouped else _name_in_query(flat, node)
        if said is None:
            what = "rows that are equal in ORDER BY are distinguished by a key that the query cannot name"
            expected = "the key of the table among the columns of the query in FROM"
            refuse(topology, place, what, expected)
        found.append(said)
    return tuple(found)


def _of_groups(flat: Flat, select: Select, key: exp.Expr) -> exp.Expr:
    """Return the expression of the query, or of GROUP BY, for a column of the group key (`g0`, …)."""
    written = {one.expression.sql(): node for one, node in zip(flat.group, select.group, strict=True)}
    if not written:  # there is one group, so no ties
        return exp.Literal.number(1)
    wanted = list(written)[int(key.name[1:])]
    selected = {item.name: item.expression for item in select.items}
    names = (item.name for item in flat.items if item.expression.sql() == wanted)
    return next((word for name in names if (word := selected.get(name)) is not None), written[wanted])


def _name_in_query(flat: Flat, node: exp.Expr) -> exp.Expr | None:
    """Return the name by which the original query can refer to a column of the flattened query. None if it cannot.

    For example, the flattened column `q/o.id` is `q.order_id` if the query reads `(SELECT o.id AS order_id …) q`."""
    assert isinstance(node, exp.Column)  # keys consist of columns
    alias, name = node.table, node.name
    while alias.startswith((PAIRS, FRONT)):
        alias, _, name = name.partition(".")
    wanted = exp.column(name, table=alias, quoted=True)
    for scoped, columns in flat.scope.items():
        for shown, expression in columns.items():
            if expression == wanted and shown[0] != "_":
                return exp.column(shown, table=scoped, quoted=True)
    return None
