"""The capture process on real MySQL, PostgreSQL and Kafka, killed at random under live traffic."""

from __future__ import annotations

import json
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.support.gateways import GatewayProcess

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(280)]


class Traffic(threading.Thread):
    """One writer that records every change: a read_committed reader must see them in this order."""

    def __init__(self, captured: Any, seed: int, rows: dict[int, int]) -> None:
        super().__init__(name="traffic")
        self.captured, self.random, self.rows = captured, Random(seed), rows
        self.changes: list[tuple[str, int, int | None]] = []
        self.enough = threading.Event()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            with self.captured.connection() as connected:
                self.captured.by_hand(connected)
                while not self.enough.is_set():
                    with connected.cursor() as cursor:
                        for _ in range(self.random.choice((1, 1, 1, 5, 60))):
                            self._change(cursor)
                    connected.commit()
                    self.enough.wait(0.01)
        except BaseException as error:  # checked in the test's own thread
            self.failed = error
            raise

    def _change(self, cursor: Any) -> None:
        serial, key = len(self.changes) + 1_000_000, self.random.choice(list(self.rows)[:500] or [1])
        kind = self.random.random()
        if kind < 0.3 or key not in self.rows:
            key = serial
            cursor.execute("INSERT INTO t VALUES (%s, %s)", (key, serial))
            self._did("c", key, serial)
        elif kind < 0.7:
            cursor.execute("UPDATE t SET v = %s WHERE id = %s", (serial, key))
            self._did("u", key, serial)
        elif kind < 0.85:
            cursor.execute("DELETE FROM t WHERE id = %s", (key,))
            self._did("d", key, None)
        else:
            cursor.execute("UPDATE t SET id = %s, v = %s WHERE id = %s", (serial, serial, key))
            self._did("d", key, None)
            self._did("c", serial, serial)

    def _did(self, op: str, key: int, value: int | None) -> None:
        self.changes.append((op, key, value))
        if value is None:
            del self.rows[key]
        else:
            self.rows[key] = value


@pytest.fixture
def gateway_of(tmp_path: Path) -> Iterator[Callable[[Any], GatewayProcess]]:
    """Start a gateway over what is captured."""
    made: list[GatewayProcess] = []

    def make(captured: Any) -> GatewayProcess:
        made.append(GatewayProcess(captured.file, tmp_path / "fleet"))
        made[-1].start()
        return made[-1]

    yield make
    for one in made:
        one.end()


# captures of PostgreSQL that are killed: tests/databases/test_random_databases.py
@pytest.fixture(params=["mysql", pytest.param("postgresql", marks=pytest.mark.matrix)])
def database(request: pytest.FixtureRequest, capture: Callable[..., Any]) -> Any:
    """Create a database with tables t and u to capture, on either server."""
    make = capture if request.param == "mysql" else request.getfixturevalue("capture_postgres")
    return make("t", "u")


@pytest.mark.parametrize(("kills", "size"), [(4, 20_000), pytest.param(8, 80_000, marks=pytest.mark.matrix)])
def test_killed_at_random_each_change_is_seen_exactly_once(
    database: Any, gateway_of: Callable[[Any], GatewayProcess], kills: int, size: int
) -> None:
    """Kill -9 in the snapshot, between records and their commit, and anywhere in the stream, under live traffic. Every
    second capture runs through a gateway, one of which is killed as well.
    """
    captured, random = database, Random(5)
    gateway = gateway_of(captured)
    for table in "tu":
        captured.sql(f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, v BIGINT)")
    rows = {key: key for key in range(size)}
    for start in range(0, len(rows), 10_000):
        captured.sql("INSERT INTO t VALUES " + ",".join(f"({key},{key})" for key in range(start, start + 10_000)))
    topic = captured.topic("t")
    traffic = Traffic(captured, 7, rows)
    traffic.start()
    snapshots = stopped = 0
    lock = ExitStack()
    lock.enter_context(captured.locked("u"))  # the first kill is in the snapshot, however fast the machine is
    try:
        for kill in range(kills):
            process = captured.start(*(gateway.options if kill % 2 == 0 else ()))
            if kill < 2:  # in the snapshot
                level, grown = "read_uncommitted", (1, random.choice((1, 2000, 4000)))[kill]
            elif kill % 2:  # records are in the log, but not committed
                captured.streaming(process)
                level, grown = "read_uncommitted", 0
            else:
                captured.streaming(process)
                level, grown = "read_committed", random.randint(1, 300)
            seen = captured.ends("t", level) + grown

            def reached(level: str = level, seen: int = seen) -> bool:
                end: int = captured.ends("t", level)
                return end > seen and (level == "read_committed" or end > captured.ends("t", "read_committed"))

            deadline = time.monotonic() + 480
            while kill == 0 and captured.ends("t", level) <= seen:  # without a pause: a snapshot takes half a second
                assert time.monotonic() < deadline, "no progress"
            if kill:
                captured.wait_for(reached, "no progress")
            if kill == kills - 2:
                gateway.end()
                gateway.start()
                seen = captured.ends("t", "read_committed")
                captured.wait_for(
                    lambda seen=seen: captured.ends("t", "read_committed") > seen, "the capture does not progress"
                )
            process.send_signal(signal.SIGKILL)
            process.wait()
            lock.close()
            position = captured.position()
            snapshots += position is None or position["snapshot"] == "running"
            stopped += 1
        assert traffic.failed is None
    finally:
        lock.close()
        traffic.enough.set()
        traffic.join()
    process = captured.start(*gateway.options)
    captured.caught_up()
    process.terminate()
    assert captured.end_of(process)[0] == 0
    assert gateway.end(signal.SIGTERM) == 0
    assert snapshots >= 1
    assert stopped == kills

    records = captured.read(topic)
    events = [(partition, json.loads(value)) for partition, _, value in records if value is not None]
    for partition in range(2):
        sequences = [event["source"]["sequence"] for at, event in events if at == partition and event["op"] != "r"]
        assert sequences == sorted(sequences), "a partition's changes are out of order"
    streamed = sorted((event for _, event in events if event["op"] != "r"), key=lambda e: e["source"]["sequence"])
    assert [event["source"]["sequence"] for event in streamed] == list(range(1, len(streamed) + 1))
    reported = [
        (event["op"], (event["after"] or event["before"])["id"], event["after"] and event["after"]["v"])
        for event in streamed
    ]
    assert len(reported) > 500
    assert reported == traffic.changes[-len(reported) :]
    state: dict[int, int] = {}
    for _, key, value in records:
        after = json.loads(value)["after"] if value is not None else None
        if after is None:
            state.pop(json.loads(key)["id"], None)
        else:
            state[after["id"]] = after["v"]
    assert state == traffic.rows == dict(captured.sql("SELECT id, v FROM t"))
    position = captured.position()
    assert position is not None
    assert position["position"]["sequence"] == len(streamed)
