"""What becomes of rows that are grouped: pure data, as in `joins.query.plan`.

A row *contributes* to its group: the values of its group's key and the arguments of the aggregate functions. A group
keeps of its rows' contributions only what its functions need, each thing once however many functions ask for it:

    Total    how many values are not NULL and, of numbers, their exact sum: count, sum, avg
    Bag      the values themselves, in order, each with the number of times it is there: min, max, DISTINCT, collect_*

Both can be taken back exactly: sums of doubles are kept as decimals too, for a float's sum would depend on the order in
which its rows came and went. So what a group says depends on its rows alone.
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
    """Of argument number `argument`: how many are not NULL and, where it is a number, their sum (`type`)."""

    argument: int
    type: LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class Bag:
    """The tuples of some arguments (by number) in the order of their values, each with its count.

    A tuple whose first `needed` values hold a NULL is not in it; behind them NULL comes before every value.
    `descending`: of each value, whether its order is turned.
    """

    arguments: tuple[int, ...]
    types: tuple[LogicalType, ...]
    needed: int
    descending: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One aggregate function: what it computes (as `type`) of total or bag number `of`; `count_rows` needs neither.

    `count`, `sum`, `avg` read a total. Of a bag: `min` and `max` are the last value of its first and last tuple, as are
    `min_by` and `max_by` (ordered by the values before it); `count_distinct` and `sum_distinct` count its tuples and
    sum them; `collect_list` lists the last value of each tuple as often as it is there, `collect_set` once. What does
    not fit `type` is NULL and a dead letter, as `text` (what the person wrote) names it.
    """

    function: Function
    of: int
    type: LogicalType
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """Of the tuples of a group's one bag the first `most`, each a row that knows its number, 1 and up.

    What a row may tell are the values of the group's key, then those of the tuple, then the number: `values` are the
    places of what it reads as, `names` of what names it. The first `ordered` values of the tuple are its order, the
    last of which are a key: so no two tuples have one place.
    """

    most: int
    ordered: int
    names: tuple[int, ...]
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Rows of a fragment, as its `Finish` leaves them, by the values at `keys`; `arguments`: what else they contribute.

    Its rows read: the key's values, then a value per result. Their names are the texts of the key's values, NULL
    included. A group without rows is gone, but for `always`, the text of the key of a query without GROUP BY: that row
    is there also where no row has ever come. `change_detector` and `number` are the numbers of its two steps: the first
    knows what each row contributed, the second keeps the groups.
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
        """Length of its rows' lists of values."""
        return len(self.keys) + len(self.results) if self.top is None else len(self.top.values)
