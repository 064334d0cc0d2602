"""Describe how the rows of a fragment are grouped, or selected by the time. Data only, as in `joins.query.plan`.

Each row contributes two things to its group: the values of the group key and the arguments of the aggregate
functions. From all contributions a group keeps only what its functions need. Functions over the same argument share
one item:

    Total    the number of values that are not NULL and, for numbers, their exact sum: count, sum, avg
    Bag      the values themselves, sorted, each with its count: min, max, DISTINCT, collect_*

Both can be retracted exactly when a row leaves its group. Sums of doubles are kept as decimals, because a sum of
floats would depend on the order of the rows. So a group's result depends only on its current rows.

Example: `SELECT city, count(*), avg(age), max(age) FROM p GROUP BY city` has the key `city`, one argument `age`, one
total (for avg) and one bag (for max)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdc.model.types import LogicalType

WindowKind = Literal[
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "offset", "nth", "aggregate"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Total:
    """Count and, for numbers, exact sum of the values of one argument that are not NULL.

    `argument` is the argument's index in `Grouping.arguments`, `type` is the type of the sum."""

    argument: int
    type: LogicalType


@dataclass(frozen=True, slots=True, kw_only=True)
class Bag:
    """The distinct tuples of some arguments of a group's rows, sorted, each with its number of rows.

    `arguments` are indexes in `Grouping.arguments`. Tuples with NULL among the first `needed` values are left out.
    In the other values NULL sorts first. `descending` says for each value whether its order is reversed."""

    arguments: tuple[int, ...]
    types: tuple[LogicalType, ...]
    needed: int
    descending: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One aggregate function: its name in `joins.query.aggregate_functions`, and the number of its total or bag.

    A value that does not fit `type` is NULL and a dead letter, which contains `text` (the original expression).
    `given` are literals of the call: the separator of string_agg, the share of a percentile.
    """

    function: str
    of: int
    type: LogicalType
    text: str
    given: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Top:
    """Limits each group to its first `most` tuples (ROW_NUMBER() with a limit). Each tuple is one row of the result.

    The tuples come from the group's only bag. A row of the result can use the values of the group key, then those of
    the tuple, then the row number (from 1). `values` are the indexes of the values that it contains, `names` those
    of its id. The first `ordered` values of a tuple define the order. The last of these are a unique key, so there
    are no ties."""

    most: int
    ordered: int
    names: tuple[int, ...]
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The rows that a function reads for one row: those from `start` to `end`, as distances from it. None: unbounded.

    With `peers`, 0 means the first and the last row that is equal in ORDER BY, and no other distances occur."""

    peers: bool
    start: int | None
    end: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowFunction:
    """One function over the ordered rows of a partition. `text` is the original expression.

    - `number`: of `ntile` the number of buckets; of `offset` (lag, lead) the distance, negative for lag; of `nth` the
      place in the frame, from 1, or -1 for the last row; of `aggregate` the index in `Windows.results`.
    - `argument`, `default`: indexes of the tuple's values, -1 for none.
    - `skips`: rows whose argument is NULL are left out (IGNORE NULLS)."""

    kind: WindowKind
    text: str
    number: int = 0
    argument: int = -1
    default: int = -1
    skips: bool = False
    frame: Frame = Frame(peers=False, start=None, end=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Computes functions over the ordered rows of a group, a partition. Each tuple of its only bag is one row.

    A row of the result can use the values of the group key, then those of the tuple, then those of the `functions`.
    `values` are the indexes of the values that it contains, `names` those of its id. Tuples that are equal in the
    first `ordered` values are peers. A unique key follows these values, so that every order is complete.
    `totals`, `bags` and `results` are as in `Grouping`, for functions of kind `aggregate`. Their arguments are
    indexes of the tuple's values."""

    ordered: int
    functions: tuple[WindowFunction, ...]
    totals: tuple[Total, ...]
    bags: tuple[Bag, ...]
    results: tuple[Result, ...]
    names: tuple[int, ...]
    values: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouping:
    """Groups the rows of a fragment, after its expressions and WHERE.

    - `keys`: indexes of the row's values that form the group key; `key_types` are their types.
    - `arguments`: indexes of the values that the aggregate functions use.
    - `totals`, `bags`, `results`: the state of a group, and the functions computed from it.
    - `always`: for a query without GROUP BY, the text of the key of its single group, which exists even without rows.
    - `change_detector`: number of the step that stores what each row contributed, so that the contribution can be
      retracted.
    - `number`: number of the step that stores the groups.
    - `top`: for ROW_NUMBER() with a limit, which tuples of the group's bag become rows of the result.
    - `windows`: for window functions, what is computed for each tuple of the group's bag.

    Without `top` and `windows`, a row of the result contains the key, then one value per function. Its id is the text
    of the key, NULL included. A group without rows is deleted, except the one of `always`."""

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
    windows: Windows | None = None

    @property
    def width(self) -> int:
        """Return the number of values in a row of the result."""
        rows = self.top or self.windows
        return len(self.keys) + len(self.results) if rows is None else len(rows.values)


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBound:
    """A condition `value operator moment` on the time, such as `at >= now() - INTERVAL 1 HOUR`.

    `value` is the index of a date or timestamp. The moment is now, plus `before` microseconds, cut to a `unit` (empty:
    not cut), plus `months` and `after` microseconds. `text` is the condition in the query."""

    value: int
    operator: str
    unit: str
    before: int
    months: int
    after: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Temporal:
    """The stateful step that emits the rows for which all `bounds` are true now, and deletes them afterwards.

    `number` is its step. The values of the bounds are indexes in a row that the fragment sends. `now` is the clock of
    the batch, which Spark stores before the batch begins (`joins.engine.file_checkpoint`)."""

    number: int
    bounds: tuple[TimeBound, ...]
