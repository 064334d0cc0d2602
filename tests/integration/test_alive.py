"""A topology started, changed and mended beside live traffic, on real servers: both far ends equal the near end.

One pipeline runs through the steps, as in life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ingest.agent.kafka_signals import send
from ingest.agent.signals import signal_value
from tests.integration.alive import Alive, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FAST, SLOW = 600.0, 150.0  # changes per second


def begun(one: Alive) -> None:
    """600 changes a second from before the first snapshot until the join has begun, then fewer: 0/0/0."""
    with one.traffic(FAST) as more:
        more(600)
        one.pipeline.start()
        wait_for(one.planned, "the join does not begin", 300)
        more(2_000)
    with one.traffic(SLOW) as more:
        wait_for(one.joining, "no row was joined", 300)
        more(100)
    assert one.settled() == {}


def test_a_first_start_beside_live_traffic_in_python(
    unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The Python engine is right from a first start beside live traffic on."""
    one = Alive(unique("alive"), tmp_path_factory.mktemp("python"), orders=30_000, engine="python")
    try:
        begun(one)
    finally:
        one.close()


@pytest.fixture(scope="module")
def alive(stack: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alive]:
    folder = tmp_path_factory.mktemp("alive")
    one = Alive(f"alive_{folder.stat().st_mtime_ns}", folder, orders=30_000, engine="jvm")
    yield one
    one.close()


def test_a_first_start_beside_live_traffic(alive: Alive) -> None:
    """The JVM's engine is right from a first start beside live traffic on."""
    begun(alive)


def test_tables_are_read_again_beside_live_traffic(alive: Alive) -> None:
    """`tailorbird snapshot` of two tables repeats every row of them, and changes nothing."""
    with alive.traffic(SLOW) as more:
        more(100)
        tables = tuple(f"{alive.name}.{table}" for table in ("orders", "products"))
        send(alive.topology, "shop", signal_value("execute-snapshot", tables, ""))
        more(1_000)
    assert alive.settled() == {}


def test_a_snapshot_of_what_was_never_read(
    unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """`snapshot_mode: never`, then `tailorbird snapshot`: what the log never held is there, what moved has moved."""
    one = Alive(unique("never"), tmp_path_factory.mktemp("never"), orders=3_000, engine="jvm", mode="never")
    try:
        with one.traffic(SLOW) as more:
            one.pipeline.start()
            wait_for(one.joining, "no row was joined", 300)
            more(300)
            for source, tables in (("shop", ("orders", "products")), ("crm", ("customers",))):
                names = tuple(f"{one.name}.{table}" for table in tables)
                send(one.topology, source, signal_value("execute-snapshot", names, ""))
            more(1_000)
        assert one.settled() == {}
    finally:
        one.close()
