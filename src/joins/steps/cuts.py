"""Determine how far a batch reflects each source: the newest positions record whose end offsets the batch covers.

A change's own sequence is not enough: a batch may hold change 100 of one partition and lack change 50 of another. A
positions record names the end of every partition at once. A batch that covers it has *at least* all changes up to its
position (DESIGN §5). It has *exactly* those if it ends, in every partition, at the named offset or one after it, where
the marker is by which its transaction was committed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Offsets = Mapping[str, Mapping[int, int]]
Positions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """One positions record: the position up to which its source was captured, and the topics' ends at that time.

    `offset` is the record's own offset in the positions topic, from which a restart reads on. `ts_ms` is when the
    source
    committed the position or, before the first commit after a snapshot, when the record was logged. `whole` is False
    while rows of the source are being re-read or held back: the topics do not yet hold what the source does. `within`:
    a source transaction too large for one Kafka transaction is published in part.
    """

    source: str
    sequence: int
    gtid_set: str
    offset: int
    ends: Offsets
    ts_ms: int = 0
    whole: bool = True
    within: bool = False
    file: str = ""
    pos: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lag:
    """A table's lag relative to a source: `positions` counts changes, `seconds` is the age of the oldest."""

    positions: int
    seconds: float


def read_position(
    value: Mapping[str, Any], offset: int, topics: frozenset[str], logged_ms: int = 0
) -> SourcePosition | None:
    """Return the record's value as a position, its ends limited to the query's topics; None while a snapshot runs.

    Before the snapshot is done the topics hold only part of a table, which no position describes. Raises KeyError,
    TypeError or ValueError if the value is no positions record.
    """
    if value["snapshot"] != "done":
        return None
    position, state = value["position"], value.get("state", {})
    repairs = state.get("mends", {})
    return SourcePosition(
        source=value["source"],
        sequence=int(position["sequence"]),
        gtid_set=position["gtid_set"],
        file=position["file"],
        pos=int(position["pos"]),
        offset=offset,
        ts_ms=int(value.get("ts_ms", 0)) or logged_ms,
        whole=not (state.get("snapshots") or repairs.get("tables") or repairs.get("again")),
        within=bool(int(position.get("row", 0))),
        ends={
            topic: {int(partition): int(end) for partition, end in ends.items()}
            for topic, ends in value["end_offsets"].items()
            if topic in topics
        },
    )


class Cuts:
    """Positions not yet covered, by source in the log's order, and the newest one covered. Only the driver uses it."""

    def __init__(self, reached: Positions) -> None:
        self._reached: dict[str, Mapping[str, Any]] = dict(reached)
        self._newest: dict[str, SourcePosition] = {}  # of the covered ones, those read since the start
        self._waiting: dict[str, deque[SourcePosition]] = {}
        self._partial: dict[str, SourcePosition] = {}  # the oldest one covered that the topics do not hold completely

    def add(self, position: SourcePosition) -> None:
        """Add a newer positions record of its source.

        If it names a smaller end, a topic was lost and recreated: no batch can cover the ends that older records name.
        """
        waiting = self._waiting.setdefault(position.source, deque())
        while waiting and not covers(position.ends, waiting[-1].ends):
            waiting.pop()
        waiting.append(position)

    def cover(self, *levels: Offsets) -> Positions:
        """Return the newest position of each source that a batch with these ends reflects. Call it for every batch.

        `levels` holds the ends of each part of the query that reads the log separately. A source has no position while
        its rows are being re-read or held back. `exact` means that the batch has no later change of the source.
        """
        ends = merged(levels)
        for source, waiting in self._waiting.items():
            while waiting and covers(ends, waiting[0].ends):
                newest = waiting.popleft()
                if not newest.whole:
                    self._partial.setdefault(source, newest)
                    continue
                self._partial.pop(source, None)
                self._newest[source] = newest
                self._reached[source] = {
                    "sequence": newest.sequence,
                    "gtid_set": newest.gtid_set,
                    "file": newest.file,
                    "pos": newest.pos,
                    "offset": newest.offset,
                }
        return {source: {**reached, "exact": self._exact(source, levels)} for source, reached in self._reached.items()}

    def _exact(self, source: str, levels: Sequence[Offsets]) -> bool:
        newest = self._newest.get(source)
        if newest is None or newest.within or source in self._partial:
            return False
        return all(
            0 <= level[topic].get(partition, 0) - end <= 1
            for level in levels
            for topic, partitions in newest.ends.items()
            if topic in level
            for partition, end in partitions.items()
        )

    def lags(self, now_ms: int) -> dict[str, Lag]:
        """Return per source how many committed changes no batch reflects yet; zero if all are reflected."""
        found = {source: Lag(positions=0, seconds=0.0) for source in self._reached}
        for source, waiting in self._waiting.items():
            unclaimed = [*([self._partial[source]] if source in self._partial else []), *waiting]
            if unclaimed:
                reached = int(self._reached.get(source, {}).get("sequence", 0))
                seconds = max(0, now_ms - unclaimed[0].ts_ms) / 1000
                found[source] = Lag(positions=unclaimed[-1].sequence - reached, seconds=seconds)
        return found


def merged(levels: Sequence[Offsets]) -> dict[str, dict[int, int]]:
    """Return the offsets that every level has reached: a topic counts as far as all levels that read it."""
    found: dict[str, dict[int, int]] = {}
    for ends in levels:
        for topic, partitions in ends.items():
            for partition, offset in partitions.items():
                known = found.setdefault(topic, {}).get(partition, offset)
                found[topic][partition] = min(known, offset)
    return found


def covers(ends: Offsets, target: Offsets) -> bool:
    """Return whether offsets have reached `target` in every partition."""
    return all(
        ends.get(topic, {}).get(partition, 0) >= offset
        for topic, partitions in target.items()
        for partition, offset in partitions.items()
    )
