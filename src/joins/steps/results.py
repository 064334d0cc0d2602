"""Compute the values of a group's aggregate functions from its state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import orjson

from cdc.model.types import Canonical
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


def results_of(group: Grouping, kept: Contents) -> tuple[list[bytes], list[Result]]:
    """Return the JSON text of each function's value, and the functions whose value does not fit and is NULL."""
    texts: list[bytes] = []
    failed: list[Result] = []
    for result in group.results:
        text = _text(result, kept)
        if text is None:
            failed.append(result)
        texts.append(_NULL if text is None else text)
    return texts, failed


def _text(result: Result, kept: Contents) -> bytes | None:
    """Return the JSON text of a function's value. None if it does not fit its type."""
    of = result.of
    match result.function:
        case "count_rows":
            return str(kept.rows).encode()
        case "count":
            return str(kept.counts[of]).encode()
        case "count_distinct":
            return str(kept.bags[of].distinct).encode()
        case "sum":
            return part_of(kept.sums[of], 1, result.type) if kept.counts[of] else _NULL
        case "avg":
            count = kept.counts[of]
            return part_of(kept.sums[of], count, result.type) if count else _NULL
        case "sum_distinct":
            return part_of(kept.bags[of].sum, 1, result.type) if kept.bags[of].distinct else _NULL
        case "min" | "min_by":
            return _value(kept.bags[of].first())
        case "max" | "max_by":
            return _value(kept.bags[of].last())
        case "collect_list":
            return _listed(value for times, values in kept.bags[of].entries() for value in [values[-1]] * times)
        case "collect_set":
            return _listed(values[-1] for _, values in kept.bags[of].entries())


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
