"""XA transactions and rollbacks on real servers: rows are published at their commit, exactly once, in commit order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.ingest.binlog.binlog_servers import FLAVOURS, Server
from tests.support.captured_memory import MemoryCapture
from tests.support.xa_traffic import XaTraffic, changes_of

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
OTHERS = [pytest.param(name, marks=pytest.mark.matrix) for name in ("mysql57", "mysql9", "maria10", "maria11")]


@pytest.fixture
def captured(
    servers: Callable[[str], Server], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Callable[..., MemoryCapture]]:
    """Makes a capture of tables of a new database on a server."""
    made: list[MemoryCapture] = []

    def make(flavour: str, *statements: str, tables: tuple[str, ...] = ("t",), **options: Any) -> MemoryCapture:
        server = servers(flavour)
        name = f"xa{abs(hash(request.node.name)) % 10**8}"
        with server.session() as connected, connected.cursor() as cursor:
            for statement in (f"CREATE DATABASE {name}", f"USE {name}", *statements):
                cursor.execute(statement)
        made.append(MemoryCapture(server, tmp_path, name, tables, **options))
        return made[-1]

    yield make
    for one in made:
        one.stop()


TABLE = "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT)"


@pytest.mark.parametrize(
    ("flavour", "transactions", "kills"),
    [("mysql80", 40, 5), *(pytest.param(name, 200, 20, marks=pytest.mark.matrix) for name in FLAVOURS)],
)
def test_random_interleavings_are_captured_exactly_once(
    captured: Callable[..., MemoryCapture], flavour: str, transactions: int, kills: int
) -> None:
    """Many XA transactions in random interleavings, with plain ones, savepoints and log rotations between, and kills of
    the capture, which begins in the middle: each committed change once, in commit order, nothing of a rollback."""
    capture = captured(flavour, TABLE)
    traffic = XaTraffic(capture.server, capture.database, random := Random(42))
    try:
        for _ in range(60):
            traffic.step()
        straddling, before = traffic.straddling(), len(traffic.changes)
        capture.start()
        capture.caught_up()
        steps = 0
        while traffic.ended < transactions or capture.kills < kills:
            traffic.step()
            steps += 1
            if steps % 30 == 0:
                capture.kill(random.randrange(30))
            assert steps < 6000
        traffic.finish()
    finally:
        traffic.close()
    capture.caught_up()
    capture.stop()
    assert capture.rows("t") == capture.held("t")
    assert {key: row["v"] for key, row in capture.rows("t").items()} == traffic.rows
    expected = [one for one in traffic.changes[before:] if one[2] is None or one[2] not in straddling]
    found = list(changes_of(capture.events("t")))
    assert [one for one in found if one[2] is not None] == [one for one in expected if one[2] is not None]
    assert traffic.interleaved > transactions // 2
    numbers = [event["source"]["sequence"] for event in capture.events("t") if event["op"] in "cud"]
    assert numbers == sorted(set(numbers))
