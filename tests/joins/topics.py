"""Simulate Kafka's change topics in memory, with a cleaner, and the runs of a join that reads them.

A run checks the log before it reads, as `joins.run_join` does, and starts over when `joins.stores.compaction` requires
it. Then the table holds what the new run has written, since the sweep deletes the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from random import Random

from joins.query.plan import Plan
from joins.runtime.records import Message
from joins.steps.route import PhaseEndedError
from joins.steps.truncation import Past
from joins.stores import compaction
from joins.stores.compaction import PartitionNow, Reading
from tests.joins.quick import evaluator
from tests.joins.simulation import Logged, Simulation

LAG = 600_000  # ms
At = tuple[str, int]


@dataclass
class Topics:
    """The committed records with their times; a lost topic is recreated empty."""

    names: tuple[str, ...]
    partitions: int
    chance: Random
    now: int = 10 * LAG
    logs: dict[At, list[tuple[int, Logged]]] = field(default_factory=dict)
    ends: dict[At, int] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        for name in self.names:
            self.lose(name)

    def lose(self, topic: str) -> None:
        """Delete and recreate the topic."""
        self.made[topic] += 1
        for partition in range(self.partitions):
            self.logs[topic, partition], self.ends[topic, partition] = [], 0

    def publish(self, topic: str, key: bytes, value: bytes | None, partitions: Iterable[int]) -> None:
        """Publish one record, or one to each of these partitions."""
        for partition in partitions:
            at = (topic, partition)
            one = Logged(topic=topic, partition=partition, offset=self.ends[at], key=key, value=value)
            self.logs[at].append((self.now, one))
            self.ends[at] += 1

    def clean(self) -> None:
        """Run the cleaner somewhere: of old enough records it keeps the newest one of each key."""
        for at, log in self.logs.items():
            old = sum(reported < self.now - LAG for reported, _ in log)
            done = self.chance.choice([0, old, self.chance.randint(0, old)])
            newest = {one.key: one.offset for _, one in log[:done]}
            kept = [
                (reported, one)
                for reported, one in log[:done]
                if newest[one.key] == one.offset and (one.value is not None or reported > self.now - 2 * LAG)
            ]
            self.logs[at] = kept + log[done:]

    def behind(self, at: At, offset: int) -> list[Logged]:
        """Return the records of a partition from an offset on."""
        return [one for _, one in self.logs[at] if one.offset >= offset]

    def offsets(self, of: Callable[[At], int]) -> dict[str, dict[int, int]]:
        """Return a number per partition."""
        found: dict[str, dict[int, int]] = {}
        for at in self.logs:
            found.setdefault(at[0], {})[at[1]] = of(at)
        return found

    def young(self, at: At, since: int) -> int:
        """Return the first offset of a record that is not older."""
        return next((one.offset for reported, one in self.logs[at] if reported >= since), self.ends[at])

    def count(self, zone: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
        """Count the records of each partition of a zone."""
        return self.offsets(lambda at: sum(one.offset < zone[at[0]][at[1]] for _, one in self.logs[at]))

    @property
    def ids(self) -> dict[str, str]:
        """Return the ids that distinguish topics of the same name."""
        return {name: str(self.made[name]) for name in self.names}


class _Reads(Simulation):
    """The plan's steps over the current topics: markers read again what the cleaner has left."""

    topics: Topics

    def _before(self, at: At, offset: int) -> list[Past]:
        return [(one.offset, one.key, one.value) for _, one in self.topics.logs[at] if one.offset < offset]


class Runs:
    """The join of a plan: it reads random batches, and starts over when its log has changed."""

    def __init__(self, plan: Plan, topics: Topics, chance: Random) -> None:
        self.plan, self.topics, self.chance = plan, topics, chance
        self.begun = 0
        self.exact_from: dict[str, int] = {}  # by table: the number of the first exact phase that is added up
        self.begin()

    def begin(self) -> None:
        """Start with an empty state, at the log's beginning."""
        topics = self.topics
        since = compaction.settled_since(LAG, LAG, topics.now)
        self.settled = topics.offsets(lambda at: topics.young(at, since))
        self.target = topics.offsets(topics.ends.__getitem__)
        self.counts, self.ids, self.complete = topics.count(self.settled), topics.ids, False
        self.at = dict.fromkeys(topics.logs, 0)
        self.simulation = _Reads(
            self.plan,
            self.settled,
            evaluator(),
            ends=self.target,
            exact_from=self.exact_from,
            shuffle=self._shuffled,
            most=self.chance.choice([2, 99]),
        )
        self.simulation.topics = topics
        self.begun += 1
        assert self.begun < 100, "the join starts over again and again"

    def deliver(self, *, everything: bool = False) -> None:
        """Deliver a batch of what is committed, or batches up to the end, with uneven progress of the partitions."""
        chance, topics = self.chance, self.topics
        while True:
            if self._refused():
                self.begin()
            topics.now += chance.randint(0, 5)
            if chance.random() < 0.1:
                topics.clean()
            taken = []
            for at in topics.logs:
                waiting = topics.behind(at, self.at[at])
                taken.append(waiting[: chance.randint(0, len(waiting))])
                self.at[at] = taken[-1][-1].offset + 1 if taken[-1] else self.at[at]
            try:
                for last in (*[False] * chance.choice([0, 0, 0, 1]), True):
                    self.simulation.run_batch(
                        self._interleaved(taken), now_ms=topics.now + chance.randint(-5, 5), commit=last
                    )
            except PhaseEndedError as ended:
                self.exact_from[ended.name] = ended.number + 1
                self.begin()
                continue
            if not self.complete and all(self.at[at] >= self._wanted(at) for at in topics.logs):
                self.complete = True
                if compaction.thinned(self.counts, topics.count(self.settled)):
                    self.begin()
            if not everything or not any(topics.behind(at, self.at[at]) for at in topics.logs):
                return

    def _wanted(self, at: At) -> int:
        """Return the target of the run's first cut: the last record there may be gone."""
        return max(
            (one.offset + 1 for _, one in self.topics.logs[at] if one.offset < self.target[at[0]][at[1]]), default=0
        )

    def _refused(self) -> bool:
        """Return whether the query must not continue."""
        topics = self.topics
        since = compaction.unread_since(LAG, topics.now)
        now = {
            topic: {p: PartitionNow(low=0, end=topics.ends[topic, p], young=young) for p, young in partitions.items()}
            for topic, partitions in topics.offsets(lambda at: topics.young(at, since)).items()
        }
        at = topics.offsets(self.at.__getitem__)
        reading = Reading(committed=at, settled=self.settled, target=self.target, topics=self.ids)
        if compaction.lost(reading, now, topics.ids) is not None:
            return True
        for topic, partition, unread in compaction.suspects(reading, now):
            first = next((reported for reported, one in topics.logs[topic, partition] if one.offset >= unread), None)
            if first is not None and first < since:
                return True
        return False

    def _shuffled(self, messages: list[Message]) -> list[Message]:
        return self.chance.sample(messages, len(messages))

    def _interleaved(self, queues: list[list[Logged]]) -> list[Logged]:
        waiting = [list(queue) for queue in queues if queue]
        result = []
        while waiting:
            result.append(self.chance.choice(waiting).pop(0))
            waiting = [queue for queue in waiting if queue]
        return result
