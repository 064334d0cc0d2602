"""A capture that loses its database connects again and again, and needs no more threads and files each time."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pymysql
import pytest
from pymysql.constants import ER

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop")]

LOST = 2


@pytest.fixture(params=["mysql", pytest.param("postgresql", marks=pytest.mark.matrix)])
def database(request: pytest.FixtureRequest, capture: Callable[..., Any]) -> Any:
    """Create a database with a table t to capture, on either server."""
    make = capture if request.param == "mysql" else request.getfixturevalue("capture_postgres")
    return make("t")


def test_lost_connections_leave_no_threads_and_files(database: Any) -> None:
    """The objects of a session refer to each other, so Python may collect them only after a quarter of an hour."""
    database.sql("CREATE TABLE t (id INT PRIMARY KEY)")
    process = database.start()
    database.streaming(process)
    used = list[tuple[int, int]]()
    for number in range(LOST + 1):
        disconnect(database)
        database.sql(f"INSERT INTO t VALUES ({number})")
        database.caught_up()
        used.append(threads_and_files(process.pid))
    assert used == [used[0]] * len(used)


def disconnect(database: Any) -> None:
    """End all connections of the capture."""
    if hasattr(database, "server"):
        with database.server.session() as connected:
            connected.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'cdc'")
        return
    for (number,) in database.sql("SELECT id FROM information_schema.processlist WHERE user = 'cdc'"):
        try:
            database.sql(f"KILL {number}")
        except pymysql.err.OperationalError as error:
            if error.args[0] != ER.NO_SUCH_THREAD:  # it has ended by itself: the capture also has short connections
                raise


def threads_and_files(pid: int) -> tuple[int, int]:
    """Return how many threads and open files a process has, once both numbers no longer change."""
    now = (0, 0)
    while True:
        before = now
        time.sleep(0.3)
        now = tuple(len(list(Path(f"/proc/{pid}/{what}").iterdir())) for what in ("task", "fd"))  # type: ignore[assignment]
        if now == before:
            return now
