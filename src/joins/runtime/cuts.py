"""Find up to which position of each source a batch is complete, by the records in the positions topic.

The sequence of a change is not enough: a batch may have change 100 of one partition and lack change 50 of another. A
positions record names the end offsets of all partitions at one time. A batch that has read up to them has *at least*
all changes up to that position. It has *exactly* those if each partition ends at the named offset, or
one after it, where the marker of the committed transaction is."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Offsets = Mapping[str, Mapping[int, int]]
Positions = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcePosition:
    """A positions record: the position up to which a source is captured, and the `ends` of its topics at that time.

    - `offset`: the record's own offset, from which a restart continues to read.
    - `ts_ms`: when the source committed the position; before the first commit after a snapshot, when it was logged.
    - `whole`: false while the topics lack rows of the source, because they are read again or held back.
    - `within`: the position is inside a source transaction that is too large for one Kafka transaction."""

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
    """The lag of a table for a source: the number of missing changes, and the age of the oldest in seconds."""

    positions: int
    seconds: float


def read_position(
    value: Mapping[str, Any], offset: int, topics: frozenset[str], logged_ms: int = 0
) -> SourcePosition | None:
    """Parse a positions record. Its ends are restricted to `topics`. None while a snapshot runs.

    During a snapshot the topics have only a part of a table, so no position describes them. Raises KeyError,
    TypeError or ValueError for an invalid record."""
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
            topic: {int(partition): int(end) for partition, end in value["end_offsets"][topic].items()}
            for topic in topics
            if topic in value["end_offsets"]
        },
    )


class Cuts:
    """Tracks positions by source: those that no batch has covered yet, and the newest that is covered. For the
    driver."""

    def __init__(self, reached: Positions) -> None:
        self._reached: dict[str, Mapping[str, Any]] = dict(reached)
        self._newest: dict[str, SourcePosition] = {}  # of the covered ones, those read since the start
        self._waiting: dict[str, deque[SourcePosition]] = {}
        self._partial: dict[str, SourcePosition] = {}  # the oldest one covered that the topics do not hold completely

    def add(self, position: SourcePosition) -> None:
        """Add the next positions record of a source.

        If an end is smaller than before, a topic was recreated. Older records of that source can then not be covered
        any more."""
        waiting = self._waiting.setdefault(position.source, deque())
        while waiting and not covers(position.ends, waiting[-1].ends):
            waiting.pop()
        waiting.append(position)

    def cover(self, *levels: Offsets) -> Positions:
        """Return the newest position of each source that a batch with these end offsets covers. Call it for every
        batch.

        `levels` are the ends of each part of the query that reads Kafka. A source has no position while its rows are
        read again or held back. `exact` in the result means that the batch has no later change of the source."""
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
        """Return the lag for each source: the committed changes that no batch covers yet."""
        found = {source: Lag(positions=0, seconds=0.0) for source in self._reached}
        for source, waiting in self._waiting.items():
            unclaimed = [*([self._partial[source]] if source in self._partial else []), *waiting]
            if unclaimed:
                reached = int(self._reached.get(source, {}).get("sequence", 0))
                seconds = max(0, now_ms - unclaimed[0].ts_ms) / 1000
                found[source] = Lag(positions=unclaimed[-1].sequence - reached, seconds=seconds)
        return found


def merged(levels: Sequence[Offsets]) -> dict[str, dict[int, int]]:
    """Return the offsets that every level has reached, for all levels that read the topic."""
    found: dict[str, dict[int, int]] = {}
    for ends in levels:
        for topic, partitions in ends.items():
            for partition, offset in partitions.items():
                known = found.setdefault(topic, {}).get(partition, offset)
                found[topic][partition] = min(known, offset)
    return found


def covers(ends: Offsets, target: Offsets) -> bool:
    """Return whether the offsets `ends` have reached `target` in every partition."""
    return all(
        ends.get(topic, {}).get(partition, 0) >= offset
        for topic, partitions in target.items()
        for partition, offset in partitions.items()
    )
