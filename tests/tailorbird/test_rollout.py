"""An apply of a changed SELECT is killed before and after every step; the next apply reaches the same result.

The same holds for a rollback and a retirement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from cdc.model.errors import Fatal, UsageError
from cdc.topology.topology import Index, Topology
from cdc.topology.versions import Versions, in_versions
from tailorbird.cli.change import cli_versions
from tailorbird.cli.change.cli_versions import VersionRollout
from tailorbird.deploy.plan.planner import changes
from tailorbird.deploy.plan.rollout import IndexVersions, bring, retire, roll_back
from tailorbird.deploy.plan.side_by_side import choose
from tailorbird.operate.wait.goal import NotYet
from tailorbird.provision.apply import apply
from tailorbird.provision.plan import plan
from tests.support.planned import World
from tests.tailorbird.test_apply import stores
from tests.tailorbird.test_planning import FILE, read, world_of
from tests.tailorbird.test_side_by_side import NOTE, UPPER, first


class Killed(BaseException):
    """kill -9."""


class RolloutActions:
    """A topology's servers in memory; the process dies before or right after step number `dies_at`."""

    def __init__(self) -> None:
        self.world, self.versions, self.topology = world_of(), first(), read(FILE)
        self.names = {"main": 1}  # by index, the version that its query's name leads to
        self.calls, self.dies_at = 0, 0
        self.fresh, self.verified = {("wide", 1), ("sums", 1)}, set[tuple[str, int]]()
        self.wrong: set[str] = set()
        self.removed: list[tuple[str, int]] = []

    def act(self, change: Callable[[], None]) -> None:
        self.calls += 1
        if self.dies_at == self.calls:
            raise Killed
        change()
        if self.dies_at == -self.calls:
            raise Killed

    def store(self, versions: Versions) -> None:
        if versions != self.versions:
            assert versions.epoch > self.versions.epoch, "who follows would not hear of it"
            self.act(lambda: setattr(self, "versions", versions))

    def provision(self, running: Topology) -> None:
        def made() -> None:
            list(apply(running, plan(running, stores(self.world.servers)), stores(self.world.servers)))
            built = World(running, self.world.schemas, self.world.servers)  # and `run` joins the tables that exist
            self.world.states |= {name: one for name, one in built.states.items() if name not in self.world.states}
            self.world.layouts |= {name: one for name, one in built.layouts.items() if name not in self.world.layouts}
            self.world.collections |= built.collections

        self.act(made)

    def until_fresh(self, name: str, number: int) -> None:
        assert number in self.versions.tables[name].live, "nothing runs that could become fresh"
        self.act(lambda: self.fresh.add((name, number)))

    def verify(self, name: str, number: int) -> None:
        if name in self.wrong:
            raise Fatal(f"{name} differs")
        self.act(lambda: self.verified.add((name, number)))

    def move(self, name: str, number: int) -> IndexVersions:
        assert (name, number) in self.fresh, "queries would see old rows"
        one = self.versions.tables[name]
        assert number == 1 or (name, number) in self.verified, "it was not compared"
        indexes: dict[str, dict[int, Index]] = {index: dict(known) for index, known in one.indexes.items()}
        for index, known in indexes.items():
            live, other = known[one.serving].collection, known[number].collection
            self.act(lambda index=index: self.names.update({index: number}))  # type: ignore[misc]  # of this round
            known[number] = replace(known[number], collection=live)
            known[one.serving] = replace(known[one.serving], collection=other)
        return indexes

    def moved(self, name: str) -> None:
        self.act(lambda: None)

    def end(self, name: str, numbers: Sequence[int]) -> None:
        assert set(numbers) == set(self.versions.tables[name].retiring), "they run still"
        self.act(lambda: self.removed.extend((name, number) for number in numbers))

    def run(self, text: str) -> None:
        """One apply."""
        topology = read(text)
        choice = choose(topology, self.versions, lambda one: changes(one, self.world.seen(one)))
        bring(topology, choice, self)

    def reported(self) -> tuple[object, ...]:
        """Return the final state."""
        versions = self.versions
        shown = [(one.index, self.names) for one in in_versions(read(FILE), versions).dashboards.values()]
        servers = self.world.servers
        return versions.tables, shown, sorted(servers.specs), sorted(servers.known_peers), sorted(servers.collections)


def undisturbed(*texts: str) -> RolloutActions:
    actions = RolloutActions()
    for text in texts:
        actions.run(text)
    return actions


@pytest.mark.parametrize(
    "text", [NOTE, pytest.param(UPPER, marks=pytest.mark.long)], ids=["one table", "a table and what reads it"]
)
def test_an_apply_that_is_killed_is_finished_by_the_next(text: str) -> None:
    """Nothing is built twice, whatever the killed apply had stored, created, verified or swapped."""
    whole = undisturbed(text)
    assert whole.versions.tables["wide"].serving == 2
    assert whole.names == {"main": 2}
    for call in range(1, whole.calls + 1):
        for behind in (-1, 1):
            actions = RolloutActions()
            actions.dies_at = behind * call
            with pytest.raises(Killed):
                actions.run(text)
            actions.dies_at = 0
            actions.run(text)
            assert actions.reported() == whole.reported(), (call, behind)


def test_there_and_back_and_there_again() -> None:
    """A rollback serves the old version; an apply of the same file serves the new one, without building it again."""
    for call in range(1, 5):
        for behind in (-1, 1):
            actions = undisturbed(NOTE)
            there = actions.reported()
            actions.calls, actions.dies_at = 0, behind * call
            try:
                roll_back(read(NOTE), actions)
            except Killed:
                actions.dies_at = 0
                if actions.versions.tables["wide"].serving == 2:
                    roll_back(read(NOTE), actions)
            actions.dies_at = 0
            assert (actions.versions.tables["wide"].serving, actions.names) == (1, {"main": 1})
            actions.run(NOTE)
            assert actions.reported() == there, (call, behind)


def test_what_is_retired_is_gone_and_there_is_no_way_back() -> None:
    """First it runs no more, then it is removed, then it is forgotten; killed anywhere, once more does the rest."""
    for call in range(1, 4):
        for behind in (-1, 1):
            actions = undisturbed(NOTE)
            actions.calls, actions.dies_at = 0, behind * call
            with pytest.raises(Killed):
                retire(actions)
            assert set(in_versions(read(NOTE), actions.versions).tables) <= {"wide", "wide.v2", "sums"}
            actions.dies_at = 0
            retire(actions)
            one = actions.versions.tables["wide"]
            assert (one.serving, list(one.tables), one.retiring, set(actions.removed)) == (2, [2], (), {("wide", 1)})
    actions = undisturbed(NOTE)
    retire(actions)
    with pytest.raises(UsageError, match="nothing to roll back to"):
        roll_back(read(NOTE), actions)
    before = actions.versions
    actions.run(NOTE)
    assert actions.versions == before, "the file is what runs"
    assert before.tables["wide"].indexes["main"][2].collection == "t_main"
    actions.run(FILE)
    assert (actions.versions.tables["wide"].serving, actions.names) == (3, {"main": 3})


def test_what_leaves_the_file_runs_no_more_and_a_refusal_changes_nothing() -> None:
    """A table or an index that the file no longer has ends with the apply; what contradicts it, changes nothing."""
    actions = undisturbed(NOTE)
    before = actions.versions
    with pytest.raises(UsageError, match="the file says 4"):
        actions.run(NOTE.replace("tables:\n  wide", "log: {partitions: 4}\ntables:\n  wide"))
    assert actions.versions == before
    without = NOTE.replace(NOTE[NOTE.index("  sums:") : NOTE.index("indexes:")], "")
    actions.run(without)
    assert list(in_versions(read(without), actions.versions).tables) == ["wide", "wide.v2"]
    alone = NOTE.partition("indexes:")[0]
    actions.run(alone)
    assert in_versions(read(alone), actions.versions).indexes == {}


def test_what_differs_is_not_moved_to() -> None:
    """The old version keeps serving."""
    actions = RolloutActions()
    actions.wrong.add("wide")
    with pytest.raises(Fatal):
        actions.run(NOTE)
    assert (actions.versions.tables["wide"].serving, actions.names) == (1, {"main": 1})
    actions.run(FILE)
    assert actions.versions.tables["wide"].serving == 1, "the file has its former query again"


def test_an_apply_that_does_not_wait_leaves_the_swap_to_the_next() -> None:
    """With `--no-wait`, the new version is created and stored, and queries see the old one until a later apply."""
    actions = RolloutActions()
    topology = read(NOTE)
    choice = choose(topology, actions.versions, lambda one: changes(one, actions.world.seen(one)))
    bring(topology, choice, actions, wait=False)
    assert (actions.versions.tables["wide"].serving, actions.versions.tables["wide"].live) == (1, (1, 2))
    assert (actions.names, actions.verified) == ({"main": 1}, set())
    actions.run(NOTE)
    assert actions.reported() == undisturbed(NOTE).reported()


def test_a_version_that_does_not_become_fresh_is_named_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """If no process builds it, an apply ends after `--timeout` with the reason and the remedy, reported once."""

    class Table:
        def __init__(self, name: str) -> None:
            self.name = name

        def reached(self) -> dict[str, dict[str, int]]:
            return {"shop": {"sequence": 7}} if self.name == "wide" else {}

    monkeypatch.setattr("joins.process.targets.target_of", lambda topology, table: Table(table.name))
    monkeypatch.setattr(cli_versions, "_LOOK_EVERY", 0.01)
    monkeypatch.setattr(cli_versions, "_REPORT_AFTER", 0.0)
    actions, said = RolloutActions(), list[str]()
    topology = read(NOTE)
    choice = choose(topology, actions.versions, lambda one: changes(one, actions.world.seen(one)))
    bring(topology, choice, actions, wait=False)
    nothing: Any = SimpleNamespace(stores=None, client=None, hbase=None, at=lambda *_: None)
    work = VersionRollout(
        topology, actions.versions, nothing, nothing, made=lambda _: None, report=said.append, timeout=0.2
    )
    with pytest.raises(NotYet, match=r"wide.* has not completed its first cut") as error:
        work.until_fresh("wide", 2)
    assert (error.value.exit_code, "tailorbird run" in error.value.hint, len(said)) == (1, True, 1)
