"""The steps of a rebuild, interrupted after every single call: the next run completes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc.model.errors import Retriable, UsageError
from indexer.rebuild.reindex import Reindex
from indexer.rebuild.targets import Targets, checked


class Killed(BaseException):
    """kill -9."""


class Servers:
    """ZooKeeper and Solr in memory; the process dies before the call number `dies_at`, or right after it."""

    def __init__(self) -> None:
        self.stored: dict[str, Any] | None = None
        self.targets = Targets(epoch=0, collections=("live",))
        self.cores = {"live": "first"}
        self.calls = 0
        self.dies_at: int | None = None
        self.history: list[Targets] = []

    def act(self, change: Callable[[], None]) -> None:
        self.calls += 1
        if self.dies_at == self.calls:
            raise Killed
        change()
        if self.dies_at == -self.calls:
            raise Killed

    # the state
    def clear(self) -> None:
        self.act(lambda: setattr(self, "stored", None))

    # the collections
    def exists(self, collection: str) -> bool:
        return collection in self.cores

    def create(self, collection: str, *, shards: int = 1) -> None:
        assert collection not in self.cores
        assert f"/made as/{collection}" not in self.cores.values(), "the folder of another collection"
        self.act(lambda: self.cores.update({collection: f"/made as/{collection}"}))

    def remove(self, collection: str) -> None:
        assert collection not in self.targets.collections, "a collection that is still fed"
        self.act(lambda: _drop(self.cores, collection))

    def identity(self, collection: str) -> str:
        return self.cores[collection]

    def standby_name(self, live: str, other: str) -> str:
        return other

    def swap(self, live: str, other: str) -> None:
        assert self.targets.changing, "swapped while documents are posted"
        self.act(lambda: self.cores.update({live: self.cores[other], other: self.cores[live]}))


def _drop(cores: dict[str, str], name: str) -> None:
    del cores[name]


class State:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def read(self) -> dict[str, Any] | None:
        return self._servers.stored

    def write(self, state: dict[str, Any]) -> None:
        self._servers.act(lambda: setattr(self._servers, "stored", state))

    def clear(self) -> None:
        self._servers.clear()


class Store:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers

    def read(self) -> Targets:
        return self._servers.targets

    def write(self, targets: Targets) -> None:
        assert targets.epoch > self._servers.targets.epoch
        self._servers.act(lambda: setattr(self._servers, "targets", targets))


def steps(servers: Servers) -> Reindex:
    return Reindex(Store(servers), State(servers), servers, live="live")


def reindex(servers: Servers) -> None:
    """Run the command once, without its scan."""
    run = steps(servers)
    if run.settle():
        return
    run.swap(run.prepare())


def test_a_rebuild_after_the_loss_of_zookeeper_keeps_what_queries_see() -> None:
    """The numbers of collections begin again; the one that serves keeps its own."""
    servers = Servers()
    reindex(servers)
    serving = servers.cores["live"]
    servers.targets, servers.stored = Targets(epoch=0, collections=("live",)), None
    run = steps(servers)
    new = run.prepare()
    assert servers.cores["live"] == serving
    run.swap(new)
    assert servers.cores["live"] == f"/made as/{new}" != serving


def test_a_rebuild_is_swapped_in_and_back_and_finished() -> None:
    """Both collections are fed from `prepare` until `finish`."""
    servers = Servers()
    reindex(servers)
    assert servers.cores["live"].startswith("/made as")
    assert len(servers.targets.collections) == 2
    steps(servers).rollback()
    assert servers.cores["live"] == "first"
    assert len(servers.targets.collections) == 2
    assert steps(servers).finish() is not None
    assert servers.targets.collections == ("live",)
    assert servers.cores == {"live": "first"}
    with pytest.raises(UsageError, match="cannot roll back"):
        steps(servers).rollback()


def test_a_rebuild_under_way_can_be_given_up() -> None:
    """A cancelled rebuild leaves nothing."""
    servers = Servers()
    steps(servers).prepare()
    assert len(servers.targets.collections) == 2
    assert steps(servers).rollback().startswith("cancelled")
    assert (servers.cores, servers.targets.collections, servers.stored) == ({"live": "first"}, ("live",), None)


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("call", range(1, 12))
def test_killed_at_any_call_the_next_invocation_ends_right(call: int, behind: bool) -> None:
    """The live name leads to the new collection, both are fed, no change is in progress, and there is no third one."""
    servers = Servers()
    servers.dies_at = -call if behind else call
    try:
        reindex(servers)
    except Killed:
        servers.dies_at = None
        reindex(servers)
    assert servers.cores["live"].startswith("/made as")
    assert set(servers.targets.collections) == set(servers.cores)
    assert len(servers.cores) == 2
    assert (servers.stored, servers.targets.changing) == (None, False)


def test_nothing_is_posted_while_names_change() -> None:
    """Indexers wait while names change."""
    servers = Servers()
    servers.targets = Targets(epoch=3, collections=("live", "other"), changing=True)
    with pytest.raises(Retriable):
        checked(Store(servers))
