"""The result of binding (stage 3): a query whose tables, tree and column types are known. Planning makes fragments
of it.

A bound query is one of these classes. `rows` describes its rows as another query reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from joins.query.aggregates import Keeping
from joins.query.group import TimeBound
from joins.query.windows import WindowCall
from joins.select.flat import Flat
from joins.select.rows import QueryRows
from joins.select.sql import Place
from joins.select.tree import Tree


@dataclass(slots=True, kw_only=True)
class BoundTree:
    """A flat query without groups: one result row per row of the root table, with the rows joined to it.

    `trees` are all possible trees, `tree` is the chosen one. `place` is the query's position in the text, for
    errors."""

    flat: Flat
    trees: list[Tree]
    tree: Tree
    rows: QueryRows
    place: Place


@dataclass(slots=True, kw_only=True)
class BoundGroup:
    """A grouped query: one row per group of the rows of `inner`.

    - The first `keys` columns of `inner` are the group key. The others are arguments of aggregate functions.
    - `keeping` has the state and the functions of a group.
    - `named` gives the column of the result for the SQL text of a key or function: `count(*)` → `a0`.
    - `always`: the key of the only group of a query without GROUP BY, which exists even without rows. Otherwise
      None."""

    inner: BoundTree
    keys: int
    keeping: Keeping
    rows: QueryRows
    named: Mapping[str, str]
    always: tuple[str | int | bool, ...] | None


@dataclass(slots=True, kw_only=True)
class BoundUnion:
    """A UNION ALL: the rows of all branches, whose columns correspond by position.

    `tags` are columns of literals that together differ in each branch, and the literals of each branch. None if there
    are no such columns."""

    branches: tuple[BoundTree, ...]
    rows: QueryRows
    tags: tuple[tuple[str, ...], tuple[tuple[str | int | bool, ...], ...]] | None


@dataclass(slots=True, kw_only=True)
class BoundPair:
    """A many-to-many join: each pair of a left and a right row that are equal in `keys` is one row.

    `keys` lists (left column, right column). `left_stays` and `right_stays` keep the rows of a side that match
    nothing, with NULL for the columns of the other side."""

    left: BoundTree
    right: BoundTree
    keys: tuple[tuple[str, str], ...]
    left_stays: bool
    right_stays: bool
    rows: QueryRows


@dataclass(slots=True, kw_only=True)
class BoundInterval:
    """A join by time of two append-only tables: pairs that are equal in `keys` and whose times are close.

    `times` names the time column of each side. The right time is `earliest` to `latest` microseconds after the left
    time. `lateness` (milliseconds) is described in `joins.query.nodes.Interval`, `keys` and `left_stays` in
    `BoundPair`."""

    left: BoundTree
    right: BoundTree
    keys: tuple[tuple[str, str], ...]
    times: tuple[str, str]
    earliest: int
    latest: int
    left_stays: bool
    lateness: tuple[int, int]
    rows: QueryRows
    place: Place


@dataclass(slots=True, kw_only=True)
class BoundTop:
    """A query with ROW_NUMBER(): the first `most` rows of each `partition` of `inner`, with their row number.

    `order` lists columns of `inner` and whether each is descending. The last of them are a key, so there are no
    ties. `number` is the name of the column with the row number."""

    inner: BoundTree
    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    number: str
    most: int
    rows: QueryRows


@dataclass(slots=True, kw_only=True)
class BoundFunction:
    """A window function: its column in the result, its form as written, and the columns of `inner` that it reads.

    `result` is the index of an aggregate function's result in `BoundWindow.keeping`."""

    name: str
    call: WindowCall
    argument: str | None
    default: str | None
    result: int


@dataclass(slots=True, kw_only=True)
class BoundWindow:
    """A query with window functions of one PARTITION BY and ORDER BY: every row of `inner`, with their values.

    `order` is as in `BoundTop`; the first `ordered` of them are those of ORDER BY, a key follows. `keeping` has the
    aggregate functions, whose arguments are indexes in `arguments`, names of columns of `inner`."""

    inner: BoundTree
    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    ordered: int
    functions: tuple[BoundFunction, ...]
    arguments: tuple[str, ...]
    keeping: Keeping
    rows: QueryRows


@dataclass(slots=True, kw_only=True)
class BoundTemporal:
    """The rows of `inner` that satisfy conditions on the time, at each moment.

    `values` are columns of `inner`. `bounds` compare them with the time, by their index in `values`."""

    inner: BoundTree
    values: tuple[str, ...]
    bounds: tuple[TimeBound, ...]
    rows: QueryRows


Bound = BoundTree | BoundGroup | BoundUnion | BoundPair | BoundInterval | BoundTop | BoundWindow | BoundTemporal
