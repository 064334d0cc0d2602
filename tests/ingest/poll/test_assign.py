"""`tailorbird poll assign`: numbers of a feed grow, are used once, and lead to the last version of each row."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest
from prometheus_client import REGISTRY
from typer.testing import CliRunner

from cdc.model.errors import Retriable, TopologyError, UsageError
from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.log.memory_log import Broker
from ingest.poll.ddl import statements
from ingest.poll.run_assign import AssignRounds
from ingest.poll.sql_assigner import FeedAssigner
from ingest.poll.sql_reader import connected
from ingest.report.poll_progress import PollProgress
from tailorbird.cli.app import app
from tests.ingest.poll.test_poll_alarms import run
from tests.support.pg_servers import PgServer
from tests.support.polled import PolledPostgres
from tests.support.waiting import wait_for

TABLE = TableId(source="s", database="main", table="t")
TEXT = (
    "name: top\nsources:\n  s: {{type: sql, capture: poll, mode: feed, url: 'sqlite:///{file}', database: main, tables:"
    " [t], limit: 3, interval: 10ms}}\n"
)


def topology(file: Path) -> Topology:
    return read_topology(TEXT.format(file=file), file="top.yml", environ={})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Return a database with the table of a feed, as `tailorbird poll ddl` prepares it."""
    file = tmp_path / "source.db"
    made = topology(file).sources["s"].poll
    assert made is not None
    sql(file, "CREATE TABLE t (id INTEGER PRIMARY KEY, v INTEGER)", *statements("sqlite", TABLE, made))
    return file


def sql(file: Path, *texts: str) -> list[Any]:
    with sqlite3.connect(file) as connection:
        rows = [connection.execute(text).fetchall() for text in texts][-1]
    connection.close()
    return rows


@contextmanager
def assigning(file: Path, first: int = 0) -> Iterator[FeedAssigner]:
    source = topology(file).sources["s"]
    with connected(source, isolation=None) as connection:
        yield FeedAssigner(connection, source, TABLE, "feed_sync_id", first=first)


def read(top: Topology, broker: Broker, progress: PollProgress | None = None) -> dict[int, int]:
    """Read the feed to its end; return the last published version of each row."""
    run(top, broker, progress, 2)
    rows = [orjson.loads(r.value)["after"] for r in broker.records if r.topic == change_topic("top", TABLE) and r.value]
    return {row["id"]: row["v"] for row in rows}


def test_no_number_is_used_twice(file: Path) -> None:
    """A row that is changed or deleted takes its number with it, also the greatest one."""
    with assigning(file) as assigner:
        sql(file, "INSERT INTO t (id, v) VALUES (1, 0), (2, 0), (3, 0)")
        assert (assigner.waiting(2), assigner.assign(2), assigner.assign(2), assigner.assign(2)) == (2, 2, 1, 0)
        assert sql(file, "SELECT feed_sync_id FROM t ORDER BY 1") == [(1,), (2,), (3,)]
        sql(file, "DELETE FROM t WHERE feed_sync_id = 3", "UPDATE t SET v = 1 WHERE feed_sync_id = 2")
        assert assigner.waiting(10) == 1
        assert assigner.assign(10) == 1
        assert sql(file, "SELECT feed_sync_id FROM t ORDER BY 1") == [(1,), (4,)]
    with assigning(file) as again:  # the counter outlives the process
        sql(file, "UPDATE t SET v = 2")
        assert again.assign(10) == 2
        assert sql(file, "SELECT feed_sync_id FROM t ORDER BY 1") == [(5,), (6,)]


def test_rows_without_a_number_are_an_alarm(file: Path) -> None:
    """A reader cannot see them, so it would otherwise seem to be complete."""
    sql(file, "INSERT INTO t (id, v) VALUES (1, 0), (2, 0), (3, 0)")
    top = read_topology(
        TEXT.format(file=file).replace("limit:", "alarm_unassigned: 2, limit:"), file="t.yml", environ={}
    )
    made = top.sources["s"].poll
    assert made is not None
    progress = PollProgress(alarms=made.alarms, success=0.0)
    read(top, Broker(), progress)
    assert progress.alarm(0.0) == "main.t: at least 3 rows have no number (alarm_unassigned: 2)"
    with assigning(file) as assigner:
        assigner.assign(10)
    read(top, Broker(), progress)
    assert progress.alarm(0.0) == ""
    text = TEXT.format(file=file).replace("mode: feed,", "alarm_unassigned: 2,")
    with pytest.raises(TopologyError, match="unknown key alarm_unassigned"):
        read_topology(text, file="t.yml", environ={})


def test_numbers_of_the_application_are_continued(file: Path) -> None:
    """A change that sets the number itself keeps it."""
    sql(file, "INSERT INTO t VALUES (1, 0, 70), (2, 0, NULL)", "UPDATE t SET feed_sync_id = 80, v = 5 WHERE id = 1")
    with assigning(file) as assigner, pytest.raises(UsageError, match="has numbers up to 80, but no counter"):
        assigner.assign(10)  # a greater number may have been read, and be gone since
    with assigning(file, first=100) as assigner:
        assert assigner.assign(10) == 1
        assert sql(file, "SELECT id, v, feed_sync_id FROM t ORDER BY 1") == [(1, 5, 80), (2, 0, 100)]
        sql(file, "UPDATE t SET feed_sync_id = 200 WHERE id = 1")
        assert assigner.assign(10) == 0
        sql(file, "DELETE FROM t WHERE id = 1", "UPDATE t SET v = 9 WHERE id = 2")
        assert assigner.assign(10) == 1
    assert sql(file, "SELECT id, v, feed_sync_id FROM t ORDER BY 1") == [(2, 9, 201)]


def test_columns_may_have_any_name(tmp_path: Path) -> None:
    """The statements' parameters have other names."""
    file = tmp_path / "source.db"
    made = topology(file).sources["s"].poll
    assert made is not None
    sql(file, "CREATE TABLE t (k0 INTEGER, n INTEGER, pk0 TEXT, PN TEXT, PRIMARY KEY (k0, n))",
        *statements("sqlite", TABLE, made), "INSERT INTO t (k0, n) VALUES (1, 2), (1, 3)")  # fmt: skip
    with assigning(file) as assigner:
        assert assigner.assign(10) == 2
    assert sql(file, "SELECT k0, n, feed_sync_id FROM t ORDER BY 2") == [(1, 2, 1), (1, 3, 2)]


def test_a_used_number_is_an_error_that_passes(file: Path) -> None:
    """Such as that of a counter that another process creates at the same time."""
    sql(file, "CREATE TRIGGER other BEFORE INSERT ON tailorbird_feeds BEGIN "
        "SELECT RAISE(ABORT, 'UNIQUE constraint failed: tailorbird_feeds.name'); END",
        "INSERT INTO t (id, v) VALUES (1, 0)")  # fmt: skip
    with assigning(file) as assigner:
        with pytest.raises(Retriable, match="another process assigns numbers"):
            assigner.assign(10)
        sql(file, "DROP TRIGGER other")
        assert assigner.assign(10) == 1


def test_a_failing_table_does_not_stop_the_others(file: Path) -> None:
    """It is counted, and tried again later. With `once`, its error ends the command after the others."""
    sql(file, "INSERT INTO t (id, v) VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
    source = topology(file).sources["s"]
    bad = replace(TABLE, table="u")
    rounds, stop = AssignRounds(source, [bad, TABLE]), threading.Event()
    with pytest.raises(UsageError, match=r"no table main\.u"):
        rounds.run(source.url, once=True, stop=stop, succeeded=stop.set)
    assert (rounds.total, stop.is_set()) == (4, False)
    assert source.poll is not None
    ddl = [one for one in statements("sqlite", bad, source.poll) if "tailorbird_feeds" not in one]
    ended = [0]

    class Stop(threading.Event):
        """Ends after the round in which the failing table works, or many rounds."""

        def wait(self, timeout: float | None = None) -> bool:
            ended[0] += 1
            if ended[0] == 1:
                sql(file, "CREATE TABLE u (id INTEGER PRIMARY KEY, v INTEGER)", *ddl, "INSERT INTO u (id) VALUES (1)")
                rounds._pauses.clear()
            if ended[0] > 5:
                self.set()
            return self.is_set()

    sql(file, "UPDATE t SET v = 1 WHERE id = 1")
    rounds, waiting = AssignRounds(source, [bad, TABLE]), Stop()
    rounds.run(source.url, once=False, stop=waiting, succeeded=waiting.set)
    assert (rounds.total, ended[0]) == (2, 2)
    assert REGISTRY.get_sample_value("tailorbird_feed_failures_total", {"source": "s", "table": str(bad)}) == 2


def test_one_pass_ends_when_no_row_waits(file: Path) -> None:
    """Rows that another transaction holds are waited for."""
    source, turns = topology(file).sources["s"], [(0, 2), (1, 1), (1, 0)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FeedAssigner, "assign", lambda self, limit: turns[0][0])
        patched.setattr(FeedAssigner, "waiting", lambda self, limit: turns.pop(0)[1])
        rounds = AssignRounds(source, [TABLE])
        rounds.run(source.url, once=True, stop=threading.Event(), succeeded=lambda: None)
    assert (turns, rounds.total) == ([], 2)


@pytest.mark.parametrize("seed", range(12))
def test_a_reader_gets_the_last_version_of_every_row(file: Path, seed: int) -> None:
    """Whatever is changed between the reader's and the assigner's turns."""
    random, top, broker = Random(seed), topology(file), Broker()
    with assigning(file) as assigner:
        for turn in range(25):
            row = random.randrange(9)
            match random.randrange(5):
                case 0 | 1:
                    sql(file, f"INSERT INTO t (id, v) VALUES ({row}, {turn}) ON CONFLICT (id) DO UPDATE SET v = {turn}")
                case 2:
                    sql(file, f"UPDATE t SET v = {turn} WHERE id >= {row}")
                case 3:
                    assigner.assign(random.randint(1, 4))
                case _:
                    read(top, broker)
        while assigner.assign(3):
            pass
        left: dict[int, int] = dict(sql(file, "SELECT id, v FROM t"))
        assert read(top, broker) == left
        assert left


def test_the_command_assigns_until_no_row_waits(file: Path, tmp_path: Path) -> None:
    """It names what is missing in the database."""
    made = tmp_path / "top.yml"
    made.write_text(TEXT.format(file=file))
    sql(file, "INSERT INTO t (id, v) VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
    done = CliRunner().invoke(app, ["poll", "assign", str(made), "--once"], catch_exceptions=False)
    assert "4 rows of s got a number" in done.stdout
    sql(file, "DROP TABLE tailorbird_feeds")
    with pytest.raises(UsageError, match=r"no table main\.tailorbird_feeds") as raised:
        CliRunner().invoke(app, ["poll", "assign", str(made), "--once"], catch_exceptions=False)
    assert 'CREATE TABLE "main"."tailorbird_feeds"' in raised.value.hint
    for change, why in (("mode: feed, ", "no sources of .* have `mode: feed`"), ("[t]", "no table main.u")):
        made.write_text(TEXT.format(file=file).replace(change, "[u]" if change == "[t]" else ""))
        with pytest.raises(UsageError, match=why):
            CliRunner().invoke(app, ["poll", "assign", str(made), "--once"], catch_exceptions=False)


def test_the_database_must_be_reachable(tmp_path: Path) -> None:
    """A wrong URL is an error of the user, and the password is not shown."""
    made = tmp_path / "top.yml"
    made.write_text(TEXT.format(file="x"))
    run = ["poll", "assign", str(made), "--once", "--url", "none://u:hidden@h/d"]
    with pytest.raises(UsageError) as raised:
        CliRunner().invoke(app, run, catch_exceptions=False)
    assert "hidden" not in str(raised.value)


@pytest.mark.matrix
@pytest.mark.integration
def test_numbers_on_a_real_server(postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path) -> None:
    """`poll ddl` and `poll assign` on PostgreSQL, while two writers hold rows in open transactions."""
    database = PolledPostgres(postgres_server, unique("assign"))
    file = tmp_path / "top.yml"
    file.write_text(
        f"name: top\nsources:\n  s: {{type: sql, capture: poll, mode: feed, url: '{database.url}', database: public,"
        " tables: [t], limit: 7, interval: 10ms}\nlog: {bootstrap_servers: '127.0.0.1:1'}\n"
    )
    try:
        ddl = CliRunner().invoke(app, ["poll", "ddl", str(file), "--json"])
        assert ddl.exit_code == 0, ddl.output
        database.run("CREATE TABLE t (id INT PRIMARY KEY, v INT)", *json.loads(ddl.stdout)["statements"])
        database.run("ALTER TABLE t OWNER TO app", "ALTER TABLE tailorbird_feeds OWNER TO app")
        database.run("INSERT INTO t (id, v) SELECT i, 0 FROM generate_series(1, 100) i")
        stop, wrote = threading.Event(), [0]

        def write(seed: int) -> None:
            random = Random(seed)
            with postgres_server.session(database.name) as connection:
                while not stop.is_set():
                    with connection.transaction():
                        row = random.randrange(1, 121)
                        connection.execute("DELETE FROM t WHERE id = %s AND id %% 10 = 0", (row,))
                        connection.execute(
                            "INSERT INTO t (id, v) VALUES (%s, 1) ON CONFLICT (id) DO UPDATE SET v = t.v + 1", (row,)
                        )
                        time.sleep(random.random() / 100)
                    wrote[0] += 1

        writers = [threading.Thread(target=write, args=(seed,)) for seed in (1, 2)]
        for one in writers:
            one.start()
        top, broker = read_topology(file.read_text(), file=str(file), environ={}), Broker()
        table, seen = replace(TABLE, database="public"), dict[int, int]()
        rounds, source = AssignRounds(top.sources["s"], [table]), top.sources["s"]
        assigner = threading.Thread(
            target=rounds.run, args=(source.url,), kwargs={"once": False, "stop": stop, "succeeded": lambda: None}
        )
        assigner.start()
        wait_for(lambda: wrote[0] > 150 and rounds.total > 150, "nothing is written and assigned")
        stop.set()
        for one in [*writers, assigner]:
            one.join()
        done = CliRunner().invoke(app, ["poll", "assign", str(file), "--once"])
        assert done.exit_code == 0, done.output
        run(top, broker, None, 40)
        topic = change_topic("top", table)
        seen = {e["after"]["id"]: e["after"]["v"] for e in map(orjson.loads, values(broker, topic))}
        rows = database.run("SELECT id, v, feed_sync_id FROM t")
        assert seen == {key: v for key, v, _ in rows}
        numbers = [number for _, _, number in rows]
        assert None not in numbers
        assert len(set(numbers)) == len(numbers) >= 100
    finally:
        database.close()


def values(broker: Broker, topic: str) -> list[bytes]:
    return [record.value for record in broker.records if record.topic == topic and record.value]
