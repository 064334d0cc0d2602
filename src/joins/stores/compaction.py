"""Decide whether a query may continue: does the log still hold, without gaps, what the query must still read?

Kafka compacts records older than `min.compaction.lag.ms`: it keeps only the newest record of each key. A join that
misses
some of a row's records stays wrong. For example, it has seen the row at A, the move from A to B is gone, and the move
from B to C retracts the row only from B. Or the delete and finally its tombstone are gone, and the row stays.

Therefore three rules apply. (1) When a query resumes, no unread record may be so old that it may have been compacted.
The zone below the compaction-safe offsets (`settled`) is exempt: it may have been compacted when the run began, and
every
record there is sent to every lookup join. (2) No unread record may be lost with the log's beginning or with the topic.
(3) The zone below `settled` must not change while it is read. Its records are counted when the run begins and when its
first cut is complete. Nothing is added there, so an equal number means equal records. Fewer records mean that the
cleaner ran in between, and the run starts over.

With these rules the run has read the log as it was at one moment: all records after the last cleaning, and the newest
of
each key before it. Of a row whose delete was compacted before the run began, at most the tombstone is left. No record
would have added that row, so its tombstone may be ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from joins.steps.cuts import Offsets

# A query is refused this long before an unread record may be compacted. The margin is several times the interval
# between
# two checks, so that no record is read that was compacted since the last check.
_MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionNow:
    """The state of a partition: its first offset, its end, and the first offset of a record that is young enough.

    If no record is that young, `young` is the end.
    """

    low: int
    end: int
    young: int


Now = Mapping[str, Mapping[int, PartitionNow]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A query's progress in the log. `committed` is where it reads on (empty: from the beginning). `settled` (the
    compaction-safe offsets), the log's ends (`target`) and the topics' ids are as of the run's beginning.
    """

    committed: Offsets
    settled: Offsets
    target: Offsets
    topics: Mapping[str, str]


def lag_ms(settings: Mapping[str, str], wanted_ms: int) -> int | None:
    """Return the minimum age at which a topic with these settings compacts a record; None if it never does.

    `wanted_ms` is the topology's value. An external or older topic may have a smaller one.
    """
    if "compact" not in settings.get("cleanup.policy", "compact"):
        return None
    return min(wanted_ms, int(settings.get("min.compaction.lag.ms", wanted_ms)))


def settled_since(lag: int | None, wanted_ms: int, now_ms: int) -> int:
    """Return the time (ms) of the oldest record after `settled`: half of the lag is left for reading up to it."""
    return now_ms - (wanted_ms if lag is None else lag) // 2


def unread_since(lag: int | None, now_ms: int) -> int:
    """Return the time (ms) of the oldest record that may still be unread."""
    return 0 if lag is None else now_ms - lag + min(_MARGIN_MS, lag // 4)


def lost(reading: Reading, now: Now, topics: Mapping[str, str]) -> str | None:
    """Return which unread part of the log is lost, None if nothing is. `topics`: their current ids."""
    for topic, known in reading.topics.items():
        if topic in topics and topics[topic] != known:
            return f"topic {topic} was deleted and recreated: the join's state belongs to the former one"
    for topic, partition, wanted in _each(_further(reading.committed, reading.target)):
        found = now.get(topic, {}).get(partition)
        if found is None or found.end < wanted:
            ends = "is missing" if found is None else f"ends at {found.end}"
            return f"topic {topic} was deleted and recreated: partition {partition} {ends}, and was at {wanted} before"
    for topic, partition, read in _each(reading.committed):
        low = now[topic][partition].low
        if low > read:
            return (
                f"topic {topic}, partition {partition}: the log begins at offset {low}, and {read} was to be read next:"
                f" {low - read} offsets are gone"
            )
    return None


def suspects(reading: Reading, now: Now) -> list[tuple[str, int, int]]:
    """Return topic, partition and first offset of each partition that may hold unread records which are too old.

    The first record there decides: it is too old, or there is none because only transaction markers are left.
    """
    found = []
    for topic, partition, unread in _each(_further(reading.committed, reading.settled)):
        if unread < now[topic][partition].young:
            found.append((topic, partition, unread))
    return found


def too_old(topic: str, partition: int, offset: int, *, age_ms: int, lag: int) -> str:
    """Return why a query must not continue if its next record, `offset`, has this age."""
    return (
        f"topic {topic}, partition {partition}: the record at offset {offset} was not read yet and is {_span(age_ms)}"
        f" old; what is older than {_span(lag)} (min.compaction.lag.ms) may have been compacted"
    )


def thinned(before: Offsets, after: Offsets) -> dict[str, int]:
    """Return how many records each topic's zone lost between two counts; empty if the cleaner did nothing."""
    gone: dict[str, int] = {}
    for topic, partition, count in _each(before):
        fewer = count - after.get(topic, {}).get(partition, 0)
        if fewer:
            gone[topic] = gone.get(topic, 0) + fewer
    return gone


def compacted(zone: Offsets, lags: Mapping[str, int | None]) -> dict[str, dict[int, int]]:
    """Return the zone's partitions that hold anything and may be compacted: only their records must be counted."""
    return {
        topic: found
        for topic, partitions in zone.items()
        if lags[topic] is not None and (found := {p: end for p, end in partitions.items() if end > 0})
    }


def _further(one: Offsets, other: Offsets) -> dict[str, dict[int, int]]:
    """Return the greater offset for each partition that either argument names."""
    return {
        topic: {
            partition: max(one.get(topic, {}).get(partition, 0), other.get(topic, {}).get(partition, 0))
            for partition in {*one.get(topic, {}), *other.get(topic, {})}
        }
        for topic in {*one, *other}
    }


def _each(offsets: Offsets) -> Iterator[tuple[str, int, int]]:
    for topic in sorted(offsets):
        for partition in sorted(offsets[topic]):
            yield topic, partition, offsets[topic][partition]


def _span(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    for unit, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
