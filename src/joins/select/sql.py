"""Represent the shape of a topology's SELECT: tables, joins, conditions, groups, columns (see `joins.select.parser`).

    SELECT c.country, count(*) AS orders, sum(o.amount) AS revenue
    FROM shop.orders o
    JOIN crm.customers c ON c.id = o.customer_id
    WHERE o.status <> 'draft' AND EXISTS (SELECT 1 FROM shop.payments p WHERE p.order_id = o.id)
    GROUP BY c.country
    HAVING count(*) > 10

A query may read a table of the topology like a source's (`FROM orders_wide w`), or a query in parentheses. Checks that
need the tables' columns (primary keys, types, `p.*`) are in `joins.select.compiler`, which has the schemas.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NoReturn

from sqlglot import exp

from cdc.model.schema import TableId
from cdc.topology.topology import Topology

FORM = "SELECT a.x, b.y AS z FROM source.facts a LEFT JOIN source.dimension b ON b.id = a.b_id WHERE a.x > 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A position in a query: its table, line (from 0) and column (from 1)."""

    table: str
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A table as the query names it: a captured one, another one of the topology (`view`), or a query in its place."""

    alias: str
    table_id: TableId | None
    view: str | None
    place: Place
    query: Query | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """`[LEFT | FULL] JOIN relation ON condition AND …`; no conditions after a comma or CROSS JOIN."""

    relation: Relation
    inner: bool
    on: tuple[exp.Expr, ...]
    place: Place
    full: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of the list after SELECT. `alias.*` sets only `star`, which is empty for `*`.

    The number of the query's `ranking` sets neither `expression` nor `star`.
    """

    expression: exp.Expr | None
    name: str
    star: str | None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """`ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) AS name`, with a limit to the first `most` rows.

    `order`: values, and whether their order is reversed; NULL precedes all of them. `at`: the index of the number among
    the query's items. `most` is 0 until the enclosing query sets a limit.
    """

    partition: tuple[exp.Expr, ...]
    order: tuple[tuple[exp.Expr, bool], ...]
    name: str
    at: int
    place: Place
    most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A query of the supported shape; `where` and `having` are conditions, all of which must be true.

    `grouped`: its rows are groups by the values of `group`; if that is empty, there is one group.
    """

    table: str
    first: Relation
    joins: tuple[Join, ...]
    where: tuple[exp.Expr, ...]
    items: tuple[Item, ...]
    place: Place
    group: tuple[exp.Expr, ...] = ()
    grouped: bool = False
    having: tuple[exp.Expr, ...] = ()
    distinct: bool = False
    ranking: Ranking | None = None
    relations: dict[str, Relation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """The rows of several queries, each once if `distinct`."""

    table: str
    branches: tuple[Select, ...]
    distinct: bool
    place: Place


Query = Select | Union


def refuse(topology: Topology, place: Place, what: str, expected: str) -> NoReturn:
    """Raise TopologyError at a position of a query."""
    path = f"tables.{place.table}.query"
    where = f" (query line {place.line + 1}, column {place.column})"
    raise topology.error(path, what + where, expected, line_offset=place.line)


def place_of(table: str, node: exp.Expr) -> Place:
    """Return where a node begins: at the first token below it that has a position."""
    found = [(n.meta["line"], n.meta["start"], n.meta["col"]) for n in node.walk() if "line" in n.meta]
    line, _, column = min(found, default=(1, 0, 1))
    first = min((n for n in node.walk() if "line" in n.meta), key=lambda n: int(n.meta["start"]), default=None)
    length = 0 if first is None else first.meta["end"] - first.meta["start"]
    return Place(table=table, line=line - 1, column=max(1, column - length))


def conjuncts(condition: exp.Expr | None) -> tuple[exp.Expr, ...]:
    """Return the parts of a condition that must all be true."""
    if condition is None:
        return ()
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return (*conjuncts(condition.this), *conjuncts(condition.expression))
    return (condition,)


def selects_of(query: Query) -> Iterator[Select]:
    """Yield every SELECT of a query, including FROM and conditions, but not those of the tables that it names."""
    for select in query.branches if isinstance(query, Union) else (query,):
        yield select
        for relation in select.relations.values():
            if relation.query is not None:
                yield from selects_of(relation.query)


def items_of(query: Query) -> tuple[Item, ...]:
    """Return the result's columns; the first query of a union names them."""
    return query.branches[0].items if isinstance(query, Union) else query.items
