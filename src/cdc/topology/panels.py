"""Panels of a dashboard: measure, rows and width of each; and the syntax of measures and filters.

A *measure* is `count`, or `sum(amount)`, `avg(…)`, `min(…)`, `max(…)`, `unique(…)`, `percentile(amount, 95)`. A
*filter* of `where:` is a column, an operator and a value: `status = paid`, `amount >= 10`, `country in (DE, 'AT')`,
`note is null`. Neither contains Solr's query syntax.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, get_args

PanelType = Literal["number", "timeseries", "terms", "histogram", "heatmap", "table", "text"]
MeasureFunction = Literal["count", "sum", "avg", "min", "max", "unique", "percentile"]
Interval = Literal["auto", "second", "minute", "hour", "day", "week", "month", "year"]
FilterOperator = Literal["=", "!=", "<", "<=", ">", ">=", "in", "not in", "is null", "is not null"]
RangeUnit = Literal["minute", "hour", "day", "week", "month", "year"]

COLUMNS = 12  # of the grid
WIDTHS: dict[PanelType, int] = {
    "number": 3, "timeseries": 8, "terms": 4, "histogram": 6, "heatmap": 6, "table": 12, "text": 12,
}  # fmt: skip
_LONGEST = 500
_MEASURE = re.compile(r"(\w+)(?:\s*\(\s*(\*|\w*)\s*(?:,\s*(\d+(?:\.\d+)?)\s*)?\))?")
_FILTER = re.compile(
    r"(\w+)\s*(=|!=|<=|>=|<|>|\bnot\s+in\b|\bin\b|\bis\s+not\s+null\b|\bis\s+null\b)\s*(.*)", re.DOTALL
)
_ITEM = re.compile(r"\s*(?:'((?:[^']|'')*)'|([^,()']+?))\s*(?:,|$)")
_RANGE = re.compile(r"last (\d{1,6}) (minute|hour|day|week|month|year)s?")


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelMeasure:
    """A figure over rows. `field` is empty only for a count, `percent` is set only for a percentile (0 to 100)."""

    function: MeasureFunction
    field: str = ""
    percent: float = 0.0

    def __str__(self) -> str:
        if self.function == "percentile":
            return f"percentile({self.field}, {self.percent:g})"
        return f"{self.function}({self.field})" if self.field else self.function

    @property
    def additive(self) -> bool:
        """Return whether the figure of a remainder can be computed by subtraction: that of all rows minus that of some
        rows."""
        return self.function in ("count", "sum", "avg")


COUNT = PanelMeasure(function="count")
NUMBER_FORM = re.compile(r"[^0]*0(,0)?(\.0{1,6})?[^0]*")  # `0,0.00 €`: thousands separators, two digits, a suffix


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelFilter:
    """Condition on one column: `field operator values`, with several values for `in` and `not in`, and none for `is
    null`."""

    field: str
    operator: FilterOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """A range of time that ends now: the last `count` units. `count` 0 means all times."""

    count: int = 0
    unit: RangeUnit = "day"

    def __str__(self) -> str:
        return f"last {self.count} {self.unit}{'' if self.count == 1 else 's'}" if self.count else "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel of a dashboard.

    `fields` are the columns that group the rows in `terms`, `histogram`, `heatmap` and `table`. In a `table` without
    `measures` they are the columns shown. `by` splits a series into the `top` most frequent values. `buckets` is the
    number of bars of a histogram. `width` is in columns of a grid of twelve. `where` are the filters of its rows,
    `format` the pattern of its numbers.
    """

    type: PanelType
    title: str
    width: int
    measures: tuple[PanelMeasure, ...] = (COUNT,)
    fields: tuple[str, ...] = ()
    by: str = ""
    top: int = 10
    interval: Interval = "auto"
    buckets: int = 20
    where: tuple[PanelFilter, ...] = ()
    format: str = ""
    text: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """Return every column that the panel names."""
        named = (*(one.field for one in self.measures), *self.fields, self.by, *(one.field for one in self.where))
        return tuple(dict.fromkeys(name for name in named if name))


def measure_of(text: str) -> PanelMeasure:
    """Parse a measure. Raises ValueError with the reason if it is invalid."""
    match = _MEASURE.fullmatch(text.strip())
    if match is None or match[1] not in get_args(MeasureFunction):
        raise ValueError(f"measure {text[:_LONGEST]!r}")
    function: MeasureFunction = match[1]  # type: ignore[assignment]  # looked up in the line above
    field, percent = match[2] or "", match[3]
    if function == "count":
        if field not in ("", "*") or percent:
            raise ValueError(f"measure {text!r}, where count takes no column")
        return COUNT
    if not field or field == "*":
        raise ValueError(f"measure {text!r} without a column")
    if (function == "percentile") != (percent is not None):
        raise ValueError(f"measure {text!r}, where {'a percentile lacks its number' if not percent else 'a number is'}")
    if percent is not None and not 0 <= float(percent) <= 100:
        raise ValueError(f"percentile {percent}")
    return PanelMeasure(function=function, field=field, percent=float(percent or 0))


def filter_of(text: str) -> PanelFilter:
    """Parse a filter. Raises ValueError if it is invalid."""
    match = _FILTER.fullmatch(text.strip())
    if match is None or len(text) > _LONGEST:
        raise ValueError(f"filter {text[:_LONGEST]!r}")
    operator: FilterOperator = " ".join(match[2].split())  # type: ignore[assignment]  # one of those in the pattern
    rest = match[3].strip()
    if operator.endswith("null"):
        if rest:
            raise ValueError(f"filter {text!r}, with more after `{operator}`")
        return PanelFilter(field=match[1], operator=operator)
    listed = operator.endswith("in")
    if listed and not (rest.startswith("(") and rest.endswith(")")):
        raise ValueError(f"filter {text!r} without ( )")
    values = _items(rest[1:-1] if listed else rest, text)
    if not values or (not listed and len(values) > 1):
        raise ValueError(f"filter {text!r}, with {len(values)} values")
    return PanelFilter(field=match[1], operator=operator, values=values)


def range_of(text: str) -> TimeRange:
    """Parse a range, such as `all` or `last 30 days`. Raises ValueError if it is invalid."""
    if text == "all":
        return TimeRange()
    match = _RANGE.fullmatch(text)
    if match is None or int(match[1]) == 0:
        raise ValueError(f"range {text[:_LONGEST]!r}")
    unit: RangeUnit = match[2]  # type: ignore[assignment]  # one of those in the pattern
    return TimeRange(count=int(match[1]), unit=unit)


def _items(text: str, whole: str) -> tuple[str, ...]:
    found, place = list[str](), 0
    while place < len(text):
        match = _ITEM.match(text, place)
        if match is None:
            raise ValueError(
                f"filter {whole!r}, where {text[place:]!r} is not a value; put one with , ( ) or ' into ' '"
            )
        found.append(match[2] if match[1] is None else match[1].replace("''", "'"))
        place = match.end()
    return tuple(found)


ALL_TIMES = TimeRange()
