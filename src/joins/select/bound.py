"""A query once its tables' columns are known: what it reads, and what its rows are; planning makes fragments of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from joins.query.aggregates import Keeping
from joins.select.flat import Flat
from joins.select.rows import QueryRows
from joins.select.sql import Place
from joins.select.tree import Tree


@dataclass(slots=True, kw_only=True)
class BoundTree:
    """A row for each row of one table (`tree.root`), with what is joined to it; `trees`: every way to see it so."""

    flat: Flat
    trees: list[Tree]
    tree: Tree
    rows: QueryRows
    place: Place


@dataclass(slots=True, kw_only=True)
class BoundGroup:
    """A row for each group of the rows of `inner`: the first `keys` of its columns, then the functions of the others.

    `named`: the column of the rows that shows an expression, by its SQL. `always`: of a query without GROUP BY, whose
    one group is there without rows too, the values of the key.
    """

    inner: BoundTree
    keys: int
    keeping: Keeping
    rows: QueryRows
    named: Mapping[str, str]
    always: tuple[str | int | bool, ...] | None


@dataclass(slots=True, kw_only=True)
class BoundUnion:
    """The rows of all branches, whose columns stand for one another by their places.

    `tags`: a column that has in each branch a value of its own, if there is one, and these values.
    """

    branches: tuple[BoundTree, ...]
    rows: QueryRows
    tags: tuple[str, tuple[str | int | bool, ...]] | None


@dataclass(slots=True, kw_only=True)
class BoundPair:
    """The pairs of the rows of two queries in which each of `keys`, a column of the left and of the right, is equal.

    `left_stays`, `right_stays`: rows of that side that meet none are there too, with NULLs.
    """

    left: BoundTree
    right: BoundTree
    keys: tuple[tuple[str, str], ...]
    left_stays: bool
    right_stays: bool
    rows: QueryRows


@dataclass(slots=True, kw_only=True)
class BoundInterval:
    """The pairs of the rows of two append-only tables that are equal in `keys`, as in `BoundPair`, and near in time.

    `times`: the time of each side's rows, a column; the right one is `earliest` to `latest` microseconds behind the
    left one. `lateness` (ms) per side as in `joins.query.nodes.Interval`, `left_stays` as in `BoundPair`.
    """

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
    """Of the rows of `inner` that are equal in `partition` the first `most` in an order, and their numbers: `number`.

    `order`: columns of `inner`, and whether their order is turned; the last ones are a key of it, so that no two rows
    have one place.
    """

    inner: BoundTree
    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    number: str
    most: int
    rows: QueryRows


Bound = BoundTree | BoundGroup | BoundUnion | BoundPair | BoundInterval | BoundTop
