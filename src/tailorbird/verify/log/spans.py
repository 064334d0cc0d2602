"""Split a table into spans of leaves for a comparison. A *leaf* is a range of keys, a span consists of adjacent
leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ingest.ledger.ledger import PartitionLedger

Span = tuple[int, int]  # first and last leaf
GROUP_ROWS = 32_768  # rows per digest, each computed in one transaction of the source


class ComparedSpan(NamedTuple):
    """A span with equal digests: its first and last leaf, and its numbers of rows and of leaves with rows."""

    first: int
    last: int
    rows: int
    leaves: int


def spans_of(partition_ledger: PartitionLedger, settled: Iterable[ComparedSpan] = ()) -> list[Span]:
    """Return spans of about `GROUP_ROWS` rows, which cover all leaves except those in `settled` spans.

    Leaves without rows in the ledger are included, because the source may have rows there. A table whose keys cannot
    be divided into ranges has one span."""
    if not partition_ledger.grid.ranged:
        return [(0, partition_ledger.grid.last)]
    counts = sorted(partition_ledger.counts().items())
    return [span for gap in _gaps(sorted(settled), partition_ledger.grid.last) for span in _within(gap, counts)]


def _gaps(settled: Sequence[ComparedSpan], last: int) -> Iterator[Span]:
    begin = 0
    for one in settled:
        if one.first > begin:
            yield begin, one.first - 1
        begin = max(begin, one.last + 1)
    if begin <= last:
        yield begin, last


def _within(gap: Span, counts: Iterable[tuple[int, int]]) -> Iterator[Span]:
    first, end = gap
    rows = 0
    for leaf, count in counts:
        if not first <= leaf < end:
            continue
        rows += count
        if rows >= GROUP_ROWS:
            yield first, leaf
            first, rows = leaf + 1, 0
    yield first, end
