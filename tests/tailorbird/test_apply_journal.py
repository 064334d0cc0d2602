"""Two applies of one topology: one is refused or overtaken, and every interruption leads to the same result.

The journal is in memory; tests/contracts/test_journal_place.py tests it and ZooKeeper's with the same cases.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cdc.model.errors import Fatal, UsageError
from tailorbird.provision.apply import Outcome, apply
from tailorbird.provision.journal import Applier, Journal, JournalEntry, load_entry
from tailorbird.provision.plan import plan
from tests.tailorbird.test_apply import TOPOLOGY, Servers, stores

MADE = ["t", "t:layouts", "t:wide", "t_main", "t_main_1"]
STEPS = len(MADE)


class MemoryPlace:
    """A journal's place whose sessions end when a test says so; the other sessions of it share `kept`."""

    def __init__(self, kept: dict[str, object] | None = None) -> None:
        self.kept: dict[str, object] = {"entry": None, "holder": None} if kept is None else kept
        self.alive = True

    def read(self) -> tuple[bytes, int] | None:
        return self.kept["entry"]  # type: ignore[return-value]  # what `put` has stored

    def put(self, value: bytes, version: int | None) -> int | None:
        found = self.read()
        if (None if found is None else found[1]) != version:
            return None
        changed = 0 if version is None else version + 1
        self.kept["entry"] = (value, changed)
        return changed

    def held(self) -> bool:
        return self.kept["holder"] is not None

    def hold(self, token: str) -> None:
        self.kept["holder"] = (token, self)

    def let_go(self, token: str) -> None:
        if self.kept["holder"] == (token, self):
            self.kept["holder"] = None

    def expire(self) -> None:
        """ZooKeeper has not heard of this session for too long."""
        if self.kept["holder"] is not None and self.kept["holder"][1] is self:  # type: ignore[index]  # as `hold` has it
            self.kept["holder"] = None


class OneApply:
    """An apply that runs one step at a time."""

    def __init__(self, servers: Servers, place: MemoryPlace, number: int, dead: set[int] | None = None) -> None:
        self.place, self.number = MemoryPlace(place.kept), number
        who = Applier(host="h", pid=number, ticks=1, token=f"token {number}")
        gone: set[int] = dead if dead is not None else set()
        self.journal = Journal(self.place, who, clock_ms=lambda: 7, dead=lambda other: other.pid in gone)
        self.cut_off: JournalEntry | None = None
        self.steps = self._steps(servers)

    def _steps(self, servers: Servers) -> Iterator[Outcome]:
        self.cut_off = self.journal.begin()
        try:
            yield from apply(TOPOLOGY, plan(TOPOLOGY, stores(servers)), stores(servers), self.journal.at)
            self.journal.end()
        finally:
            if self.number not in KILLED:
                self.journal.let_go()

    def rest(self) -> list[Outcome]:
        return list(self.steps)


KILLED: set[int] = set()


@pytest.fixture(autouse=True)
def no_one_is_killed() -> Iterator[None]:
    KILLED.clear()
    yield
    KILLED.clear()


def undisturbed() -> Servers:
    servers = Servers()
    OneApply(servers, MemoryPlace(), 1).rest()
    return servers


@pytest.mark.parametrize("done", range(1, STEPS + 1))
def test_a_second_apply_during_one_is_refused(done: int) -> None:
    """At every step of the first apply, the second is refused with its holder and step, and changes nothing."""
    servers, place = Servers(), MemoryPlace()
    first = OneApply(servers, place, 1)
    for _ in range(done):
        next(first.steps)
    with pytest.raises(UsageError, match=rf"another apply is running: process 1 on h, at step {done} of 5: "):
        next(OneApply(servers, place, 2).steps)
    first.rest()
    third = OneApply(servers, place, 3)
    assert {outcome.done for outcome in third.rest()} == {"kept"}
    assert (third.cut_off, servers.made) == (None, MADE)


@pytest.mark.parametrize("done", range(1, STEPS + 1))
def test_one_that_was_killed_is_finished_by_the_next(done: int) -> None:
    """kill -9 at every step boundary: the next apply knows at once that its process is gone, says where it was, and
    comes to the end that an undisturbed one has."""
    servers, place = Servers(), MemoryPlace()
    first = OneApply(servers, place, 1)
    for _ in range(done):
        next(first.steps)
    KILLED.add(1)
    first.steps.close()  # type: ignore[attr-defined]  # of a generator
    assert place.held(), "its session has not ended yet"
    second = OneApply(servers, place, 2, dead={1})
    second.rest()
    assert second.cut_off is not None
    assert str(second.cut_off).startswith(f"process 1 on h, at step {done} of 5: ")
    assert vars(servers) == vars(undisturbed())
    last = place.read()
    assert last is not None
    assert load_entry(last[0]).ended


@pytest.mark.parametrize("done", range(1, STEPS))
def test_one_whose_session_expired_is_overtaken_at_its_next_step(done: int) -> None:
    """The first apply still runs, but another one may begin; then the first creates nothing more."""
    servers, place = Servers(), MemoryPlace()
    first = OneApply(servers, place, 1)
    for _ in range(done):
        next(first.steps)
    first.place.expire()
    second = OneApply(servers, place, 2)
    next(second.steps)
    made = list(servers.made)
    with pytest.raises(Fatal, match="another apply has taken over: process 2 on h"):
        first.rest()
    assert servers.made == made
    assert place.held(), "the second one's hold is its own"
    second.rest()
    assert vars(servers) == vars(undisturbed())


def test_a_session_that_expired_while_no_one_came_is_made_good() -> None:
    """The next step holds the topology again."""
    servers, place = Servers(), MemoryPlace()
    first = OneApply(servers, place, 1)
    next(first.steps)
    first.place.expire()
    next(first.steps)
    with pytest.raises(UsageError, match="another apply is running"):
        next(OneApply(servers, place, 2).steps)
    first.rest()
    assert servers.made == MADE


def test_a_write_whose_answer_was_lost_is_no_other_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """If the version changed by the apply's own write, the apply continues."""
    servers, place = Servers(), MemoryPlace()
    first = OneApply(servers, place, 1)
    next(first.steps)
    found = place.read()
    assert found is not None
    place.put(found[0], found[1])  # the same entry once more, as a client writes that was cut off
    first.rest()
    assert servers.made == MADE


@given(
    schedule=st.lists(
        st.tuples(st.sampled_from("abc"), st.sampled_from(["step"] * 6 + ["kill", "expire"])), max_size=40
    )
)
@settings(max_examples=200, deadline=None)
def test_under_every_schedule_each_thing_is_made_once(schedule: list[tuple[str, str]]) -> None:
    """Three applies start, continue, are killed and expire in any order: nothing is created twice.

    One more apply then reaches the undisturbed result.
    """
    KILLED.clear()
    servers, place, dead = Servers(), MemoryPlace(), set[int]()
    running: dict[str, OneApply] = {}
    numbers = iter(range(1, 100))
    for name, event in schedule:
        one = running.get(name)
        if one is None:
            one = running[name] = OneApply(servers, place, next(numbers), dead)
        if event == "expire":
            one.place.expire()
            continue
        if event == "kill":
            KILLED.add(one.number)
            dead.add(one.number)
            one.steps.close()  # type: ignore[attr-defined]  # of a generator
            del running[name]
            continue
        try:
            next(one.steps)
        except (StopIteration, UsageError, Fatal):
            del running[name]
        assert len(servers.made) == len(set(servers.made))
    for one in running.values():
        one.place.expire()
    OneApply(servers, place, 100, dead).rest()
    assert sorted(servers.made) == sorted(MADE)
    wanted, found = vars(undisturbed()), vars(servers)
    assert {name: value for name, value in found.items() if name != "made"} == {
        name: value for name, value in wanted.items() if name != "made"
    }
