"""The contract of a journal's storage: ZooKeeper's, and the one in memory that replaces it in tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from indexer.peer.zk_registration import session
from tailorbird.provision.journal import JournalPlace
from tailorbird.provision.zk_journal import StoredJournal
from tests.support.waiting import wait_for
from tests.tailorbird.test_apply_journal import MemoryPlace


class Sessions:
    """Two sessions of one journal; the first one can be ended."""

    def __init__(self, first: JournalPlace, second: JournalPlace, end_first: Callable[[], None]) -> None:
        self.first, self.second, self.end_first = first, second, end_first


@pytest.fixture
def in_memory() -> Sessions:
    first = MemoryPlace()
    return Sessions(first, MemoryPlace(first.kept), first.expire)


@pytest.fixture
def in_zookeeper(stack: object, unique: Callable[[str], str]) -> Iterator[Sessions]:
    name, address = unique("journal"), f"127.0.0.1:{os.environ['TAILORBIRD_PORT_ZOOKEEPER']}"
    with ExitStack() as first, session(address) as other:
        client = first.enter_context(session(address))
        yield Sessions(StoredJournal(client, name), StoredJournal(other, name), first.close)
        other.delete(f"/tailorbird/applies/{name}", recursive=True)


@pytest.fixture(params=["in_memory", pytest.param("in_zookeeper", marks=pytest.mark.integration)])
def sessions(request: pytest.FixtureRequest) -> Sessions:
    found: Sessions = request.getfixturevalue(request.param)
    return found


def test_one_writer_wins_and_a_hold_ends_with_its_session(sessions: Sessions) -> None:
    """A value is replaced only with its current version. Others see a hold; the next holder takes it over, only its
    holder releases it, and it ends with its session."""
    first, second = sessions.first, sessions.second
    assert first.read() is None
    assert second.put(b"too early", 0) is None
    version = first.put(b"one", None)
    assert version is not None
    assert second.put(b"another", None) is None
    assert second.read() == (b"one", version)
    changed = second.put(b"two", version)
    assert changed not in (None, version)
    assert first.put(b"late", version) is None
    assert first.read() == (b"two", changed)

    assert not second.held()
    first.hold("a")
    first.hold("a")
    assert second.held()
    second.let_go("b")
    assert second.held(), "it is not theirs"
    second.hold("b")
    first.let_go("a")
    assert first.held(), "it was taken over"
    second.let_go("b")
    assert not first.held()
    first.hold("a")
    sessions.end_first()
    wait_for(lambda: not second.held(), "a hold outlives its session", 60)
