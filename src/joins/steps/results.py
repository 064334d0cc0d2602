"""Compute the values of a group's aggregate functions from its state."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial

import orjson

from cdc.model.types import Canonical
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Grouping, Result
from joins.steps.bags import Tuples
from joins.steps.exact import Exact, Limit, added, double_text, exact, fitting, part_of, zero

LONGEST = 1_000_000  # bytes of a list's text
_NULL = b"null"


@dataclass(slots=True, kw_only=True)
class Contents:
    """The state of a group: its number of rows, count and sum of each total, and its bags."""

    rows: int
    counts: list[int]
    sums: list[Exact]
    bags: list[Tuples]


def text_of_result(result: Result, kept: Contents) -> bytes | None:
    """Return the JSON text of a function's value. None if it does not fit its type."""
    return FINISHES[BY_NAME[result.function].finish](kept, result)


def results_of(group: Grouping, kept: Contents) -> tuple[list[bytes], list[Result]]:
    """Return the JSON text of each function's value, and the functions whose value does not fit and is NULL."""
    texts: list[bytes] = []
    failed: list[Result] = []
    for result in group.results:
        text = text_of_result(result, kept)
        if text is None:
            failed.append(result)
        texts.append(_NULL if text is None else text)
    return texts, failed


def _sum(kept: Contents, result: Result) -> bytes | None:
    return part_of(kept.sums[result.of], 1, result.type) if kept.counts[result.of] else _NULL


def _average(kept: Contents, result: Result) -> bytes | None:
    count = kept.counts[result.of]
    return part_of(kept.sums[result.of], count, result.type) if count else _NULL


def _sum_of_distinct(kept: Contents, result: Result) -> bytes | None:
    bag = kept.bags[result.of]
    return part_of(bag.sum, 1, result.type) if bag.distinct else _NULL


def _average_of_distinct(kept: Contents, result: Result) -> bytes | None:
    bag = kept.bags[result.of]
    return part_of(bag.sum, bag.distinct, result.type) if bag.distinct else _NULL


def _list(kept: Contents, result: Result) -> bytes | None:
    return _listed(value for times, values in kept.bags[result.of].entries() for value in [values[-1]] * times)


def _set(kept: Contents, result: Result) -> bytes | None:
    return _listed(values[-1] for _, values in kept.bags[result.of].entries())


def _most_frequent(kept: Contents, result: Result) -> bytes | None:
    """Return the value of most rows; of several, the least."""
    return _value(max(kept.bags[result.of].entries(), key=lambda entry: entry[0], default=(0, None))[1])


def _median(kept: Contents, result: Result) -> bytes | None:
    """Return the middle value, or half the exact sum of the two middle ones."""
    bag, of = kept.bags[result.of], kept.bags[result.of].last_type
    rows, before, middle = sum(times for times, _ in bag.entries()), 0, zero(of)
    if not rows:
        return _NULL
    for times, values in bag.entries():
        found = sum(before <= at < before + times for at in ((rows - 1) // 2, rows // 2))
        if found:
            middle = added(middle, exact(values[-1], of), found)
        before += times
    return part_of(middle, 2, result.type)


def _percentile(kept: Contents, result: Result) -> bytes | None:
    """Return the value at a share of the way from the least to the greatest, between the two nearest ones."""
    bag, of = kept.bags[result.of], kept.bags[result.of].last_type
    share = Decimal(result.given[0])
    places = -int(share.as_tuple().exponent)
    unit = 10**places
    rows, before, found = sum(times for times, _ in bag.entries()), 0, zero(of)
    if not rows:
        return _NULL
    place, rest = divmod((rows - 1) * int(share.scaleb(places)), unit)
    for times, values in bag.entries():
        weight = (unit - rest) * (before <= place < before + times) + rest * (before <= place + 1 < before + times)
        if weight:
            found = added(found, exact(values[-1], of), weight)
        before += times
    return part_of(found, unit, result.type)


def _at_share(kept: Contents, result: Result) -> list[Canonical] | None:
    """Return the first tuple up to which there is a share of the rows."""
    entries, share = list(kept.bags[result.of].entries()), Fraction(result.given[0])
    wanted, before = share * sum(times for times, _ in entries), 0
    for times, values in entries:
        before += times
        if before >= wanted:
            return values
    return None


def _number_at_share(kept: Contents, result: Result) -> bytes | None:
    found, of = _at_share(kept, result), kept.bags[result.of].last_type
    return _NULL if found is None else part_of(exact(found[-1], of), 1, result.type)


def _joined(kept: Contents, result: Result, *, once: bool) -> bytes | None:
    """Return the texts with the separator between them. NULL without texts; None if the text is too long."""
    texts: list[str] = []
    size = 2
    for times, values in kept.bags[result.of].entries():
        if values[-1] is None:
            continue
        text = str(values[-1])
        size += len(orjson.dumps(text)) - 2
        for _ in range(1 if once else times):
            texts.append(text)
            if size > LONGEST:
                return None
    if not texts:
        return _NULL
    found = orjson.dumps(result.given[0].join(texts))
    return None if len(found) > LONGEST else found


def _variance(kept: Contents, result: Result, *, sample: bool) -> bytes | None:
    """Return the variance, which is exact before it is rounded to a double. NULL if there are too few values."""
    bag, of = kept.bags[result.of], kept.bags[result.of].last_type
    rows, total, squares = 0, Fraction(0), Fraction(0)
    infinite = False
    for times, values in bag.entries():
        number = exact(values[-1], of)
        rows += times
        if isinstance(number, Limit):
            infinite = True
            continue
        total += Fraction(number) * times
        squares += Fraction(number) ** 2 * times
    if rows <= sample:
        return _NULL
    return b'"NaN"' if infinite else fitting((squares - total * total / rows) / (rows - sample), result.type)


def _deviation(kept: Contents, result: Result, *, sample: bool) -> bytes | None:
    """Return the square root of the rounded variance, which every system computes alike."""
    text = _variance(kept, result, sample=sample)
    return text if text in (None, _NULL, b'"NaN"') else double_text(math.sqrt(float(text)))


# What `AggregateFunction.finish` names: the computation of a result's text from a group's contents.
FINISHES: Mapping[str, Callable[[Contents, Result], bytes | None]] = {
    "rows": lambda kept, _: str(kept.rows).encode(),
    "count": lambda kept, result: str(kept.counts[result.of]).encode(),
    "sum": _sum,
    "average": _average,
    "distinct": lambda kept, result: str(kept.bags[result.of].distinct).encode(),
    "sum of distinct": _sum_of_distinct,
    "average of distinct": _average_of_distinct,
    "first": lambda kept, result: _value(kept.bags[result.of].first()),
    "last": lambda kept, result: _value(kept.bags[result.of].last()),
    "list": _list,
    "set": _set,
    "most frequent": _most_frequent,
    "median": _median,
    "percentile": _percentile,
    "value at a share": lambda kept, result: _value(_at_share(kept, result)),
    "number at a share": _number_at_share,
    "joined": partial(_joined, once=False),
    "joined once": partial(_joined, once=True),
    "variance": partial(_variance, sample=False),
    "variance of a sample": partial(_variance, sample=True),
    "deviation": partial(_deviation, sample=False),
    "deviation of a sample": partial(_deviation, sample=True),
}


def _value(found: Sequence[Canonical] | None) -> bytes:
    return _NULL if found is None else orjson.dumps(found[-1])


def _listed(values: Iterator[Canonical]) -> bytes | None:
    """Return the JSON text of a list of values, without NULLs. None if it exceeds the size limit."""
    texts: list[bytes] = []
    size = 1
    for value in values:
        if value is not None:
            texts.append(orjson.dumps(value))
            size += len(texts[-1]) + 1
            if size > LONGEST:
                return None
    return b"[" + b",".join(texts) + b"]"
