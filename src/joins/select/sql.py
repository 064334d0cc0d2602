"""The result of parsing (stage 1): the supported shape of a SELECT, with its tables, joins, conditions and columns.

    SELECT c.country, count(*) AS orders, sum(o.amount) AS revenue
    FROM shop.orders o
    JOIN crm.customers c ON c.id = o.customer_id
    WHERE o.status <> 'draft' AND EXISTS (SELECT 1 FROM shop.payments p WHERE p.order_id = o.id)
    GROUP BY c.country
    HAVING count(*) > 10

FROM may name a captured table, another joined table of the topology (`FROM orders_wide w`), or a subquery. Keys,
types and `p.*` are checked in later stages, which have the schemas (see `joins.select`)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import NoReturn

from sqlglot import exp

from cdc.model.schema import TableId
from cdc.topology.topology import Topology

FORM = "SELECT a.x, b.y AS z FROM source.facts a LEFT JOIN source.dimension b ON b.id = a.b_id WHERE a.x > 0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A position in a query, for errors: the joined table, the line (from 0) and the column (from 1)."""

    table: str
    line: int
    column: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """An entry of FROM or JOIN: a captured table (`table_id`), another joined table (`view`), or a subquery
    (`query`)."""

    alias: str
    table_id: TableId | None
    view: str | None
    place: Place
    query: Query | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Join:
    """`[LEFT | FULL] JOIN relation ON condition AND …`. `on` is empty after a comma or CROSS JOIN (`cross`).

    `using` are the columns of USING. With `natural` they are those that both sides have. `if_null` are columns of
    earlier tables. If one of them is never NULL, nothing reads the relation. With `single`, it is an error if ON may
    find several rows."""

    relation: Relation
    inner: bool
    on: tuple[exp.Expr, ...]
    place: Place
    full: bool = False
    cross: bool = False
    using: tuple[str, ...] = ()
    natural: bool = False
    if_null: tuple[exp.Column, ...] = ()
    single: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One entry of the SELECT list: an expression with a name, or `alias.*` (`star` = alias) or `*` (`star` is
    empty).

    For the row number of a ROW_NUMBER(), both `expression` and `star` are None."""

    expression: exp.Expr | None
    name: str
    star: str | None
    place: Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """`ROW_NUMBER() OVER (PARTITION BY … ORDER BY …) AS name`, limited to the first `most` rows.

    `order` lists expressions and whether each is descending; NULL sorts before all values. `at` is the index of the
    number in the SELECT list, `window` is the original expression. `most` is 0 until the condition of the enclosing
    query is found."""

    partition: tuple[exp.Expr, ...]
    order: tuple[tuple[exp.Expr, bool], ...]
    name: str
    at: int
    place: Place
    window: exp.Window
    most: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Select:
    """A SELECT of the supported shape. All conditions in `where` and in `having` must be true.

    `grouped`: the rows of the result are groups by the values of `group`. If `group` is empty, there is a single
    group. `ranking` is its ROW_NUMBER() with a limit. `windowed`: its items or `qualify` have other window functions.
    `relations` are the tables by alias."""

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
    windowed: bool = False
    qualify: tuple[exp.Expr, ...] = ()
    relations: dict[str, Relation] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Union:
    """A UNION ALL of several SELECTs, or a UNION if `distinct`."""

    table: str
    branches: tuple[Select, ...]
    distinct: bool
    place: Place


Query = Select | Union


def refuse(topology: Topology, place: Place, what: str, expected: str) -> NoReturn:
    """Raise TopologyError at a position of a query: `what` is wrong, `expected` would work."""
    path = f"tables.{place.table}.query"
    where = f" (query line {place.line + 1}, column {place.column})"
    raise topology.error(path, what + where, expected, line_offset=place.line)


def place_of(table: str, node: exp.Expr) -> Place:
    """Return the position where a node begins: that of the first token in it that has one."""
    found = [(n.meta["line"], n.meta["start"], n.meta["col"]) for n in node.walk() if "line" in n.meta]
    line, _, column = min(found, default=(1, 0, 1))
    first = min((n for n in node.walk() if "line" in n.meta), key=lambda n: int(n.meta["start"]), default=None)
    length = 0 if first is None else first.meta["end"] - first.meta["start"]
    return Place(table=table, line=line - 1, column=max(1, column - length))


def conjuncts(condition: exp.Expr | None) -> tuple[exp.Expr, ...]:
    """Split a condition at its top-level ANDs. Empty without a condition."""
    if condition is None:
        return ()
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        return (*conjuncts(condition.this), *conjuncts(condition.expression))
    return (condition,)


def selects_of(query: Query) -> Iterator[Select]:
    """Yield every SELECT in a query, subqueries in FROM and in conditions included.

    The queries of other joined tables that it names are not included."""
    for select in query.branches if isinstance(query, Union) else (query,):
        yield select
        for relation in select.relations.values():
            if relation.query is not None:
                yield from selects_of(relation.query)


def items_of(query: Query) -> tuple[Item, ...]:
    """Return the SELECT list of a query. For a union it is that of the first branch."""
    return query.branches[0].items if isinstance(query, Union) else query.items


def numbered(query: Query) -> Query:
    """Return a query whose ROW_NUMBER() has no limit as one that computes it as a window function."""
    if not isinstance(query, Select) or query.ranking is None or query.ranking.most:
        return query
    items = list(query.items)
    items[query.ranking.at] = replace(items[query.ranking.at], expression=query.ranking.window)
    return replace(query, items=tuple(items), ranking=None, windowed=True)
