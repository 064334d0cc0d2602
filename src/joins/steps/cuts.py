"""How far each source is reflected by a batch: the newest positions record whose end offsets the batch's ends cover.

A change's own sequence says less than it seems to: a batch may hold change 100 of one partition and lack change 50 of
another. A positions record names the end of every partition at once, so a batch that covers it has *at least* all
changes up to its position (DESIGN §5). It has *exactly* those where it ends, in every partition, where the record says,
or one behind that: there stands the marker by which its transaction was committed.
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
    """One positions record: up to where its source was captured, and where the topics ended then.

    `offset` is the record's own offset in the positions topic, from where a restart reads on. `ts_ms`: when the source
    committed it, or, before anything was committed behind a snapshot, when the record was logged.
    Not `whole` while rows of the source are read again or held back: the topics do not hold yet what the source does.
    `within`: a transaction of the source that was too large for one of Kafka's is told in part.
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
    """How far behind a source a table is: `positions` = its changes, `seconds` = age of the oldest."""

    positions: int
    seconds: float


def read_position(
    value: Mapping[str, Any], offset: int, topics: frozenset[str], logged_ms: int = 0
) -> SourcePosition | None:
    """The record's value as a position, its ends limited to the query's topics; None while its snapshot runs.

    Before the snapshot is done the topics hold a table in part, which no position describes. KeyError, TypeError or
    ValueError when the value is no positions record.
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
    """Positions not yet covered, by source in the log's order, and the newest one covered; fed by the driver only."""

    def __init__(self, reached: Positions) -> None:
        self._reached: dict[str, Mapping[str, Any]] = dict(reached)
        self._newest: dict[str, SourcePosition] = {}  # of those, as far as they were read since
        self._waiting: dict[str, deque[SourcePosition]] = {}
        self._partial: dict[str, SourcePosition] = {}  # the oldest one that is covered, but says too much

    def add(self, position: SourcePosition) -> None:
        """A newer positions record of its source.

        Where it names a smaller end, a topic was lost and made anew: no batch will ever cover what older ones name.
        """
        waiting = self._waiting.setdefault(position.source, deque())
        while waiting and not covers(position.ends, waiting[-1].ends):
            waiting.pop()
        waiting.append(position)

    def cover(self, *levels: Offsets) -> Positions:
        """The newest position of each source that a batch reflects which ends there; called batch after batch.

        `levels`: where each part of the query that reads the log by itself has come. None is claimed while rows of its
        source are read again or held back. `exact` says whether the batch has no change of the source behind it.
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
        """Per source, how much of what was committed no batch reflects; zero where all is reflected."""
        found = {source: Lag(positions=0, seconds=0.0) for source in self._reached}
        for source, waiting in self._waiting.items():
            unclaimed = [*([self._partial[source]] if source in self._partial else []), *waiting]
            if unclaimed:
                reached = int(self._reached.get(source, {}).get("sequence", 0))
                seconds = max(0, now_ms - unclaimed[0].ts_ms) / 1000
                found[source] = Lag(positions=unclaimed[-1].sequence - reached, seconds=seconds)
        return found


def merged(levels: Sequence[Offsets]) -> dict[str, dict[int, int]]:
    """Where every level of the plan has come: a topic that two levels read is reflected as far as both have read it."""
    found: dict[str, dict[int, int]] = {}
    for ends in levels:
        for topic, partitions in ends.items():
            for partition, offset in partitions.items():
                known = found.setdefault(topic, {}).get(partition, offset)
                found[topic][partition] = min(known, offset)
    return found


def covers(ends: Offsets, target: Offsets) -> bool:
    """Whether offsets have come at least as far as `target` in every partition."""
    return all(
        ends.get(topic, {}).get(partition, 0) >= offset
        for topic, partitions in target.items()
        for partition, offset in partitions.items()
    )
