"""Decide whether a join may continue to read its topics: has Kafka's compaction removed records that it needs?

Kafka compacts records older than `min.compaction.lag.ms`: it keeps only the newest record of each key. A join that
misses records stays wrong. For example, it has seen a row with foreign key A. The record of the change from A to B
is gone. The record of the change from B to C then retracts the row from B, and the row stays joined with A. Or a
delete and its tombstone are gone, and the row stays forever.

The run of a join begins with an empty state. The *compaction-safe offsets* (`settled`) are taken then: records before
them may already have been compacted, so each of these records is sent to every lookup join. Three rules apply:

- When a join resumes, no unread record at or after these offsets may be old enough to have been compacted.
- No unread record may be lost because the topic was truncated or recreated.
- The records before these offsets must not change while they are read. They are counted when the run begins, and again
  when its first complete result is written. If there are fewer, the log cleaner ran in between. The run starts again.

So the run has read the log as it was at one moment. If a row's delete was compacted before the run began, at most its
tombstone is left, and no record would have added the row. So such a tombstone may be ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from joins.runtime.cuts import Offsets

# A query is refused this long before an unread record may be compacted. The margin is several times the interval
# between two checks, so that no record is read that was compacted since the last check.
_MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionNow:
    """The current state of a partition: its first offset `low`, its end, and the first offset of a recent record.

    `young` is that offset. It equals `end` if no record is recent enough."""

    low: int
    end: int
    young: int


Now = Mapping[str, Mapping[int, PartitionNow]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """The progress of a join in its topics. All values except `committed` are those of the beginning of its run.

    `committed`: the next offsets to read (empty: from the beginning). `settled`: the compaction-safe offsets.
    `target`: the ends of the log. `topics`: the topics' ids."""

    committed: Offsets
    settled: Offsets
    target: Offsets
    topics: Mapping[str, str]


def lag_ms(settings: Mapping[str, str], wanted_ms: int) -> int | None:
    """Return the age (ms) from which a topic with these settings compacts records. None if it never does.

    `wanted_ms` is the topology's setting. An external or older topic may have a smaller one."""
    if "compact" not in settings.get("cleanup.policy", "compact"):
        return None
    return min(wanted_ms, int(settings.get("min.compaction.lag.ms", wanted_ms)))


def settled_since(lag: int | None, wanted_ms: int, now_ms: int) -> int:
    """Return the time (ms) after which records are safe from compaction until a run that begins now has read them.

    It is half of the compaction lag before `now_ms`: the other half is left for reading. `lag` is None if the topic is
    not compacted; then `wanted_ms` is used."""
    return now_ms - (wanted_ms if lag is None else lag) // 2


def unread_since(lag: int | None, now_ms: int) -> int:
    """Return the time (ms) before which no record may be unread: such a record may soon be compacted, so the join must
    not continue. 0 if the topic is never compacted (`lag` is None)."""
    return 0 if lag is None else now_ms - lag + min(_MARGIN_MS, lag // 4)


def lost(reading: Reading, now: Now, topics: Mapping[str, str]) -> str | None:
    """Return a description of the unread records that are lost, or None. `topics` are the topics' current ids."""
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
    """Return (topic, partition, first unread offset) of partitions that may have unread records that are too old.

    The caller reads the first record there: either it is too old, or only transaction markers are left."""
    found = []
    for topic, partition, unread in _each(_further(reading.committed, reading.settled)):
        if unread < now[topic][partition].young:
            found.append((topic, partition, unread))
    return found


def too_old(topic: str, partition: int, offset: int, *, age_ms: int, lag: int) -> str:
    """Return the reason why a join must not continue if its next record is `age_ms` old."""
    return (
        f"topic {topic}, partition {partition}: the record at offset {offset} was not read yet and is {_span(age_ms)}"
        f" old; what is older than {_span(lag)} (min.compaction.lag.ms) may have been compacted"
    )


def thinned(before: Offsets, after: Offsets) -> dict[str, int]:
    """Return by topic how many records disappeared between two counts. Empty if compaction removed nothing."""
    gone: dict[str, int] = {}
    for topic, partition, count in _each(before):
        fewer = count - after.get(topic, {}).get(partition, 0)
        if fewer:
            gone[topic] = gone.get(topic, 0) + fewer
    return gone


def compacted(zone: Offsets, lags: Mapping[str, int | None]) -> dict[str, dict[int, int]]:
    """Return the partitions of `zone` that have records and may be compacted. Only their records must be counted."""
    return {
        topic: found
        for topic, partitions in zone.items()
        if lags[topic] is not None and (found := {p: end for p, end in partitions.items() if end > 0})
    }


def _further(one: Offsets, other: Offsets) -> dict[str, dict[int, int]]:
    """Return the greater of both offsets for each partition that either argument names."""
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
