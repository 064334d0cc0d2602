"""Whatever dies, in whatever order: the collection ends equal to the table, and no barrier was visible too early.

The short form is part of `make test`; the long one of `make chaos`: 200,000 rows, Solr away for a minute, two region
servers and regions that move in mid-batch.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterator
from itertools import cycle

import pytest
from confluent_kafka import Consumer

from benchmarks.index.load import BarrierWatch, Load, differences
from benchmarks.index.world import World
from cdc.errors import UsageError
from cdc.naming import dead_letter_topic
from console.proc_stack import Stack
from console.stack import ServiceName

pytestmark = pytest.mark.integration


@pytest.fixture
def world(stack: Stack) -> Iterator[World]:
    with World(stubs="5m") as made:
        yield made


def dead_rows(world: World, count: int) -> dict[bytes, str]:
    """Rows of the dead letters with their reasons, once there are as many as that."""
    consumer = Consumer(
        {
            "bootstrap.servers": world.topology.log.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([dead_letter_topic(world.name)])
    found: dict[bytes, str] = {}
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                letter = json.loads(message.value() or b"")
                found[bytes.fromhex(letter["row"])] = letter["reason"]
            elif message is not None and len(found) >= count:
                break
    finally:
        consumer.close()
    return found


class Chaos:
    """What may happen to the processes, one method each."""

    def __init__(self, world: World, stack: Stack, solr_away: float) -> None:
        self._world, self._stack, self._solr_away = world, stack, solr_away
        self._first = world.start()
        self._second: subprocess.Popen[bytes] | None = None

    def kill_the_indexer(self) -> None:
        self._world.kill(self._first)
        self._first = self._world.start()

    def a_second_indexer_joins(self) -> None:
        self._second = self._world.start()

    def the_second_indexer_leaves(self) -> None:
        if self._second is not None:
            self._second.send_signal(signal.SIGTERM)
            assert self._second.wait(60) == 0
            self._world.processes.remove(self._second)
            self._second = None

    def kill_solr(self) -> None:
        self._restart("solr", after=0.0)

    def solr_is_away(self) -> None:
        self._restart("solr", after=self._solr_away)

    def kill_hbase(self) -> None:
        self._restart("hbase", after=0.0)

    def _restart(self, service: ServiceName, *, after: float) -> None:
        self._stack.kill(service)
        time.sleep(after)
        deadline = time.monotonic() + 60
        while True:
            try:
                self._stack.start(service)
                return
            except UsageError:
                # the port of a process that was just killed may be taken for a moment
                assert time.monotonic() < deadline
                time.sleep(0.5)

    def the_indexer_lives(self) -> bool:
        return self._first.poll() is None


def run(world: World, stack: Stack, *, rows: int, size: int, keys: int, solr_away: float, every: int) -> None:
    """Write `rows` rows in batches of `size` while something happens after each `every` rows; then compare."""
    if os.environ.get("TAILORBIRD_TESTS_USE_RUNNING_STACK") == "1" and not os.environ.get("TAILORBIRD_TESTS_MAY_KILL"):
        pytest.skip("it kills servers; the running stack is not ours: TAILORBIRD_TESTS_MAY_KILL=1 allows it")
    chaos = Chaos(world, stack, solr_away)
    load = Load(world, keys=keys)
    watch = BarrierWatch(world, load)
    watch.start()
    events: Iterator[Callable[[], None]] = cycle(
        [
            chaos.kill_the_indexer,
            chaos.a_second_indexer_joins,
            chaos.kill_solr,
            chaos.kill_hbase,
            chaos.the_second_indexer_leaves,
            chaos.solr_is_away,
        ]
    )
    due = every
    while load.written < rows:
        load.patiently(size, poison=load.written % (10 * size) == 0)
        if load.written >= due:
            due += every
            next(events)()
    load.patiently(size)
    world.wait_visible(world.solr(), seconds=240, pause=0.2)
    watch.stop()
    assert set(dead_rows(world, len(load.poisoned))) == load.poisoned
    assert differences(world, load) == []
    assert watch.early == []
    assert watch.looked
    assert chaos.the_indexer_lives()


@pytest.mark.timeout(900)
def test_nothing_is_lost_whatever_is_killed(world: World, stack: Stack) -> None:
    """kill -9 of indexer, Solr and HBase, Solr away, a second indexer joining and leaving; poison in between."""
    run(world, stack, rows=6000, size=200, keys=3000, solr_away=4.0, every=1000)


@pytest.mark.matrix
@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_200_000_rows(world: World, stack: Stack) -> None:
    """The same for longer: Solr away for a minute, several rounds of everything."""
    run(world, stack, rows=200_000, size=500, keys=60_000, solr_away=60.0, every=16_000)
