"""In which pieces a table is compared: spans of leaves, and those of them that an earlier run has settled; pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ingest.ledger.ledger import PartitionLedger

Span = tuple[int, int]  # first and last leaf
GROUP_ROWS = 32_768  # rows of which a source's transaction computes one digest


class ComparedSpan(NamedTuple):
    """A span whose digests agreed: its first and last leaf, how many rows and leaves with rows it had."""

    first: int
    last: int
    rows: int
    leaves: int


def spans_of(partition_ledger: PartitionLedger, settled: Iterable[ComparedSpan] = ()) -> list[Span]:
    """All leaves of the grid but the settled ones, in spans of about `GROUP_ROWS` rows, as the ledger knows them: those
    beyond its rows, too, since the source may have more. One span where the grid has no ranges."""
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
