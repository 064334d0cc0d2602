"""A query's name moves from one fed index to another, interrupted after every single call: the next run completes
it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc.model.errors import UsageError
from indexer.rebuild.moving import NameMove
from indexer.rebuild.targets import Targets


class Killed(BaseException):
    """kill -9."""


class Servers:
    """Two fed indexes in memory: `old` has the name that queries use. Cores like those of a standalone Solr, or
    aliases. The process dies before the call number `dies_at`, or right after it (negative)."""

    def __init__(self, *, cloud: bool) -> None:
        self.cloud = cloud
        self.stored: dict[str, Any] | None = None
        self.targets = {"old": Targets(epoch=3, collections=("live",)), "new": Targets(epoch=1, collections=("next",))}
        self.cores = {"live": "first", "next": "second"}
        if cloud:
            self.cores |= {"first": "first", "second": "second"}
        self.calls, self.dies_at = 0, 0
        self.shown: list[str] = []

    def act(self, change: Callable[[], None]) -> None:
        self.calls += 1
        if self.dies_at == self.calls:
            raise Killed
        change()
        self.shown.append(self.cores["live"])
        if self.dies_at == -self.calls:
            raise Killed

    # the state
    def read(self) -> dict[str, Any] | None:
        return self.stored

    def write(self, state: dict[str, Any]) -> None:
        self.act(lambda: setattr(self, "stored", state))

    def clear(self) -> None:
        self.act(lambda: setattr(self, "stored", None))

    # the collections
    def exists(self, collection: str) -> bool:
        return collection in self.cores

    def create(self, collection: str, *, shards: int = 1) -> None:
        raise AssertionError("nothing is made")

    def remove(self, collection: str) -> None:
        raise AssertionError("nothing goes")

    def identity(self, collection: str) -> str:
        return self.cores[collection]

    def standby_name(self, live: str, other: str) -> str:
        return self.identity(live) if self.cloud else other

    def swap(self, live: str, other: str) -> None:
        assert all(one.changing for one in self.targets.values()), "swapped while documents are posted"
        former = {} if self.cloud else {other: self.cores[live]}
        self.act(lambda: self.cores.update({live: self.cores[other], **former}))


class Of:
    """The targets of one index."""

    def __init__(self, servers: Servers, name: str) -> None:
        self._servers, self._name = servers, name

    def read(self) -> Targets:
        return self._servers.targets[self._name]

    def write(self, targets: Targets) -> None:
        assert targets.epoch > self.read().epoch, "indexers would not notice the change"
        self._servers.act(lambda: self._servers.targets.update({self._name: targets}))


def move(servers: Servers, old: str = "old", new: str = "new") -> str:
    moving = NameMove(Of(servers, old), Of(servers, new), servers, servers, live="live")
    standby = moving.run()
    moving.done()
    return standby


def fed(servers: Servers) -> dict[str, list[str]]:
    """Return which collection each index feeds now."""
    assert not any(one.changing for one in servers.targets.values())
    return {name: [servers.cores[one] for one in targets.collections] for name, targets in servers.targets.items()}


@pytest.mark.parametrize("cloud", [False, True])
def test_the_name_moves_and_each_index_feeds_what_it_fed(cloud: bool) -> None:
    """Queries see the one, then the other. Both continue to be fed, and the way back is one more move."""
    servers = Servers(cloud=cloud)
    assert move(servers) == ("first" if cloud else "next")
    assert (servers.cores["live"], fed(servers)) == ("second", {"old": ["first"], "new": ["second"]})
    assert list(dict.fromkeys(servers.shown)) == ["first", "second"]
    move(servers, "new", "old")
    assert (servers.cores["live"], fed(servers)) == ("first", {"old": ["first"], "new": ["second"]})


@pytest.mark.parametrize("cloud", [False, True])
@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize("call", range(1, 8))
def test_a_move_that_is_cut_off_is_done_by_the_next(cloud: bool, behind: bool, call: int) -> None:
    """Before and after every call to a server the result is the same, and no document reaches the other's
    collection."""
    servers = Servers(cloud=cloud)
    servers.dies_at = -call if behind else call
    with pytest.raises(Killed):
        move(servers)
    servers.dies_at = 0
    if servers.stored is not None or servers.cores["live"] == "first":  # otherwise it was done, and recorded
        move(servers)
    assert (servers.cores["live"], fed(servers)) == ("second", {"old": ["first"], "new": ["second"]})


def test_what_a_rebuild_keeps_is_finished_first() -> None:
    """An index with a former collection has two feeds of its own, so the move would be ambiguous."""
    servers = Servers(cloud=False)
    servers.targets["old"] = Targets(epoch=3, collections=("live", "live_r2"))
    with pytest.raises(UsageError, match="a rebuild has kept live_r2"):
        move(servers)
    assert servers.calls == 0
