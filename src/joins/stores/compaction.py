"""Whether a query may go on: does the log still hold, unthinned, what the query has yet to read?

Kafka compacts what is older than `min.compaction.lag.ms`: of a key's records it leaves the newest. A join that reads a
row's records with some of them missing is wrong for good: it has seen the row at A, the move from A to B is gone, and
the move from B to C retracts the row from B only. Or the delete is gone, with its tombstone in the end, and the row
stays.

So three rules. (1) Where a query goes on, no record that it has yet to read may be so old that it may have been
compacted; but for the zone below `settled`, where compaction may have been when the run began and every record is told
to every hop. (2) Nothing that it has yet to read may be gone altogether, with the log's beginning or with the topic.
(3) The zone below `settled` must have been the same all the while that it was read: its records are counted when the
run begins and when its first cut is complete. Nothing is added there, so an equal number means equal records; fewer
means that the cleaner worked meanwhile, and the run begins again. Then what the run has read is the log as it stood at
one moment: of each key all records behind the last cleaning, and of those before it the newest. Of a row whose delete
was compacted away before it began nothing is left but the tombstone, or not even that: there is no record that would
have brought the row, so the tombstone has nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from joins.steps.cuts import Offsets

# How long before a record may be compacted a query that has not read it is refused: several times what passes between
# two looks, so that none is read that was compacted since the last one.
_MARGIN_MS = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionNow:
    """A partition as it is: its first offset, its end, and the first offset of a record that is not too old.

    Where no record is that young, `young` is the end.
    """

    low: int
    end: int
    young: int


Now = Mapping[str, Mapping[int, PartitionNow]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a query has of the log: `committed`, where it reads on (nothing: from the beginning); as of the run's
    beginning `settled`, the log's ends (`target`) and the topics' ids at the broker.
    """

    committed: Offsets
    settled: Offsets
    target: Offsets
    topics: Mapping[str, str]


def lag_ms(settings: Mapping[str, str], wanted_ms: int) -> int | None:
    """How old a record of a topic with these settings is at least when it may be compacted; None: it never is.

    `wanted_ms` is the topology's. The topic may say less, since it was made by others or before.
    """
    if "compact" not in settings.get("cleanup.policy", "compact"):
        return None
    return min(wanted_ms, int(settings.get("min.compaction.lag.ms", wanted_ms)))


def settled_since(lag: int | None, wanted_ms: int, now_ms: int) -> int:
    """The time (ms) of the oldest record that lies behind `settled`: half of the lag is left for reading up to it."""
    return now_ms - (wanted_ms if lag is None else lag) // 2


def unread_since(lag: int | None, now_ms: int) -> int:
    """The time (ms) of the oldest record that a query may have yet to read."""
    return 0 if lag is None else now_ms - lag + min(_MARGIN_MS, lag // 4)


def lost(reading: Reading, now: Now, topics: Mapping[str, str]) -> str | None:
    """What is gone altogether of what the query has yet to read; None if nothing is. `topics`: their ids now."""
    for topic, known in reading.topics.items():
        if topic in topics and topics[topic] != known:
            return f"topic {topic} was deleted and made anew: the join's state is of the former one"
    for topic, partition, wanted in _each(_further(reading.committed, reading.target)):
        found = now.get(topic, {}).get(partition)
        if found is None or found.end < wanted:
            ends = "is not there" if found is None else f"ends at {found.end}"
            return f"topic {topic} was deleted and made anew: partition {partition} {ends}, and was at {wanted} before"
    for topic, partition, read in _each(reading.committed):
        low = now[topic][partition].low
        if low > read:
            return (
                f"topic {topic}, partition {partition}: the log begins at offset {low}, and {read} was to be read next:"
                f" {low - read} offsets are gone"
            )
    return None


def suspects(reading: Reading, now: Now) -> list[tuple[str, int, int]]:
    """Topic, partition and offset from which on records may be too old, of each partition where there may be some.

    The first record there tells: it is too old, or there is none, since what lies there are but transactions' marks.
    """
    found = []
    for topic, partition, unread in _each(_further(reading.committed, reading.settled)):
        if unread < now[topic][partition].young:
            found.append((topic, partition, unread))
    return found


def too_old(topic: str, partition: int, offset: int, *, age_ms: int, lag: int) -> str:
    """Why a query must not go on whose next record, `offset`, is that old."""
    return (
        f"topic {topic}, partition {partition}: the record at offset {offset} was not read yet and is {_span(age_ms)}"
        f" old; what is older than {_span(lag)} (min.compaction.lag.ms) may have been compacted"
    )


def thinned(before: Offsets, after: Offsets) -> dict[str, int]:
    """How many records each topic's zone has lost between two counts; empty where the cleaner did nothing."""
    gone: dict[str, int] = {}
    for topic, partition, count in _each(before):
        fewer = count - after.get(topic, {}).get(partition, 0)
        if fewer:
            gone[topic] = gone.get(topic, 0) + fewer
    return gone


def compacted(zone: Offsets, lags: Mapping[str, int | None]) -> dict[str, dict[int, int]]:
    """The zone's partitions that hold anything and may be compacted: those whose records need be counted."""
    return {
        topic: found
        for topic, partitions in zone.items()
        if lags[topic] is not None and (found := {p: end for p, end in partitions.items() if end > 0})
    }


def _further(one: Offsets, other: Offsets) -> dict[str, dict[int, int]]:
    """The greater offset of each partition that either names."""
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
