"""The state of an index in ZooKeeper: progress of a foreign table's batch, and the targets, which every indexer reads
while they are first written.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator

import pytest

from cdc.model.errors import TailorbirdError
from indexer.foreign.foreign import ProgressStore, RegionProgress
from indexer.peer.zk_registration import session, withdraw
from indexer.rebuild.targets import Targets
from indexer.rebuild.zk_state import StoredProgress, StoredTargets
from tailorbird.devtools.stack.proc_stack import Stack
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


def test_the_last_progress_is_read_until_it_is_cleared(store: ProgressStore) -> None:
    first, second = RegionProgress(5, 1, 1, 500, 0), RegionProgress(7, 2, 2, 999, 1)
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
        StoredProgress(client, name, epoch=1).write(b"r", RegionProgress(5, 1))
        assert StoredProgress(client, name, epoch=2).read(b"r") is None
        StoredProgress(client, name, epoch=2).clear(b"r")
        StoredProgress(client, name, epoch=2).clear(b"r")
        withdraw(client, name)


def test_targets_are_never_seen_half_made(stack: Stack) -> None:
    """An index's first rebuild stores targets where no node exists, while its indexers read them."""
    zookeeper = stack.addresses()["zookeeper"]
    before, after = Targets(epoch=0, collections=("c",)), Targets(epoch=1, collections=("c", "c_r1"))
    seen: list[Targets] = []
    failures: list[TailorbirdError] = []
    with session(zookeeper) as reading, session(zookeeper) as writing:
        for _ in range(50):
            name = f"t{uuid.uuid4().hex[:8]}"
            written = threading.Event()

            def read(name: str = name, written: threading.Event = written) -> None:
                targets = StoredTargets(reading, name, collection="c")
                try:
                    while not written.is_set():
                        seen.append(targets.read())
                except TailorbirdError as error:
                    failures.append(error)

            readers = [threading.Thread(target=read) for _ in range(4)]
            for each in readers:
                each.start()
            StoredTargets(writing, name, collection="c").write(after)
            written.set()
            for each in readers:
                each.join()
            assert StoredTargets(reading, name, collection="c").read() == after
            withdraw(writing, name)
    assert not failures
    assert {each.epoch for each in seen} <= {0, 1}
    assert before in seen
