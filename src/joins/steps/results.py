"""Compute the values of a group's aggregate functions from its state."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import orjson

from cdc.model.types import Canonical
from joins.query.aggregate_functions import BY_NAME
from joins.query.group import Grouping, Result
from joins.steps.bags import Tuples
from joins.steps.exact import Exact, part_of

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
