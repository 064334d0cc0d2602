"""Polling without servers: for any late commits and crashes, every row's last version is published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.model.errors import Fatal, Retriable
from cdc.model.naming import change_topic, schemas_topic
from cdc.model.polling import Poll, PollMode
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical
from ingest.capture.signals import Signal, Signals
from ingest.events.log_events import Image
from ingest.log.memory_log import Broker, MemoryLog
from ingest.poll.poll_interfaces import Ask, Look, PolledRow, cursor_of, fingerprint, moment_of
from ingest.poll.session import PollObserver, PollSession
from ingest.poll.window import SLACK, Window
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.records import Recorder

SECOND = 1_000_000
TABLE = TableId(source="s", database="d", table="t")
SCHEMA = TableSchema(
    table_id=TABLE,
    version=1,
    columns=(
        Column(name="id", column_type="int", nullable=False),
        Column(name="v", column_type="int"),
        Column(name="updated_at", column_type="datetime(6)", nullable=False),
    ),
    primary_key=("id",),
)
TOPIC = change_topic("top", TABLE)


@dataclass
class Database:
    """A table written by transactions that take time, under a clock that may step; real time passes with each step."""

    random: Random
    lag: int
    crash: float = 0.0
    steps_back: list[int] = field(default_factory=list)
    granularity: int = 1
    zone: int = 0  # how far the server's clock is ahead of the clock that cursors are taken from
    now: int = 1_000 * SECOND
    offset: int = 0
    busy: bool = True
    known: bool = False  # something is committed: a step before that shows only in the server's own zone
    rows: dict[int, tuple[int, int]] = field(default_factory=dict)  # key → cursor, value
    open: list[tuple[int, dict[int, tuple[int, int]]]] = field(default_factory=list)  # commit time → rows
    deletes: bool = False
    written: int = 0
    pages: int = 0

    @property
    def clock(self) -> int:
        return (self.now + self.offset) // self.granularity * self.granularity

    def step(self) -> None:
        """Let a little time pass while a reader works; it may be killed."""
        if self.random.random() < 0.2:
            self.pass_time(SECOND // 10)
        self.commit()  # everything due by now becomes visible, otherwise it would be later than `lag`
        if self.deletes and self.busy and self.rows and self.random.random() < 0.3:
            locked = {key for _, rows in self.open for key in rows}
            if (key := self.random.choice(list(self.rows))) not in locked:
                del self.rows[key]
        if self.random.random() < self.crash:
            raise Retriable("killed")

    def pass_time(self, most: int) -> None:
        """Let time pass; transactions begin and commit, late ones with the timestamp of their statement."""
        for _ in range(self.random.randint(0, 3)):
            self.now += self.random.randint(0, most)
            if self.steps_back and (self.known or not self.zone) and self.random.random() < 0.1:
                self.offset -= self.steps_back.pop()
            if self.busy and self.random.random() < 0.7:
                self.write()
            self.commit()

    def write(self) -> None:
        touched = {}
        locked = {key for _, rows in self.open for key in rows}
        for _ in range(self.random.choice((1, 1, 2, 9))):
            key = self.random.randint(1, 30)
            if key not in locked:  # a row stays locked until its transaction commits
                self.written += 1
                touched[key] = (self.clock, self.written)
        self.open.append((self.now + self.random.choice((0, 0, self.random.randint(0, self.lag))), touched))

    def commit(self) -> None:
        for due, rows in list(self.open):
            if due <= self.now:
                self.rows.update(rows)
                self.open.remove((due, rows))

    def settle(self) -> None:
        """Stop writing, and commit everything open."""
        self.busy, self.crash, self.steps_back = False, 0.0, []
        self.now += self.lag
        self.commit()

    # the reader's view

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        return {TABLE: SCHEMA}

    def look(self, schema: TableSchema) -> Look:
        clock = self.clock
        self.step()
        return Look(clock=clock + self.zone, newest=max((cursor for cursor, _ in self.rows.values()), default=None))

    def page(self, schema: TableSchema, ask: Ask) -> list[PolledRow]:
        self.step()
        self.pages += 1
        assert self.pages < 20_000, "polling does not come to an end"
        found = sorted((cursor, key, value) for key, (cursor, value) in self.rows.items())
        if ask.after is not None:
            found = [row for row in found if row[0] == ask.start and row[1] > int(str(ask.after[0]))]
        elif ask.start is not None:
            found = [row for row in found if row[0] >= ask.start]
        return [row_of(*row) for row in found[: ask.limit]]

    def walk(
        self, schema: TableSchema, after: list[Any] | None, where: str, limit: int
    ) -> tuple[list[Image], list[Any] | None]:
        self.step()
        keys = sorted(key for key in self.rows if after is None or key > after[0])[:limit]
        images = [row_of(self.rows[key][0], key, self.rows[key][1]).image for key in keys]
        return images, [keys[-1]] if len(keys) == limit else None

    def unassigned(self, schema: TableSchema, limit: int) -> int:
        return 0

    def backlog(self, schema: TableSchema, start: int | None, limit: int) -> int:
        waiting = [cursor for cursor, _ in self.rows.values() if start is None or cursor >= start]
        return min(len(waiting), limit)


def row_of(cursor: int, key: int, value: int = 0) -> PolledRow:
    image: dict[str, Canonical] = {"id": key, "v": value, "updated_at": moment_of(cursor).isoformat() + "Z"}
    return PolledRow(cursor=cursor, key=(key,), fingerprint=fingerprint((cursor, key, value)), image=image)


class Dying(MemoryLog):
    """A log whose process dies now and then: before a commit, or after it but before the answer."""

    def __init__(self, broker: Broker, database: Database) -> None:
        super().__init__(broker, schemas_topic("top"))
        self.database = database

    def append(self, record: Record) -> None:
        super().append(record)
        self._die()

    def commit(self, checkpoint: Checkpoint) -> None:
        self._die()
        super().commit(checkpoint)
        self.database.known = True
        self._die()

    def _die(self) -> None:
        if self.database.random.random() < self.database.crash / 4:
            raise Retriable("killed")


@dataclass
class Asked:
    """Requests dumps now and then, and once more after the last write."""

    database: Database
    sent: list[Signal] = field(default_factory=list)
    settled: bool = False

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        start = len(self.sent) if start is None else start
        if self.database.random.random() < 0.2 if self.database.busy else not self.settled:
            self.sent.append(Signal(type="execute-snapshot", tables=("d.t",)))
            self.settled = not self.database.busy
        self.database.step()
        return self.sent[start:], len(self.sent)


def poll_all(database: Database, *, limit: int, cycles: int, signals: Signals | None = None) -> list[dict[str, Any]]:
    """Poll for some cycles under traffic, then until all is published; return the envelopes in the log's order."""
    broker = Broker()
    left = [cycles]

    def wait(seconds: float) -> None:
        left[0] -= 1
        if left[0] == 0:
            database.settle()
        database.now += int(seconds * 1e6)
        database.pass_time(SECOND)

    while left[0] > -3:
        session = PollSession(
            reader=database,
            log=Dying(broker, database),
            recorder=Recorder("top"),
            poll=Poll(cursor="updated_at", mode="updated_at", limit=limit, interval=1.0, lag=database.lag / 1e6),
            clock=lambda: database.now / 1e6,
            stopped=lambda: left[0] <= -3,
            wait=wait,
            observer=PollObserver(),
            signals=signals,
            rows=7,
            idle_commit=5.0,
        )
        try:
            session.run()
        except Retriable:
            wait(0.5)
    return [orjson.loads(record.value) for record in broker.records if record.topic == TOPIC and record.value]


def reported(envelopes: list[dict[str, Any]]) -> dict[int, tuple[int, int]]:
    """Return the newest published version of every row, by sequence."""
    return {e["after"]["id"]: (e["source"]["ts_ms"], e["after"]["v"]) for e in envelopes}


def expected(database: Database) -> dict[int, tuple[int, int]]:
    return {key: (cursor // 1000, value) for key, (cursor, value) in database.rows.items()}


def folded(envelopes: list[dict[str, Any]]) -> dict[int, int]:
    """Return the state of a reader that keeps the greatest sequence of each row, and applies markers."""
    rows: dict[int, tuple[int, int]] = {}
    for envelope in envelopes:
        number, after = envelope["source"]["sequence"], envelope["after"]
        if envelope["op"] == "t":
            rows = {key: row for key, row in rows.items() if row[0] >= number}
        elif after["id"] not in rows or number > rows[after["id"]][0]:
            rows[after["id"]] = number, after["v"]
    return {key: value for key, (_, value) in rows.items()}


ZONES = [0, 2 * 3600 * SECOND, -5 * 3600 * SECOND]
seeds, limits = st.integers(0, 2**32), st.integers(1, 6)


@settings(deadline=None)  # the machine may be busy
@given(
    seeds,
    limits,
    st.integers(0, 8),
    st.sampled_from([1, 1000, SECOND]),
    st.sampled_from([0.0, 0.02, 0.1]),
    st.sampled_from(ZONES),
)
def test_late_commits_and_shared_timestamps_lose_nothing(
    seed: int, limit: int, lag: int, granularity: int, crash: float, zone: int
) -> None:
    """Every row's last version is published exactly once, although transactions commit up to `lag` late."""
    database = Database(random=Random(seed), lag=lag * SECOND, crash=crash, granularity=granularity, zone=zone)
    envelopes = poll_all(database, limit=limit, cycles=25)
    assert reported(envelopes) == expected(database)
    versions = [(e["after"]["id"], e["after"]["v"]) for e in envelopes]
    assert len(versions) == len(set(versions)), "a version was published twice"
    assert [e["source"]["sequence"] for e in envelopes] == list(range(1, len(envelopes) + 1))
    assert all(e["source"]["last_update_only"] and e["op"] == "r" and e["before"] is None for e in envelopes)


@settings(deadline=None, max_examples=40)  # the machine may be busy
@given(seeds, limits, st.integers(0, 8), st.sampled_from([0.0, 0.02, 0.1]))
def test_dumps_during_traffic_lose_nothing_and_find_what_is_gone(seed: int, limit: int, lag: int, crash: float) -> None:
    """Dumps begin and are killed at any time, with late commits and deletes: after the last one the log holds the
    table,
    and no row was ever published in an older version than before."""
    database = Database(random=Random(seed), lag=lag * SECOND, crash=crash, deletes=True)
    envelopes = poll_all(database, limit=limit, cycles=25, signals=Asked(database))
    assert folded(envelopes) == {key: value for key, (_, value) in database.rows.items()}
    newest: dict[int, int] = {}
    for envelope in envelopes:
        if envelope["op"] == "r":
            row = envelope["after"]
            assert row["v"] >= newest.get(row["id"], 0), "an older version followed a newer one"
            newest[row["id"]] = row["v"]


@pytest.mark.long
@settings(deadline=None, max_examples=30)  # the machine may be busy
@given(
    seeds,
    limits,
    st.lists(st.integers(1, 3600 * SECOND), max_size=3),
    st.sampled_from([0.0, 0.05]),
    st.sampled_from(ZONES),
)
def test_a_clock_that_steps_back_loses_nothing(
    seed: int, limit: int, steps: list[int], crash: float, zone: int
) -> None:
    """Rows written with timestamps long past are published; others may be repeated, never lost."""
    database = Database(random=Random(seed), lag=5 * SECOND, crash=crash, steps_back=steps, zone=zone)
    assert reported(poll_all(database, limit=limit, cycles=30)) == expected(database)


@pytest.mark.long
@settings(deadline=None, max_examples=30)  # the machine may be busy
@given(seeds, limits, st.integers(1, 5 * SECOND))
def test_a_step_back_within_the_window_repeats_nothing(seed: int, limit: int, step: int) -> None:
    """Fingerprints are kept for longer than the window: an ordinary correction of a clock causes no duplicates."""
    database = Database(random=Random(seed), lag=5 * SECOND, steps_back=[step])
    envelopes = poll_all(database, limit=limit, cycles=30)
    assert reported(envelopes) == expected(database)
    versions = [(e["after"]["id"], e["after"]["v"]) for e in envelopes]
    assert len(versions) == len(set(versions))


@pytest.mark.long
@settings(deadline=None, max_examples=30)  # the machine may be busy
@given(seeds, limits)
def test_a_row_of_the_future_hides_nothing(seed: int, limit: int) -> None:
    """One row dated 2099 does not move the window there: rows written today are still published."""
    database = Database(random=Random(seed), lag=3 * SECOND)
    database.rows[99] = (cursor_of(moment_of(4_070_908_800 * SECOND)), 0)
    assert reported(poll_all(database, limit=limit, cycles=25)) == expected(database)


@settings(deadline=None)  # the machine may be busy
@given(st.integers(1, 300), st.integers(1, 7), st.integers(0, 4))
def test_a_wedged_page_widens_then_walks_by_key(rows: int, limit: int, before: int) -> None:
    """Rows sharing one timestamp are all published, each once; no page is larger than sixteen times its limit."""
    table = [row_of(i, i) for i in range(before)] + [row_of(50, 100 + i) for i in range(rows)] + [row_of(51, 9)]
    window, found, largest = Window(lag=0, limit=limit), list[PolledRow](), 0
    window.begin(Look(clock=10**9, newest=51), 0)
    for _ in range(10_000):
        ask = window.ask()
        page = [row for row in table if ask.start is None or row.cursor >= ask.start]
        if ask.after is not None:
            page = [row for row in page if row.cursor == ask.start and row.key > ask.after]
        largest = max(largest, len(page[: ask.limit]))
        found += window.take(page[: ask.limit])
        if window.finished:
            break
    assert window.finished, "wedged"
    assert sorted(row.key for row in found) == sorted(row.key for row in table)
    assert largest <= limit * 16


def test_an_idle_table_is_not_read_again() -> None:
    """Once a table has been quiet for longer than the window, a poll requests no published rows again."""
    window, now, rows = Window(lag=5 * SECOND, limit=10), 100 * SECOND, list[PolledRow]()
    for _ in range(9):
        window.begin(Look(clock=now, newest=50 * SECOND), now)
        rows = [row_of(50 * SECOND, key) for key in range(5)] if (window.ask().start or 0) <= 50 * SECOND else []
        window.take(rows)
        now += SECOND
    assert rows == []
    assert window.done == 50 * SECOND
    assert len(Window(lag=0, limit=1).dump()["seen"]) == 0


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.integers(1, 1000), unique=True, max_size=60), st.integers(1, 5), st.integers(1, 5))
def test_a_feed_is_reported_once_in_order(numbers: list[int], limit: int, parts: int) -> None:
    """Feed numbers appear in increasing order; each row is published once, across restarts."""
    state, found, numbers = None, list[int](), sorted(numbers)
    for part in range(1, parts + 1):
        visible = numbers[: len(numbers) * part // parts]
        window = Window(lag=None, limit=limit)
        if state is not None:
            window.load(state)
        window.begin(Look(clock=0, newest=None), 0)
        while not window.finished:
            ask = window.ask()
            found += [
                row.cursor
                for row in window.take(
                    [row_of(n, n) for n in visible if ask.start is None or n >= ask.start][: ask.limit]
                )
            ]
        state = orjson.loads(orjson.dumps(window.dump()))
    assert found == numbers


def test_what_a_clock_owes_is_paid_before_the_window_moves_on() -> None:
    """Until a clock that stepped back has caught up, older rows are read again, whatever the server's time zone."""
    window, zone, lag = Window(lag=SECOND, limit=10), 7200 * SECOND, SECOND
    for now, clock in ((1000, 1000), (1001, 1001), (1002, 942), (1003, 943), (1004, 944)):
        window.begin(Look(clock=clock * SECOND + zone, newest=1001 * SECOND), now * SECOND)
        start = window.ask().start
        window.take([])
        if now >= 1003:  # rows that the last cycle may have missed have timestamps before this
            assert start is not None
            assert start <= (clock - 1) * SECOND - lag
    window.begin(Look(clock=1002 * SECOND + zone, newest=1001 * SECOND), 1062 * SECOND)
    window.take([])
    window.begin(Look(clock=1003 * SECOND + zone, newest=1001 * SECOND), 1063 * SECOND)
    assert window.ask().start == 1001 * SECOND + 1


def test_a_feed_that_shares_a_number_is_refused() -> None:
    """Two rows with one number could hide each other at a page's end: this is reported, not skipped."""
    window = Window(lag=None, limit=10)
    window.begin(Look(clock=0, newest=None), 0)
    with pytest.raises(Fatal, match="share the number 7"):
        window.take([row_of(7, 1), row_of(7, 2)])


@settings(deadline=None)  # the machine may be busy
@given(st.integers(0, 40), st.integers(0, 20))
def test_fingerprints_are_bounded(rows: int, memory: int) -> None:
    """Beyond its memory a window counts possible repetitions, and still finishes."""
    window = Window(lag=SECOND, limit=100, memory=memory)
    window.begin(Look(clock=1000, newest=5), 1000)
    window.take([row_of(5, key) for key in range(rows)])
    assert window.finished
    assert window.forgotten == max(0, rows - memory)
    assert sum(len(marks) for _, marks in window.dump()["seen"]) <= memory * 30
    assert SLACK > 0


PollModes: list[PollMode] = ["updated_at", "feed"]
