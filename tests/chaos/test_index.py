"""Whatever dies, in whatever order, the collections end equal to the tables, and no barrier was visible too early.

There are two region servers, one of which may die alone, and regions that move in mid-batch. Rows are written by the
join's sink and, at the same time, by an application cell by cell. The short form is part of `make test`; the long one
of `make chaos`: 200,000 rows, Solr unavailable for a minute.
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

from benchmarks.index.foreign_load import INDEX as PEOPLE
from benchmarks.index.foreign_load import ForeignLoad
from benchmarks.index.load import BarrierWatch, Load, differences
from benchmarks.index.region_servers import Mover, SecondRegionServer
from benchmarks.index.world import World
from cdc.model.errors import UsageError
from cdc.model.naming import dead_letter_topic, hbase_table
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import ServiceName

pytestmark = pytest.mark.integration


@pytest.fixture
def second(stack: Stack) -> Iterator[SecondRegionServer]:
    if os.environ.get("TAILORBIRD_TESTS_USE_RUNNING_STACK") == "1" and not os.environ.get("TAILORBIRD_TESTS_MAY_KILL"):
        pytest.skip("it kills servers; the running stack is not ours: TAILORBIRD_TESTS_MAY_KILL=1 allows it")
    with SecondRegionServer(stack) as server:
        yield server


@pytest.fixture
def world(second: SecondRegionServer) -> Iterator[World]:
    with World(tombstones="5m", foreign=True) as made:
        yield made
        second.restart_if_ended()  # the teardown needs all regions


def dead_rows(world: World, count: int) -> set[tuple[str, bytes]]:
    """Return index and row of the dead letters, once there are that many."""
    consumer = Consumer(
        {
            "bootstrap.servers": world.topology.log.bootstrap_servers,
            "group.id": uuid.uuid4().hex,
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([dead_letter_topic(world.name)])
    found: set[tuple[str, bytes]] = set()
    deadline = time.monotonic() + 60
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                dead_letter = json.loads(message.value() or b"")
                found.add((dead_letter["index"], bytes.fromhex(dead_letter["row"])))
            elif message is not None and len(found) >= count:
                break
    finally:
        consumer.close()
    return found


class Chaos:
    """The possible faults of the processes, one method each."""

    def __init__(self, world: World, stack: Stack, second: SecondRegionServer, mover: Mover, solr_down: float) -> None:
        self._world, self._stack, self._solr_down = world, stack, solr_down
        self._second_server, self._mover = second, mover
        self._people = world.start("--index", PEOPLE)
        self._first = world.start()
        self._second: subprocess.Popen[bytes] | None = None

    def kill_the_indexers(self) -> None:
        self._world.kill(self._first)
        self._world.kill(self._people)
        self._first = self._world.start()
        self._people = self._world.start("--index", PEOPLE)

    def a_second_indexer_joins(self) -> None:
        self._second = self._world.start()

    def the_second_indexer_leaves(self) -> None:
        if self._second is not None:
            self._second.send_signal(signal.SIGTERM)
            assert self._second.wait(90) == 0
            self._world.processes.remove(self._second)
            self._second = None

    def kill_solr(self) -> None:
        self._restart("solr", after=0.0)

    def solr_is_down(self) -> None:
        self._restart("solr", after=self._solr_down)

    def kill_hbase(self) -> None:
        self._mover.wait()
        self._restart("hbase", after=0.0)
        self._second_server.restart_if_ended()

    def kill_the_second_region_server(self) -> None:
        self._mover.wait()
        self._second_server.kill()
        self._second_server.start()

    def a_region_moves(self) -> None:
        self._mover.move_in_mid_batch()

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

    def the_indexers_live(self) -> bool:
        return self._first.poll() is None and self._people.poll() is None


def run(
    world: World,
    stack: Stack,
    second: SecondRegionServer,
    *,
    rows: int,
    size: int,
    keys: int,
    solr_down: float,
    every: int,
) -> None:
    """Write `rows` rows, the join in batches of `size` and the application in batches of half that size, with a fault
    after each `every` rows; then compare."""
    mover = Mover(stack, [hbase_table(world.name, "wide"), f"{world.name}_people"])
    chaos = Chaos(world, stack, second, mover, solr_down)
    load, people = Load(world, keys=keys), ForeignLoad(world, keys=keys // 2)
    watch = BarrierWatch(world, load)
    watch.start()
    happenings: list[Callable[[], None]] = [
        chaos.a_region_moves,
        chaos.kill_the_indexers,
        chaos.a_second_indexer_joins,
        chaos.a_region_moves,
        chaos.kill_solr,
        chaos.kill_the_second_region_server,
        chaos.a_region_moves,
        chaos.kill_hbase,
        chaos.the_second_indexer_leaves,
        chaos.solr_is_down,
    ]
    events, happened, due, began = cycle(happenings), 0, every, time.monotonic()
    while load.written + people.written < rows or happened < len(happenings):
        poison = load.written % (10 * size) == 0
        with mover.batch_under_way():
            load.write_until_accepted(size, poison=poison)
            people.write_until_accepted(size // 2, poison=poison)
        if load.written + people.written >= due:
            due += every
            event = next(events)
            event()
            happened += 1
            print(f"{time.monotonic() - began:5.0f} s  {load.written + people.written} rows  {event.__name__}")
    mover.wait()
    load.write_until_accepted(size)
    world.wait_visible(world.solr(), seconds=300, pause=0.2)
    watch.stop()
    wrong = _until_equal(people)
    assert differences(world, load) == []
    assert wrong == []
    expected = {("wide", row) for row in load.poisoned} | {(PEOPLE, row) for row in people.poisoned}
    assert dead_rows(world, len(expected)) == expected
    assert watch.early == []
    assert watch.looked
    assert mover.moved_in_mid_batch
    assert chaos.the_indexers_live()
    print(
        f"{time.monotonic() - began:.0f} s: {load.written} rows of the join, {people.written} of the application, "
        f"{happened} events, {mover.moved_in_mid_batch} regions moved in mid-batch; 0 lost, {len(expected)} dead "
        f"letters as poisoned, {watch.looked} looks at barriers, 0 early"
    )


def _until_equal(people: ForeignLoad) -> list[str]:
    """Compare until nothing differs, because an application's rows have no barriers."""
    deadline = time.monotonic() + 300
    while (wrong := people.differences()) and time.monotonic() < deadline:
        time.sleep(1.0)
    return wrong


@pytest.mark.matrix  # one by one: tests/integration/test_index.py
@pytest.mark.timeout(900)
def test_nothing_is_lost_whatever_is_killed(world: World, stack: Stack, second: SecondRegionServer) -> None:
    """Kill -9 of indexers, Solr and HBase, Solr unavailable, an indexer that joins and leaves, regions that move;
    invalid rows in between."""
    run(world, stack, second, rows=6000, size=200, keys=3000, solr_down=4.0, every=600)


@pytest.mark.matrix
@pytest.mark.chaos
@pytest.mark.timeout(3600)
def test_nothing_is_lost_in_200_000_rows(world: World, stack: Stack, second: SecondRegionServer) -> None:
    """The same for longer: Solr unavailable for a minute, several rounds of all faults."""
    run(world, stack, second, rows=200_000, size=500, keys=60_000, solr_down=60.0, every=6_500)
