"""A topology started, changed and mended beside live traffic, on real servers: both far ends equal the near end.

The first start has many rows; one pipeline of few rows runs through the steps that follow in life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from ingest.capture.signals import signal_value
from ingest.log.kafka_signals import send
from tests.integration.alive import Alive
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FAST, SLOW = 600.0, 150.0  # changes per second


@pytest.mark.parametrize("python", [False, pytest.param(True, marks=pytest.mark.matrix)])
def test_a_first_start_beside_live_traffic(
    unique: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory, python: bool
) -> None:
    """600 changes a second over 20,000 rows of three tables, from before the first snapshot until the joins (of both
    engines, in one application) have begun, then fewer: 0/0/0."""
    one = Alive(unique("first"), tmp_path_factory.mktemp("first"), orders=12_000, python=python)
    try:
        with one.traffic(FAST) as more:
            more(600)
            one.pipeline.start()
            wait_for(one.planned, "the join does not begin", 300)
            more(2_000)
        with one.traffic(SLOW) as more:
            one.must_join()
            more(100)
        assert one.settled() == {}
    finally:
        one.close()


@pytest.fixture(scope="module")
def alive(stack: object, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alive]:
    """A pipeline that has read only what changed since it began; the first test has it read the rest."""
    folder = tmp_path_factory.mktemp("alive")
    one = Alive(f"alive_{folder.stat().st_mtime_ns}", folder, orders=3_000, mode="never")
    with one.traffic(SLOW) as more:
        one.pipeline.start()
        one.must_join()
        more(300)
    yield one
    one.close()


def test_a_snapshot_of_what_was_never_read(alive: Alive) -> None:
    """`snapshot_mode: never`, then `tailorbird snapshot`: what the log never held is there, what moved has moved."""
    with alive.traffic(SLOW) as more:
        more(100)
        for source, tables in (("shop", ("orders", "products")), ("crm", ("customers",))):
            names = tuple(f"{alive.name}.{table}" for table in tables)
            send(alive.topology, source, signal_value("execute-snapshot", names, ""))
        more(500)
    assert alive.settled() == {}


@pytest.mark.matrix  # never read before: test_a_snapshot_of_what_was_never_read
def test_tables_are_read_again_beside_live_traffic(alive: Alive) -> None:
    """`tailorbird snapshot` of two tables repeats every row of them, and changes nothing."""
    with alive.traffic(SLOW) as more:
        more(100)
        tables = tuple(f"{alive.name}.{table}" for table in ("orders", "products"))
        send(alive.topology, "shop", signal_value("execute-snapshot", tables, ""))
        more(500)
    assert alive.settled() == {}


def test_one_session_logs_partial_images(alive: Alive) -> None:
    """`SET SESSION binlog_row_image = MINIMAL` in one session: its rows are read by their keys, the rest flows."""
    with alive.traffic(SLOW) as more:
        more(100)
        alive.sql(
            "shop",
            "SET SESSION binlog_row_image = MINIMAL",
            "UPDATE orders SET customer_id = 5, amount = amount + 1 WHERE id BETWEEN 10 AND 40",
            "DELETE FROM orders WHERE id BETWEEN 50 AND 60",
            "INSERT INTO orders VALUES (999999, 5, 6, 'new', 7.5, '2026-11-23', 0)",
            "UPDATE orders SET id = id + 2000000 WHERE id BETWEEN 70 AND 80",
        )
        more(300)
    assert alive.settled() == {}


def test_a_column_is_added_used_and_the_table_rebuilt(alive: Alive) -> None:
    """Rows of before it show its default; values of a column that was widened are shown in its new type."""
    with alive.traffic(SLOW) as more:
        more(100)
        alive.sql(
            "shop",
            "ALTER TABLE orders ADD COLUMN channel VARCHAR(10) NOT NULL DEFAULT 'web'",
            "ALTER TABLE orders MODIFY amount DECIMAL(12,3) NOT NULL",
            "UPDATE orders SET channel = 'phone' WHERE id % 7 = 0",
        )
        more(300)
        alive.joined("--rebuild", more=", o.channel")
        more(300)
    assert alive.settled() == {}
    assert alive.dead_letters() == 0


@pytest.mark.matrix  # lost logs: tests/laws/test_alive.py; rebuilds beside traffic: the test above
def test_a_topic_is_deleted_and_recovered(alive: Alive) -> None:
    """The capture reads a lost topic's table again; the join says that it was made anew, and what helps."""
    with alive.traffic(SLOW) as more:
        more(100)
        alive.lose_topic("products")
        said = alive.end_of_join()
        assert "was deleted and made anew" in said
        assert "--rebuild" in said
        alive.joined("--rebuild")
        more(300)
    assert alive.settled() == {}
