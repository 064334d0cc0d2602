"""Panels of a dashboard: what each one measures, over which rows, and how wide it stands; their small languages.

A *measure* is `count`, or `sum(amount)`, `avg(…)`, `min(…)`, `max(…)`, `unique(…)`, `percentile(amount, 95)`.
A *filter* of `where:` is a column, an operator and what it is compared with: `status = paid`, `amount >= 10`,
`country in (DE, 'AT')`, `note is null`. Neither is ever Solr's syntax.
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
    """A figure over rows: `field` is empty for a count alone, `percent` set for a percentile alone (0 to 100)."""

    function: MeasureFunction
    field: str = ""
    percent: float = 0.0

    def __str__(self) -> str:
        if self.function == "percentile":
            return f"percentile({self.field}, {self.percent:g})"
        return f"{self.function}({self.field})" if self.field else self.function

    @property
    def additive(self) -> bool:
        """Whether the figure of all rows tells, with those of some, that of the others."""
        return self.function in ("count", "sum", "avg")


COUNT = PanelMeasure(function="count")
NUMBER_FORM = re.compile(r"[^0]*0(,0)?(\.0{1,6})?[^0]*")  # `0,0.00 €`: thousands apart, two digits, a sign behind


@dataclass(frozen=True, slots=True, kw_only=True)
class PanelFilter:
    """Rows whose `field` compares so with `values`: one, for `in` and `not in` some, for null none."""

    field: str
    operator: FilterOperator
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRange:
    """The last so many units until now; `count` 0: all times."""

    count: int = 0
    unit: RangeUnit = "day"

    def __str__(self) -> str:
        return f"last {self.count} {self.unit}{'' if self.count == 1 else 's'}" if self.count else "all"


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One panel. `fields`: what `terms`, `histogram` and `heatmap` part rows by, what `table` groups by; the columns of
    a table of rows, which has no `measures`. `by` splits a series, into `top` parts; `buckets` are a histogram's.
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
        """Every column that the panel names."""
        named = (*(one.field for one in self.measures), *self.fields, self.by, *(one.field for one in self.where))
        return tuple(dict.fromkeys(name for name in named if name))


def measure_of(text: str) -> PanelMeasure:
    """The measure that a text names; ValueError, which says what is wrong, for what is none."""
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
    """The filter that a text says; ValueError for what is none."""
    match = _FILTER.fullmatch(text.strip())
    if match is None or len(text) > _LONGEST:
        raise ValueError(f"filter {text[:_LONGEST]!r}")
    operator: FilterOperator = " ".join(match[2].split())  # type: ignore[assignment]  # one of those in the pattern
    rest = match[3].strip()
    if operator.endswith("null"):
        if rest:
            raise ValueError(f"filter {text!r}, with more behind `{operator}`")
        return PanelFilter(field=match[1], operator=operator)
    listed = operator.endswith("in")
    if listed and not (rest.startswith("(") and rest.endswith(")")):
        raise ValueError(f"filter {text!r} without ( )")
    values = _items(rest[1:-1] if listed else rest, text)
    if not values or (not listed and len(values) > 1):
        raise ValueError(f"filter {text!r}, with {len(values)} values")
    return PanelFilter(field=match[1], operator=operator, values=values)


def range_of(text: str) -> TimeRange:
    """The range that a text says: `all`, `last 30 days`; ValueError for what is none."""
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
            raise ValueError(f"filter {whole!r}, where {text[place:]!r} is no value; one with , ( ) or ' stands in ' '")
        found.append(match[2] if match[1] is None else match[1].replace("''", "'"))
        place = match.end()
    return tuple(found)


ALL_TIMES = TimeRange()
