"""The progress of a foreign table's batch, as the tests keep it and as ZooKeeper does."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from console.proc_stack import Stack
from indexer.foreign import Progress, ProgressStore
from indexer.zk_registration import session, withdraw
from indexer.zk_state import StoredProgress
from tests.indexer.test_foreign import Store

pytestmark = pytest.mark.integration


@pytest.fixture(params=["remembered", "stored"])
def store(request: pytest.FixtureRequest) -> Iterator[ProgressStore]:
    if request.param == "remembered":
        yield Store()
        return
    stack: Stack = request.getfixturevalue("stack")
    name = f"t{uuid.uuid4().hex[:8]}"
    with session(stack.addresses()["zookeeper"]) as client:
        yield StoredProgress(client, name, epoch=1)
        withdraw(client, name)


def test_what_was_noted_last_is_read_until_it_is_cleared(store: ProgressStore) -> None:
    first, second = Progress(5, 1, 1, 500, 0), Progress(7, 2, 2, 999, 1)
    assert store.read(b"r1") is None
    store.write(b"r1", first)
    store.write(b"r2", first)
    store.write(b"r1", second)
    assert (store.read(b"r1"), store.read(b"r2")) == (second, first)
    store.clear(b"r1")
    assert (store.read(b"r1"), store.read(b"r2")) == (None, first)


def test_another_epoch_has_other_collections(stack: Stack) -> None:
    name = f"t{uuid.uuid4().hex[:8]}"
    with session(stack.addresses()["zookeeper"]) as client:
        StoredProgress(client, name, epoch=1).write(b"r", Progress(5, 1))
        assert StoredProgress(client, name, epoch=2).read(b"r") is None
        StoredProgress(client, name, epoch=2).clear(b"r")
        StoredProgress(client, name, epoch=2).clear(b"r")
        withdraw(client, name)
