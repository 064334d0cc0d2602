"""Poll real MySQL into Kafka, killed under traffic: 10,000 rows share a timestamp, a commit is 3 s late, the clock
steps back.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from cdc.topology.reader import read_topology
from cdc.topology.topology import Source
from ingest.capture.signals import signal_value
from ingest.log.kafka_signals import send
from ingest.mysql.mysql_connection import connected
from ingest.poll.mysql_reader import MySqlReader
from ingest.poll.poll_interfaces import Ask
from ingest.poll.window import Window
from tests.ingest.binlog.binlog_servers import Server, start
from tests.integration.conftest import CapturedDatabase, servers

pytestmark = [pytest.mark.integration, pytest.mark.timeout(280)]

TABLE = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT NOT NULL, updated_at TIMESTAMP(3) NOT NULL "
    "DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3), INDEX idx__updated_at (updated_at))"
)


@dataclass
class OtherServerDatabase(CapturedDatabase):
    """A database captured from a server of the test's own."""

    server: Server | None = None

    def connection(self) -> Any:
        assert self.server is not None
        return self.server.session(database=self.name, init_command="SET time_zone = '+00:00'")

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        rows: list[tuple[Any, ...]] = []
        with self.connection() as session, session.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows


@pytest.fixture(params=["mysql80", pytest.param("maria10", marks=pytest.mark.matrix)])
def polled(
    request: pytest.FixtureRequest, capture: Callable[..., Any], unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Any]:
    """Create a captured database whose topology polls it."""
    extra = "capture: poll, limit: 500, interval: 200ms, lag: 5s"
    if request.param == "mysql80":
        made = capture("t", extra=f", {extra}")
        head, _, rest = made.file.read_text().partition(" server_id: ")
        made.file.write_text(head + rest.partition(",")[2])
        made.sql(TABLE)
        yield made
        return
    server, name = start(request.param, tmp_path / "server"), unique("cap")
    try:
        with server.session() as session, session.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} DEFAULT CHARSET utf8mb4")
        file = tmp_path / f"{name}.yml"
        file.write_text(
            f"name: {name}\nsources:\n  shop: {{type: mariadb, hostname: 127.0.0.1, port: {server.port}, "
            f"username: cdc, password: cdc, database: {name}, tables: [t], {extra}}}\n"
            f"log: {{bootstrap_servers: '{servers()}'}}\n"
            "tables:\n  wide: {query: SELECT a.id FROM shop.t a, row_key: [id]}\n"
        )
        made = OtherServerDatabase(name, file, ("t",), server=server)
        made.sql(TABLE)
        yield made
        made.close()
    finally:
        server.stop()


def source_of(made: Any) -> Source:
    return read_topology(made.file.read_text(), file="t.yml", environ={}).sources["shop"]


def reported(made: Any) -> list[dict[str, Any]]:
    return [event for event in made.events("t") if event["op"] == "r"]


def state_of(events: list[dict[str, Any]]) -> dict[int, int]:
    newest = sorted(events, key=lambda event: event["source"]["sequence"])
    return {event["after"]["id"]: event["after"]["v"] for event in newest}


def test_nothing_is_missed_through_ties_late_commits_and_kills(polled: Any) -> None:
    """4,000 rows share one timestamp; under updates a transaction commits 3 s late; the process is killed twice:
    every row's last version is in the log, each version once.
    """
    shared = "2026-01-01 00:00:00.123"
    rows = {key: key for key in range(4000)}
    for low in range(0, 4000, 2000):
        values = ",".join(f"({key},{key},'{shared}')" for key in range(low, low + 2000))
        polled.sql(f"INSERT INTO t VALUES {values}")
    random, stop = Random(3), threading.Event()

    def write() -> None:
        with polled.connection() as connected, connected.cursor() as cursor:
            while not stop.wait(0.02):
                key, value = random.randint(0, 3900), random.randint(10**6, 10**9)
                cursor.execute("UPDATE t SET v = %s WHERE id = %s", (value, key))
                rows[key] = value

    def late() -> None:
        with polled.connection() as connected, connected.cursor() as cursor:
            connected.begin()
            cursor.execute("UPDATE t SET v = 77 WHERE id >= 3990")
            time.sleep(3)  # the delay is the subject of the test: the transaction commits 3 s after its statement
            connected.commit()
        rows.update(dict.fromkeys(range(3990, 4000), 77))

    threads = [threading.Thread(target=write), threading.Thread(target=late)]
    process = polled.start()
    polled.wait_for(lambda: polled.ends("t", "read_uncommitted") > 500, "nothing is published")
    for thread in threads:
        thread.start()
    for _ in range(2):
        time.sleep(random.random())
        process.send_signal(signal.SIGKILL)
        process.wait()
        process = polled.start()
        seen = polled.ends("t", "read_committed")
        polled.wait_for(lambda seen=seen: polled.ends("t", "read_committed") > seen, "no progress after a kill")
    threads[1].join()
    stop.set()
    threads[0].join()
    polled.wait_for(lambda: state_of(reported(polled)) == rows, "rows are missing")
    assert dict(polled.sql("SELECT id, v FROM t")) == rows
    process.terminate()
    assert polled.end_of(process)[0] == 0
    events = reported(polled)
    assert len(events) == len({(e["after"]["id"], e["after"]["v"], e["after"]["updated_at"]) for e in events})
    assert sorted(e["source"]["sequence"] for e in events) == list(range(1, len(events) + 1))
    assert all(e["source"]["last_update_only"] for e in events)
    assert polled.position()["snapshot"] == "done"


def test_a_dump_removes_deleted_rows_despite_a_kill(polled: Any) -> None:
    """A signal starts a new read of a polled table. Killed after its first rows the dump resumes: no row is dumped
    twice. After its marker the log equals the table, without the deleted rows that polling could not see.
    """
    shared = "2026-01-01 00:00:00.123"
    values = ",".join(f"({key},{key},'{shared}')" for key in range(3000))
    polled.sql(f"INSERT INTO t VALUES {values}")
    process = polled.start()
    polled.wait_for(lambda: (polled.position() or {}).get("snapshot") == "done", "the table is not published")
    polled.sql("DELETE FROM t WHERE id % 10 = 3", "UPDATE t SET v = -1, updated_at = updated_at WHERE id % 10 = 4")
    topology = read_topology(polled.file.read_text(), file="t.yml", environ={})
    before = polled.ends("t", "read_uncommitted")
    sent = send(topology, "shop", signal_value("execute-snapshot", (f"{polled.name}.t",)))
    polled.wait_for(lambda: polled.ends("t", "read_uncommitted") > before, "the dump does not begin")
    process.send_signal(signal.SIGKILL)
    process.wait()
    process = polled.start()

    def done() -> bool:
        state = polled.position()["state"]
        return state.get("signals", 0) > sent and not state.get("snapshots")

    polled.wait_for(done, "the dump does not end")
    process.terminate()
    assert polled.end_of(process)[0] == 0
    events = polled.events("t")
    (number,) = {event["source"]["sequence"] for event in events if event["op"] == "t"}
    since = [event for event in events if event["op"] == "r" and event["source"]["sequence"] > number]
    dumped = [event["after"]["id"] for event in since if event["source"]["snapshot"] == "true"]
    assert len(dumped) == len(set(dumped)) == 2700
    assert state_of(since) == dict(polled.sql("SELECT id, v FROM t"))


@pytest.mark.parametrize("seconds", [4, 3600])
def test_a_clock_that_steps_back_hides_no_row(polled: Any, seconds: int) -> None:
    """Rows written after the server's clock stepped back, by less or by far more than `lag`, are read."""
    source = source_of(polled)
    assert source.poll is not None
    with connected(source) as connection, polled.connection() as writer, writer.cursor() as cursor:
        reader = MySqlReader(connection, source, source.poll)
        (schema,) = reader.schemas({}).values()
        window, found = Window(lag=int(source.poll.lag * 1e6), limit=3), dict[int, str]()
        local = [0]

        def cycle() -> None:
            local[0] += 1_000_000
            window.begin(reader.look(schema), local[0])
            while not window.finished:
                for row in window.take(reader.page(schema, window.ask())):
                    assert isinstance(row.image, dict)
                    found[int(str(row.image["id"]))] = str(row.image["v"])

        def at(moment: float) -> None:
            """Set the clock of the whole server, as far as these two sessions see it."""
            for one in (cursor, connection.cursor()):
                one.execute(f"SET SESSION timestamp = {moment:.3f}")

        now = 1_790_000_000.0
        for i in range(20):
            at(now + i - (seconds if i >= 10 else 0))
            cursor.execute("INSERT INTO t (id, v) VALUES (%s, 1)", (i,))
            if i:
                cursor.execute("UPDATE t SET v = v + 1 WHERE id = %s", (i - 1,))
            cycle()
        assert found == {int(key): str(value) for key, value in polled.sql("SELECT id, v FROM t")}
        assert window.steps == 1


def test_a_polled_row_equals_the_row_from_the_log(polled: Any) -> None:
    """Zero dates, zones and quotes in names: values are canonical, and others are refused with their names."""
    polled.sql(
        "DROP TABLE t",
        "CREATE TABLE t (`a``b%` VARCHAR(9), n INT UNSIGNED, d DATETIME(6) NULL, x VARBINARY(9), "
        "updated_at DATETIME NOT NULL, PRIMARY KEY (`a``b%`, n))",
        "SET sql_mode = ''",
        "INSERT INTO t VALUES ('é''%s', 4294967295, '2026-02-28 01:02:03.5', x'00ff27', '2026-02-28 01:02:03')",
        "INSERT INTO t VALUES ('z', 1, NULL, NULL, '2026-02-28 01:02:03'), ('z', 2, NULL, NULL, '2026-02-28 01:02:03')",
    )
    source = source_of(polled)
    assert source.poll is not None
    with connected(source) as connection:
        reader = MySqlReader(connection, source, source.poll)
        (schema,) = reader.schemas({}).values()
        first, *_ = page = reader.page(schema, Ask(start=None, after=None, limit=2))
        assert first.image == {
            "a`b%": "é'%s",
            "n": 4294967295,
            "d": "2026-02-28T01:02:03.5Z",
            "x": "AP8n",
            "updated_at": "2026-02-28T01:02:03Z",
        }
        rest = reader.page(schema, Ask(start=page[-1].cursor, after=page[-1].key, limit=5))
        assert [row.key for row in rest] == [("z", "2")]
        walked, after = reader.walk(schema, None, "", 2)
        last, end = reader.walk(schema, after, "", 2)
        assert [walked, len(last), end] == [[row.image for row in page], 1, None]
        assert reader.walk(schema, None, "x IS NULL AND d IS NULL OR d LIKE '%28%'", 9)[0] == [*walked, *last]
        assert reader.backlog(schema, first.cursor, 2) == 2
        assert reader.backlog(schema, first.cursor + 1, 2) == 0
        assert reader.look(schema).newest == first.cursor
