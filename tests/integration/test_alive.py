"""A topology started, changed and mended beside live traffic, on real servers: both far ends equal the near end.

One pipeline with a table per engine runs through the steps, as in life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ingest.agent.kafka_signals import send
from ingest.agent.signals import signal_value
from tests.integration.alive import Alive, wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FAST, SLOW = 600.0, 150.0  # changes per second


@pytest.fixture(scope="module", params=["python", "jvm"])
def alive(request: pytest.FixtureRequest, stack: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alive]:
    folder = tmp_path_factory.mktemp("alive")
    one = Alive(f"alive_{folder.stat().st_mtime_ns}", folder, orders=30_000, engine=request.param)
    yield one
    one.close()


def test_a_first_start_beside_live_traffic(alive: Alive) -> None:
    """600 changes a second go on from before the first snapshot until the join writes: 0/0/0."""
    with alive.traffic(FAST) as more:
        more(600)
        alive.pipeline.start()
        more(3_000)
        wait_for(alive.joining, "no row was joined", 300)
    assert alive.settled() == {}


def test_tables_are_read_again_beside_live_traffic(alive: Alive) -> None:
    """`tailorbird snapshot` of two tables repeats every row of them, and changes nothing."""
    with alive.traffic(SLOW) as more:
        more(100)
        tables = tuple(f"{alive.name}.{table}" for table in ("orders", "products"))
        send(alive.topology, "shop", signal_value("execute-snapshot", tables, ""))
        more(1_500)
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
