"""Describe how rows are grouped: data only, as in `joins.query.plan`.

A row *contributes* to its group: the values of its group's key and the arguments of the aggregate functions. From its
rows' contributions a group keeps only what its functions need, each item once, however many functions use it:

    Total    the number of values that are not NULL and, for numbers, their exact sum: count, sum, avg
    Bag      the values themselves, in order, each with its count: min, max, DISTINCT, collect_*

Both can be retracted exactly. Sums of doubles are kept as decimals, too: a float's sum would depend on the order in
which
its rows arrived and left. So a group's result depends only on its current rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc.model.types import LogicalType

Function = Literal[
    "count_rows", "count", "sum", "avg",
    "count_distinct", "sum_distinct", "min", "max", "min_by", "max_by", "collect_list", "collect_set",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """The number of values of argument number `argument` that are not NULL and, for a number, their sum (`type`)."""

    argument: int
    type: LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class Bag:
    """The tuples of some arguments (by number) in the order of their values, each with its count.

    A tuple with NULL among its first `needed` values is not in it; in later values NULL precedes every value.
    `descending`: for each value, whether its order is reversed.
    """

    arguments: tuple[int, ...]
    types: tuple[LogicalType, ...]
    needed: int
    descending: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One aggregate function: what it computes (as `type`) of total or bag number `of`; `count_rows` needs neither.

    `count`, `sum`, `avg` read a total. The others read a bag: `min` and `max` return the last value of its first and
    last tuple, and so do `min_by` and `max_by` (ordered by the values before it). `count_distinct` and `sum_distinct`
    count and sum its tuples. `collect_list` lists the last value of each tuple with its count, `collect_set` once. A
    value that does not fit `type` is NULL and a dead letter, which contains `text` (the original expression).
    """

    function: Function
    of: int
    type: LogicalType
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """The first `most` tuples of a group's only bag, each of which is a row with its number, 1 and up.

    A row's available values are those of the group's key, those of the tuple, and the number. `values` are the indexes
    of its result, `names` those of its id. The first `ordered` values of the tuple define the order; the last of them
    are a key, so no two tuples are equal in it.
    """

    most: int
    ordered: int
    names: tuple[int, ...]
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups a fragment's rows, after its `Finish`, by the values at `keys`; `arguments`: what else rows contribute.

    A group's row contains the key's values, then one value per result. Its id is the text of the key's values, NULL
    included. A group without rows is deleted, except `always`, the text of the key of a query without GROUP BY: that
    row
    always exists. `change_detector` and `number` are the numbers of its two steps: the first stores what each row
    contributed, the second stores the groups.
    """

    change_detector: int
    number: int
    keys: tuple[int, ...]
    key_types: tuple[LogicalType, ...]
    arguments: tuple[int, ...]
    totals: tuple[Total, ...]
    bags: tuple[Bag, ...]
    results: tuple[Result, ...]
    always: str | None
    top: Top | None = None

    @property
    def width(self) -> int:
        """The length of its rows' lists of values."""
        return len(self.keys) + len(self.results) if self.top is None else len(self.top.values)
