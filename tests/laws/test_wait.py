"""A wait ends correctly whatever capture does: rows re-read or held back, a source that is reset, a lost Kafka.

The test models everything around the real parts: goals (`tailorbird.operate.wait.goal`), and the positions that a batch
may claim (`joins.runtime.cuts`). Transactions of a source write rows, some of them of tables that are not captured. The
capture publishes them into two partitions, several at a time, re-reads rows, is reset and publishes again (to marks at
which nothing was re-read). Batches end in the middle of its transactions. Barriers contain what `Cuts` returns, and
several waits, each begun at any moment, read them.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from hypothesis import event, given, settings
from hypothesis import strategies as st

from cdc.model.event import Position
from joins.runtime.cuts import Cuts, SourcePosition
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.wait.goal import Goal, logged, shows

UUID = "4b5c2c6e-0000-4000-8000-000000000001"
TOPIC, ROWS, PARTITIONS = "t.shop.shop.orders", 6, 2


class World:
    """A source, its log and a table over it; `shown` is the table at the last barrier."""

    def __init__(self, chance: Random, *, gtids: bool) -> None:
        self.chance, self.gtids = chance, gtids
        self.written: list[dict[int, int]] = [{}]  # by transaction: row → value, which only grows
        self.place = self.furthest = 0  # the current and the greatest position of the capture
        self.first = 0  # where the log begins: later than 0 once Kafka was lost
        self.log: list[list[tuple[int, int]]] = [[] for _ in range(PARTITIONS)]
        self.records: list[tuple[CapturedPosition, SourcePosition]] = []
        self.reading = False
        self.cuts, self.heard = Cuts({}), 0
        self.ends, self.joined = [0] * PARTITIONS, 0
        self.table: dict[int, int] = {}
        self.shown: dict[int, int] = {}
        self.reported: Mapping[str, Mapping[str, Any]] = {}

    def commit(self) -> Goal:
        """Commit a transaction at the source; return its position, as a goal for a wait."""
        rows = self.chance.sample(range(ROWS), self.chance.choice([0, 1, 1, 2]))
        self.written.append(dict.fromkeys(rows, len(self.written)))
        last = len(self.written) - 1
        gtid_set = f"{UUID}:1-{last}" if self.gtids else ""
        return Goal(source="shop", position=Position(file="binlog.000001", pos=last, gtid_set=gtid_set, sequence=0))

    def capture(self) -> None:
        """Commit one Kafka transaction of the capture, sometimes one that resets it, or begins or ends a re-read."""
        what = self.chance.random()
        if what < 0.08 and self.place and not self.reading:
            self.place = self.chance.randrange(self.place)
        elif what < 0.2:
            self.reading = not self.reading
        elif what < 0.4 and self.reading:
            row = self.chance.randrange(ROWS)
            self._publish(row, max((some[row] for some in self.written if row in some), default=0))
        else:
            for _ in range(self.chance.randrange(1, 4)):
                if self.place + 1 < len(self.written):
                    self.place += 1
                    for row, value in self.written[self.place].items():
                        self._publish(row, value)
        self.furthest = max(self.furthest, self.place)
        self._record()

    def lose_kafka(self) -> None:
        """Lose the log. Capture reads all rows again into a new one, whose offsets and sequences begin at 0, and the
        join is built again; what it showed before stays until then."""
        self.place = self.first = self.furthest = len(self.written) - 1
        self.log, self.records, self.reading = [[] for _ in range(PARTITIONS)], [], False
        self.cuts, self.heard, self.joined = Cuts({}), 0, 0
        self.ends, self.table = [0] * PARTITIONS, {}
        for row in range(ROWS):
            self._publish(row, max((some[row] for some in self.written if row in some), default=0))
        self._record()

    def _publish(self, row: int, value: int) -> None:
        self.log[row % PARTITIONS].append((row, value))

    def _record(self) -> None:
        offset, whole = len(self.records), not self.reading
        gtid_set = f"{UUID}:1-{self.place}" if self.gtids and self.place else ""
        sequence = sum(len(rows) for rows in self.written[self.first : self.place + 1])
        ends = {TOPIC: {partition: len(events) for partition, events in enumerate(self.log)}}
        known = CapturedPosition(
            gtid_set=gtid_set, sequence=sequence, snapshot="done", file="binlog.000001", pos=self.place,
            offset=offset, whole=whole,
        )  # fmt: skip
        position = SourcePosition(
            source="shop", sequence=sequence, gtid_set=gtid_set, file="binlog.000001", pos=self.place,
            offset=offset, ends=ends, whole=whole,
        )  # fmt: skip
        self.records.append((known, position))

    def batch(self) -> None:
        """Run a batch, then write its barrier, by the positions that were committed when it was planned.

        It ends where the log ended at some moment, but may have any part of a transaction: its commit becomes visible
        in
        one partition after the other.
        """
        if not self.records:
            return
        at = self.chance.randint(self.joined, len(self.records) - 1)
        self.joined = at
        behind = min(at + self.chance.randrange(2), len(self.records) - 1)
        for partition, events in enumerate(self.log):
            end = self.records[self.chance.choice([at, behind])][1].ends[TOPIC][partition]
            for row, value in events[self.ends[partition] : end]:
                self.table[row] = value
            self.ends[partition] = max(end, self.ends[partition])
        for _, position in self.records[self.heard :]:
            self.cuts.add(position)
        self.heard = len(self.records)
        self.reported = self.cuts.cover({TOPIC: dict(enumerate(self.ends))})
        self.shown = dict(self.table)


class Wait:
    """A wait with the steps of `tailorbird.operate.wait.run_wait.Waiter.wait`: the log first, then the barriers."""

    def __init__(self, goal: Goal) -> None:
        self.goal, self.done = goal, False
        self.record: CapturedPosition | None = None

    def look(self, world: World) -> None:
        """Look once at the log, and once at the barriers."""
        if self.record is None:
            lately = world.records[-world.chance.choice([1, 3, 20]) :]
            self.record = logged(self.goal, [known for known, _ in lately])
        if self.record is not None:
            self.done = shows(world.reported, self.goal, self.record)


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.booleans())
def test_a_wait_ends_when_its_goal_is_shown(seed: int, gtids: bool) -> None:
    """After a wait the table shows each row as the goal or a later transaction left it, however often capture was reset
    or re-read rows; once all is captured and joined every wait has ended."""
    chance = Random(seed)
    world, waits, ended = World(chance, gtids=gtids), list[Wait](), 0

    def look() -> None:
        nonlocal ended
        for wait in waits:
            wait.look(world)
            if wait.done:
                ended += 1
                goal = wait.goal.position.pos
                for row in range(ROWS):
                    least = max((some[row] for some in world.written[: goal + 1] if row in some), default=0)
                    assert world.shown.get(row, 0) >= least, (row, goal, world.reported)
        waits[:] = [wait for wait in waits if not wait.done]

    for _ in range(chance.randrange(20, 120)):
        step = chance.random()
        if step < 0.3:
            waits.append(Wait(world.commit()))
        elif step < 0.64:
            world.capture()
        elif step < 0.66:
            world.lose_kafka()
            waits[:] = [Wait(wait.goal) for wait in waits]  # begun again
        else:
            world.batch()
        look()
    before = ended
    world.reading = False
    while world.place + 1 < len(world.written):
        world.capture()
        world.reading = False
    world._record()
    look()
    world.joined = len(world.records) - 1
    world.batch()
    look()
    assert not waits, [(str(wait.goal), wait.record) for wait in waits]
    event(f"{min(before, 20)} waits ended under way")
