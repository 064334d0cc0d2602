"""Represent a query bound to its tables' columns: what it reads, and its rows. Planning turns it into fragments."""

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
    """A row for each row of one table (`tree.root`) with the tables joined to it; `trees`: all possible trees."""

    flat: Flat
    trees: list[Tree]
    tree: Tree
    rows: QueryRows
    place: Place


@dataclass(slots=True, kw_only=True)
class BoundGroup:
    """A row for each group of the rows of `inner`: the first `keys` of its columns, then the functions of the others.

    `named`: the column that contains an expression, by the expression's SQL. `always`: the key's values in a query
    without GROUP BY, whose only group exists even without rows.
    """

    inner: BoundTree
    keys: int
    keeping: Keeping
    rows: QueryRows
    named: Mapping[str, str]
    always: tuple[str | int | bool, ...] | None


@dataclass(slots=True, kw_only=True)
class BoundUnion:
    """The rows of all branches, whose columns correspond by position.

    `tags`: a column with a different value in each branch, if there is one, and these values.
    """

    branches: tuple[BoundTree, ...]
    rows: QueryRows
    tags: tuple[str, tuple[str | int | bool, ...]] | None


@dataclass(slots=True, kw_only=True)
class BoundPair:
    """The pairs of two queries' rows in which each of `keys`, a column of the left and one of the right, is equal.

    `left_stays`, `right_stays`: that side keeps rows without a partner, with NULLs.
    """

    left: BoundTree
    right: BoundTree
    keys: tuple[tuple[str, str], ...]
    left_stays: bool
    right_stays: bool
    rows: QueryRows


@dataclass(slots=True, kw_only=True)
class BoundInterval:
    """The pairs of two append-only tables' rows that are equal in `keys`, as in `BoundPair`, and near in time.

    `times`: the time column of each side; the right time is `earliest` to `latest` microseconds after the left one.
    `lateness` (ms) per side is as in `joins.query.nodes.Interval`, `left_stays` as in `BoundPair`.
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
    """The first `most` rows of `inner` in each `partition`, in an order, with their numbers: `number`.

    `order`: columns of `inner`, and whether their order is reversed; the last ones are a key, so no two rows are equal.
    """

    inner: BoundTree
    partition: tuple[str, ...]
    order: tuple[tuple[str, bool], ...]
    number: str
    most: int
    rows: QueryRows


Bound = BoundTree | BoundGroup | BoundUnion | BoundPair | BoundInterval | BoundTop
