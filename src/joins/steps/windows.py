"""Compute window functions over the rows of a partition, which are the tuples of a group's bag, in order.

All rows are computed again whenever one of them changes. `joins.steps.aggregate` emits those whose values changed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate

import orjson

from cdc.model.types import Canonical
from joins.query.group import Frame, Result, Total, WindowFunction, Windows
from joins.query.value_types import FLOAT64
from joins.runtime.records import values_of_text
from joins.steps.bags import Tuples
from joins.steps.exact import added, exact, fitting, summed, zero
from joins.steps.results import Contents, text_of_result

_NULL = b"null"
Row = list[Canonical]
# The text of a function's value for the row with an index.
Value = Callable[[int], bytes]


def window_rows(windows: Windows, key: bytes, tuples: Tuples) -> tuple[dict[bytes, bytes], list[Result]]:
    """Return the text of each row by name, in order, and the aggregates of which a value does not fit and is NULL.

    `key`: the text of the group's key."""
    group = [orjson.dumps(value) for value in values_of_text(key)]
    rows = [values for _, values in tuples.entries()]
    partition = _Partition(windows, rows, tuples.peers(windows.ordered))
    functions = [partition.function(one) for one in windows.functions]
    found: dict[bytes, bytes] = {}
    for at, row in enumerate(rows):
        texts = [*group, *map(orjson.dumps, row), *(value(at) for value in functions)]
        name, text = (b",".join(texts[place] for place in places) for places in (windows.names, windows.values))
        found[name] = text
    return found, partition.failed


class _Partition:
    """The rows of a partition in order. `begins` and `ends` limit the peers of each row."""

    def __init__(self, windows: Windows, rows: Sequence[Row], begins: Sequence[int]) -> None:
        self.windows, self.rows, self.begins = windows, rows, begins
        self.count = len(rows)
        self.ends = list(begins)
        for at in range(self.count - 1, -1, -1):
            last = at + 1 == self.count or begins[at + 1] == at + 1
            self.ends[at] = at + 1 if last else self.ends[at + 1]
        self.failed: list[Result] = []

    def function(self, one: WindowFunction) -> Value:
        """Return a function's value by row."""
        begins, ends, count = self.begins, self.ends, self.count
        match one.kind:
            case "row_number":
                return lambda at: _whole(at + 1)
            case "rank":
                return lambda at: _whole(begins[at] + 1)
            case "dense_rank":
                dense = list(accumulate(int(begin == at) for at, begin in enumerate(begins)))
                return lambda at: _whole(dense[at])
            case "percent_rank":
                return lambda at: _share(begins[at], max(1, count - 1))
            case "cume_dist":
                return lambda at: _share(ends[at], count)
            case "ntile":
                return lambda at: _whole(_bucket(at, count, one.number))
            case "aggregate":
                return self._aggregate(self.windows.results[one.number], one.frame)
        return self._row(one)

    def frame(self, frame: Frame, at: int) -> tuple[int, int]:
        """Return the index of the first row of a row's frame, and that after its last row."""
        if frame.peers:
            return 0 if frame.start is None else self.begins[at], self.count if frame.end is None else self.ends[at]
        start = 0 if frame.start is None else at + frame.start
        end = self.count if frame.end is None else at + frame.end + 1
        return min(max(start, 0), self.count), min(max(end, 0), self.count)

    def _row(self, one: WindowFunction) -> Value:
        """Return the value of another row: `offset` or `nth`."""
        read = [at for at, row in enumerate(self.rows) if not one.skips or row[one.argument] is not None]
        before = [0, *accumulate(int(not one.skips or row[one.argument] is not None) for row in self.rows)]

        def other(at: int) -> int | None:
            """Return the index of the row whose value is read."""
            if one.kind == "offset":
                place = before[at] + one.number if one.number <= 0 else before[at + 1] + one.number - 1
                return read[place] if 0 <= place < len(read) else None
            start, end = self.frame(one.frame, at)
            place = before[end] - 1 if one.number < 0 else before[start] + one.number - 1
            return read[place] if before[start] <= place < before[end] else None

        def value(at: int) -> bytes:
            found = other(at)
            if found is not None:
                return orjson.dumps(self.rows[found][one.argument])
            return _NULL if one.default < 0 else orjson.dumps(self.rows[at][one.default])

        return value

    def _aggregate(self, result: Result, frame: Frame) -> Value:
        """Return the value of an aggregate function over each row's frame, whose ends only move forward."""
        held, limits, failed = _Held(self.windows), [0, 0], list[Result]()

        def value(at: int) -> bytes:
            start, end = self.frame(frame, at)
            for row in self.rows[limits[1] : end]:
                held.add(row, 1)
            for row in self.rows[limits[0] : start]:
                held.add(row, -1)
            limits[:] = start, end
            text = text_of_result(result, held.contents)
            if text is None and not failed:
                failed.append(result)
                self.failed.append(result)
            return _NULL if text is None else text

        return value


class _Held:
    """The content of one frame."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.contents = Contents(
            rows=0,
            counts=[0] * len(windows.totals),
            sums=[zero(total.type) for total in windows.totals],
            bags=[Tuples(bag) for bag in windows.bags],
        )

    def add(self, row: Row, times: int) -> None:
        """Add a row (`times` 1) or remove it (-1)."""
        contents = self.contents
        contents.rows += times
        for i, total in enumerate(self.windows.totals):
            self._count(i, total, row[total.argument], times)
        for bag, tuples in zip(self.windows.bags, contents.bags, strict=True):
            values = tuple(row[i] for i in bag.arguments)
            if None not in values[: bag.needed]:
                tuples.change({values: times})

    def _count(self, i: int, total: Total, value: Canonical, times: int) -> None:
        if value is None:
            return
        self.contents.counts[i] += times
        if summed(total.type):
            self.contents.sums[i] = added(self.contents.sums[i], exact(value, total.type), times)


def _whole(number: int) -> bytes:
    return str(number).encode()


def _share(part: int, whole: int) -> bytes:
    text = fitting(Fraction(part, whole), FLOAT64)
    assert text is not None  # it is between 0 and 1
    return text


def _bucket(at: int, count: int, buckets: int) -> int:
    """Return the bucket of a row: the first ones have one row more if the rows cannot be divided evenly."""
    size, more = divmod(count, buckets)
    larger = more * (size + 1)
    return at // (size + 1) + 1 if at < larger else more + (at - larger) // size + 1
