"""Start, change and repair a topology during live traffic on real servers; HBase and Solr equal the sources.

One pipeline runs through all steps, as in production. Its Kafka requires a password, which must not be leaked.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ingest.capture.signals import signal_value
from ingest.log.kafka_signals import send
from tests.integration.alive import LivePipeline
from tests.support.leaks import in_secret_files_only, not_on_command_lines
from tests.support.secured_kafka import SecuredKafka, log_of
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(900)]

FAST, SLOW = 600.0, 150.0  # changes per second


def begun(folder: Path, *, orders: int, mode: str = "initial", log: str = "") -> LivePipeline:
    """A pipeline whose snapshot starts during 600 changes per second; when its joins start, the traffic slows down."""
    one = LivePipeline(f"alive_{folder.stat().st_mtime_ns}", folder, orders=orders, mode=mode, log=log)
    with one.traffic(FAST) as more:
        more(600)
        one.pipeline.start()
        wait_for(one.planned, "the join does not start", 300)
        more(1_000)
    with one.traffic(SLOW) as more:
        one.must_join()
        more(100)
    return one


@pytest.fixture(scope="module")
def alive(
    stack: object, secured_kafka_broker: SecuredKafka, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LivePipeline]:
    folder = tmp_path_factory.mktemp("alive")
    # more than one chunk of a snapshot
    one = begun(folder, orders=4_500, log=log_of(secured_kafka_broker, folder))
    yield one
    one.close()


def test_a_first_start_during_live_traffic(alive: LivePipeline) -> None:
    """Over 5,500 rows of three tables: no row differs, is missing or is extra."""
    assert alive.settled() == {}


@pytest.mark.matrix  # rows that the log never held: tests/laws/test_alive.py, test_capture_snapshot.py
def test_a_snapshot_of_rows_that_were_never_read(stack: object, tmp_path_factory: pytest.TempPathFactory) -> None:
    """With `snapshot_mode: never`, a later `tailorbird snapshot` adds rows that the log never held and keeps later
    changes.
    """
    one = begun(tmp_path_factory.mktemp("never"), orders=3_000, mode="never")
    try:
        with one.traffic(SLOW) as more:
            more(100)
            for source, tables in (("shop", ("orders", "products")), ("crm", ("customers",))):
                names = tuple(f"{one.name}.{table}" for table in tables)
                send(one.topology, source, signal_value("execute-snapshot", names, ""))
            more(500)
        assert one.settled() == {}
    finally:
        one.close()


@pytest.mark.matrix  # tables that were never read before: the test above
def test_tables_are_read_again_during_live_traffic(alive: LivePipeline) -> None:
    """`tailorbird snapshot` of two tables publishes every row again and changes nothing."""
    with alive.traffic(SLOW) as more:
        more(100)
        tables = tuple(f"{alive.name}.{table}" for table in ("orders", "products"))
        send(alive.topology, "shop", signal_value("execute-snapshot", tables, ""))
        more(500)
    assert alive.settled() == {}


def test_one_session_logs_partial_images(alive: LivePipeline) -> None:
    """`SET SESSION binlog_row_image = MINIMAL` in one session: its rows are read by key, all others continue to
    flow."""
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


@pytest.mark.matrix
def test_a_column_is_added_used_and_the_table_rebuilt(alive: LivePipeline) -> None:
    """Older rows show the new column's default; values of a widened column appear in the new type."""
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


@pytest.mark.matrix  # lost logs: tests/laws/test_alive.py; rebuilds during traffic: the test above
def test_a_topic_is_deleted_and_recovered(alive: LivePipeline) -> None:
    """The capture re-reads the table of a deleted topic; the join reports that the topic was recreated, and the
    remedy."""
    with alive.traffic(SLOW) as more:
        more(100)
        alive.lose_topic("products")
        said = alive.end_of_join()
        assert "was deleted and recreated" in said
        assert "--rebuild" in said
        alive.joined("--rebuild")
        more(300)
    assert alive.settled() == {}


def test_the_password_of_kafka_is_not_leaked(alive: LivePipeline) -> None:
    """It is on no command line, in no log, plan or checkpoint: only in the topology's file for it and in one that only
    its owner can read.
    """
    not_on_command_lines(alive.file)
    alive.pipeline.stop()
    in_secret_files_only(alive.folder)
