"""Tables are read from a replica, and the log from its primary: the stream joins where the replica was."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, cast

import pytest

from cdc.model.errors import TopologyError
from ingest.capture import proc_chunks
from ingest.mysql import mysql_replica, mysql_snapshot
from ingest.records.waiting import waiting_of
from tests.ingest.binlog.binlog_servers import Server, start
from tests.support.live_capture import LiveCapture
from tests.support.replication import replicate
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(300)]
READS = (
    "SELECT COUNT(*) FROM mysql.general_log WHERE argument LIKE 'SELECT%FROM `d`.`t`%LIMIT%'"
    " AND argument NOT LIKE '%general_log%'"
)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[tuple[Server, Server]]:
    """Start a primary with a table and its replica, which log the statements that they execute."""
    servers = [start("mysql80", tmp_path / name, f"--server-id={number}") for name, number in (("a", 77), ("b", 78))]
    primary, replica = servers
    try:
        for server in servers:
            run(server, "CREATE DATABASE d DEFAULT CHARSET utf8mb4")
        run(primary, "CREATE TABLE d.t (id INT PRIMARY KEY, v INT)")
        for low in range(0, 10_000, 2_000):
            run(primary, "INSERT INTO d.t VALUES " + ",".join(f"({i}, 0)" for i in range(low, low + 2_000)))
        replicate(primary, replica)
        for server in servers:
            run(server, "SET GLOBAL log_output = 'TABLE'", "SET GLOBAL general_log = ON")
        yield primary, replica
    finally:
        for server in servers:
            server.stop()


def run(server: Server, *statements: str) -> list[Any]:
    with server.session() as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def rows_of(server: Server) -> list[dict[str, int]]:
    """Return the rows of the table in the order of `LiveCapture.rows`."""
    rows = [{"id": key, "v": v} for key, v in run(server, "SELECT id, v FROM d.t")]
    return sorted(rows, key=lambda row: str(list(row.values())))


def captured(primary: Server, replica: Server) -> LiveCapture:
    return LiveCapture(primary, "d", ("t",), f", snapshot: {{hostname: 127.0.0.1, port: {replica.port}}}")


def why(capture: LiveCapture) -> str:
    """Return why the table is not read from the replica, as the newest commit says."""
    waits = waiting_of(capture.state())
    return waits["d.t"]["why"] if "d.t" in waits else ""


def test_rows_of_the_replica_and_changes_of_the_primary(two: tuple[Server, Server]) -> None:
    """Also while the replica is late, and rows change that it has not received. The primary's tables are not read."""
    primary, replica = two
    wait_for(lambda: len(run(replica, "SHOW TABLES FROM d")) == 1, "nothing is replicated")
    capture, random, stop = captured(primary, replica), Random(5), threading.Event()

    def write() -> None:
        with primary.session() as connection, connection.cursor() as cursor:
            while not stop.wait(0.002):
                key = random.randrange(10_500)
                cursor.execute(random.choice((
                    f"REPLACE INTO d.t VALUES ({key}, {random.randrange(1000)})", f"DELETE FROM d.t WHERE id = {key}",
                    f"UPDATE d.t SET v = v + 1 WHERE id BETWEEN {key} AND {key + 5}",
                )))  # fmt: skip

    writer = threading.Thread(target=write)
    writer.start()
    try:
        run(replica, "STOP SLAVE SQL_THREAD")
        run(primary, "UPDATE d.t SET v = v + 1 WHERE id < 10")
        capture.start()
        capture.wait(lambda: bool(capture.state()), "it does not begin")
        assert run(replica, READS) == [(0,)], "the replica lacks what the stream has read"
        run(replica, "START SLAVE SQL_THREAD")
        capture.wait_quiet()
        run(replica, "STOP SLAVE SQL_THREAD")  # the log does not depend on it
    finally:
        stop.set()
        writer.join()
    truth = rows_of(primary)
    capture.wait_rows("t", truth)
    capture.stop()
    assert len(truth) > 8_000
    assert run(primary, READS) == [(0,)]
    assert run(replica, READS)[0][0] >= 3


def test_the_log_does_not_wait_for_a_replica(two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """While it is stopped, and then killed, changes reach the topics; the rest follows when it is there again."""
    monkeypatch.setattr(mysql_snapshot, "_TIMEOUT", 0.5)
    monkeypatch.setattr(proc_chunks, "LONGEST", 1.0)
    primary, replica = two
    wait_for(lambda: len(run(replica, "SHOW TABLES FROM d")) == 1, "nothing is replicated")
    run(replica, "STOP SLAVE SQL_THREAD")
    run(primary, "UPDATE d.t SET v = 7 WHERE id = 1")
    capture = captured(primary, replica).start()
    capture.wait(lambda: "it applies nothing" in why(capture), "no reason is given")
    run(primary, "INSERT INTO d.t VALUES (30001, 1)")
    capture.wait_rows("t", [{"id": 30_001, "v": 1}])
    assert sum("it applies nothing" in line for line in capture.reported.lines) == 1
    replica.process.kill()
    replica.process.wait()
    capture.wait(lambda: "connect" in why(capture), "the lost server is not reported")
    run(primary, "INSERT INTO d.t VALUES (30002, 1)")
    capture.wait_rows("t", [{"id": 30_001, "v": 1}, {"id": 30_002, "v": 1}])
    words = [word for word in map(str, cast(list[Any], replica.process.args)) if not word.startswith("--init-file")]
    replica.process.args = words  # that file would make transactions of its own
    replica.restart()
    capture.wait_quiet()
    assert why(capture) == ""
    capture.wait_rows("t", rows_of(primary))
    capture.stop()


def test_a_replica_with_a_filter_is_not_read(two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with a filter that names another database. The capture of the log continues, and the tables are read
    once the filter is removed."""
    monkeypatch.setattr(proc_chunks, "LONGEST", 1.0)
    primary, replica = two
    wait_for(lambda: run(replica, "SELECT COUNT(*) FROM d.t") == [(10_000,)], "nothing is replicated")
    run(replica, "STOP SLAVE SQL_THREAD", "CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB = (mysql)", "START SLAVE")
    run(primary, "USE mysql", "TRUNCATE d.t", "USE d", "INSERT INTO d.t VALUES (30000, 1)")
    wait_for(lambda: run(replica, "SELECT COUNT(*) FROM d.t") == [(10_001,)], "the replica does not skip TRUNCATE")
    capture = captured(primary, replica).start()
    filtered = "does not apply all changes of its primary (Replicate_Ignore_DB: mysql)"
    capture.wait(lambda: filtered in why(capture), "it is read")
    run(primary, "USE d", "INSERT INTO d.t VALUES (30001, 1)")
    capture.wait_rows("t", [{"id": 30_001, "v": 1}])
    assert capture.left_out() == set()
    run(replica, "STOP SLAVE SQL_THREAD", "CHANGE REPLICATION FILTER REPLICATE_IGNORE_DB = ()")
    run(primary, "TRUNCATE d.t", "INSERT INTO d.t VALUES (2, 2)")
    run(replica, "START SLAVE")
    capture.wait_quiet()
    capture.wait_rows("t", [{"id": 2, "v": 2}])
    assert why(capture) == ""
    capture.stop()


def test_a_replica_of_a_replica_is_not_read(two: tuple[Server, Server], tmp_path: Path) -> None:
    """The server between the two may have filters. Its own replica is a direct one."""
    primary, relay = two
    wait_for(lambda: len(run(relay, "SHOW TABLES FROM d")) == 1, "nothing is replicated")
    third = start("mysql80", tmp_path / "c", "--server-id=79")
    try:
        run(third, "CREATE DATABASE d")
        replicate(relay, third)
        wait_for(lambda: len(run(third, "SHOW TABLES FROM d")) == 1, "nothing is replicated")
        capture = captured(primary, third).start()
        capture.wait(lambda: "replicates from another server than its primary" in why(capture), "it is read")
        capture.stop()
        capture = captured(relay, third).start()
        capture.wait_quiet()
        capture.wait_rows("t", rows_of(primary))
        capture.stop()
    finally:
        third.stop()


def test_another_data_set_is_not_read(two: tuple[Server, Server], monkeypatch: pytest.MonkeyPatch) -> None:
    """With transactions of its own, a replica is not what the log describes; without the purged ones it is not yet."""
    monkeypatch.setattr(mysql_replica, "COMMITS", 1)
    monkeypatch.setattr(proc_chunks, "LONGEST", 1.0)
    primary, replica = two
    wait_for(lambda: len(run(replica, "SHOW TABLES FROM d")) == 1, "nothing is replicated")
    run(replica, "CREATE DATABASE own")
    capture = captured(primary, replica).start()
    capture.wait(lambda: "has transactions that its primary lacks" in why(capture), "it is read")
    assert capture.left_out() == set()
    run(replica, "STOP SLAVE", "RESET SLAVE ALL", "RESET MASTER")
    run(primary, "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (30001, 1)")
    capture.wait_rows("t", [{"id": 30_001, "v": 1}])
    run(primary, "PURGE BINARY LOGS TO 'binlog.000002'")
    capture.wait(lambda: "lacks transactions that its primary has purged" in why(capture), "it is read")
    run(replica, *(f"SET GLOBAL gtid_mode = {mode}" for mode in ("ON_PERMISSIVE", "OFF_PERMISSIVE", "OFF")))
    capture.wait(lambda: "needs GTIDs of MySQL, which the replica 127.0.0.1" in why(capture), "it is read")
    capture.stop()


def test_a_replica_of_mariadb_is_refused(two: tuple[Server, Server], tmp_path: Path) -> None:
    """Its GTIDs do not identify the server whose changes it has, so it could be the replica of another primary."""
    primary, first = two
    other = start("maria10", tmp_path / "m", "--server-id=79", "--log-slave-updates")
    try:
        capture = captured(primary, other).start()
        capture.wait(lambda: "needs GTIDs of MySQL, which the replica 127.0.0.1" in why(capture), "it is read")
        assert "MariaDB" in why(capture)
        capture.stop()
        with pytest.raises(TopologyError, match="only MySQL with GTIDs supports it"):
            captured(other, first).session()
    finally:
        other.stop()
