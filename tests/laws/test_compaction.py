"""Properties of reading while Kafka's cleaner runs: when a query publishes something, it has read the log as it was
when
its run began and all later records, whenever the cleaner runs and however long the query stands still."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest

from joins.stores import compaction
from joins.stores.compaction import PartitionNow, Reading

LAG = 600_000  # ms
LOOK = 10_000  # between two checks of the log
TOPIC, PARTITION = "t", 0
IDS = {TOPIC: "one"}


@dataclass
class Cleaned:
    """A partition with a few keys, and the records that the cleaner has removed."""

    chance: random.Random
    now: int = 10 * LAG
    end: int = 0
    records: dict[int, tuple[int, str]] = field(default_factory=dict)  # offset → time, key
    all: list[int] = field(default_factory=list)

    def publish(self, age: int = 0) -> None:
        self.records[self.end] = (self.now - age, self.chance.choice("abc"))
        self.all.append(self.end)
        self.end += 1

    def clean(self) -> None:
        """Keep only the newest record of each key among old enough ones."""
        kept: set[str] = set()
        for offset in sorted(self.records, reverse=True):
            at, key = self.records[offset]
            if at >= self.now - LAG:
                continue
            if key in kept:
                del self.records[offset]
            kept.add(key)

    def partition(self, since: int) -> PartitionNow:
        young = next((offset for offset in sorted(self.records) if self.records[offset][0] >= since), self.end)
        return PartitionNow(low=0, end=self.end, young=young)

    def count(self, end: int) -> dict[str, dict[int, int]]:
        return {TOPIC: {PARTITION: sum(offset < end for offset in self.records)}}


@dataclass
class Run:
    """A query's run: what the log held when it began, and what it has read since."""

    log: Cleaned
    settled: int = 0
    at: int = 0
    read: list[int] = field(default_factory=list)
    complete: bool = False

    def __post_init__(self) -> None:
        log = self.log
        self.settled = min(log.end, log.partition(compaction.settled_since(LAG, LAG, log.now)).young)
        self.found, self.counts = sorted(log.records), log.count(self.settled)
        self.target = log.end

    def refused(self) -> bool:
        log = self.log
        since = compaction.unread_since(LAG, log.now)
        reading = Reading(
            committed={TOPIC: {PARTITION: self.at}},
            settled={TOPIC: {PARTITION: self.settled}},
            target={TOPIC: {PARTITION: self.target}},
            topics=IDS,
        )
        now = {TOPIC: {PARTITION: log.partition(since)}}
        assert compaction.lost(reading, now, IDS) is None
        for _, _, unread in compaction.suspects(reading, now):
            first = next((offset for offset in sorted(log.records) if offset >= unread), None)
            if first is not None and log.records[first][0] < since:
                return True
        return False

    def step(self) -> bool:
        """Read on; False if the run must start over."""
        log = self.log
        for offset in sorted(offset for offset in log.records if offset >= self.at)[: log.chance.randrange(1, 9)]:
            self.read.append(offset)
            self.at = offset + 1
        if self.at >= self.target and not self.complete:
            if compaction.thinned(self.counts, log.count(self.settled)):
                return False
            self.complete = True
        if self.complete:
            begun = [offset for offset in self.found if offset < self.target]
            came = [offset for offset in log.all if self.target <= offset < self.at]
            assert self.read == [*begun, *came], "a record was removed before it was read"
        return True


def run_schedule(seed: int) -> Counter[str]:
    chance, ends = random.Random(seed), Counter[str]()
    log = Cleaned(chance)
    for age in sorted((chance.randrange(3 * LAG) for _ in range(chance.randrange(40))), reverse=True):
        log.publish(age)
    run = Run(log)
    for _ in range(150):
        match chance.choice(["publish", "clean", "read", "read", "read", "stand still"]):
            case "publish":
                for _ in range(chance.randrange(6)):
                    log.publish()
            case "clean":
                log.clean()
            case "stand still":
                log.now += chance.choice([LOOK, LAG // 4, LAG])
            case _:
                if run.refused():
                    ends["refused"] += 1
                    run = Run(log)
                    continue
                log.now += chance.randrange(LOOK)
                if chance.random() < 0.3:
                    log.clean()  # between the check and the read
                if not run.step():
                    ends["begun again"] += 1
                    run = Run(log)
                elif run.complete:
                    ends["complete"] += 1
    return ends


def run_schedules() -> Counter[str]:
    ends = Counter[str]()
    for seed in range(400):
        ends += run_schedule(seed)
    return ends


def test_what_is_read_was_there() -> None:
    """No complete run misses a record, whatever the cleaner does and however long the query stands still. Runs are
    refused, start over and complete, so the test is not vacuous."""
    ends = run_schedules()
    assert min(ends["refused"], ends["begun again"], ends["complete"]) > 50, ends


def test_the_law_notices_a_query_that_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the query continues regardless of the next record's age, the test finds the removed record."""
    monkeypatch.setattr(Run, "refused", lambda self: False)
    with pytest.raises(AssertionError, match="was removed"):
        run_schedules()


def test_the_law_notices_a_run_that_counts_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the second count, the cleaner changes the zone unnoticed while it is read."""
    monkeypatch.setattr(compaction, "thinned", lambda before, after: {})
    with pytest.raises(AssertionError, match="was removed"):
        run_schedules()


def reading(committed: int, *, settled: int = 0, target: int = 0, topic: str = "one") -> Reading:
    return Reading(
        committed={TOPIC: {0: committed}}, settled={TOPIC: {0: settled}}, target={TOPIC: {0: target}},
        topics={TOPIC: topic},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("known", "now", "said"),
    [
        (reading(5), PartitionNow(low=0, end=5, young=5), None),
        (reading(5), PartitionNow(low=7, end=9, young=9), "begins at offset 7, and 5 was to be read next: 2 offsets"),
        (reading(5), PartitionNow(low=0, end=3, young=3), "deleted and recreated: partition 0 ends at 3, and was at 5"),
        (reading(2, target=8), PartitionNow(low=0, end=7, young=7), "ends at 7, and was at 8 before"),
        (reading(5, topic="other"), PartitionNow(low=0, end=9, young=9), "topic t was deleted and recreated"),
    ],
)
def test_what_is_lost_is_named(known: Reading, now: PartitionNow, said: str | None) -> None:
    """The log begins after the next record, or ends before it, or the topic is another one: each has its own
    message."""
    found = compaction.lost(known, {TOPIC: {0: now}}, IDS)
    assert found is None if said is None else said in (found or "")


def test_a_topic_that_is_gone_is_named() -> None:
    """A missing partition is reported as well."""
    assert "partition 0 is missing" in (compaction.lost(reading(5), {}, {}) or "")


@pytest.mark.parametrize(
    ("settings", "lag"),
    [
        ({"cleanup.policy": "compact", "min.compaction.lag.ms": "1000"}, 1000),
        ({"cleanup.policy": "compact,delete", "min.compaction.lag.ms": "9000"}, 5000),
        ({"cleanup.policy": "delete", "min.compaction.lag.ms": "0"}, None),
        ({}, 5000),
    ],
)
def test_the_smaller_lag_counts(settings: dict[str, str], lag: int | None) -> None:
    """An external topic may be compacted sooner than configured; one that is never compacted refuses no query."""
    assert compaction.lag_ms(settings, 5000) == lag


def test_the_message_says_how_old() -> None:
    """The message contains the offset, its age and the topic's lag."""
    reported = compaction.too_old("t", 1, 7, age_ms=9 * 86_400_000, lag=7 * 86_400_000)
    assert "offset 7 was not read yet and is 9.0 days old; what is older than 7.0 days" in reported
