"""Capture a PostgreSQL server under live traffic, while every process is killed.

Afterwards a read_committed reader must have seen each change that a trigger recorded in its own transaction exactly
once, in order, and the rows of its records must equal the table's.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from random import Random
from typing import Any

import psycopg
import pytest

from tailorbird.devtools.stack.proc_stack import Stack
from tests.chaos.capture_run import published
from tests.chaos.test_capture_chaos import RESULTS, ROUNDS
from tests.integration.pg_database import PgDatabase, make
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(1800)]
TABLES = (
    "CREATE TABLE t (id BIGINT PRIMARY KEY, v BIGINT, w TEXT DEFAULT 'x')",
    "CREATE TABLE noted (n BIGSERIAL PRIMARY KEY, op TEXT, id BIGINT, v BIGINT)",
    """CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF TG_OP = 'INSERT' THEN INSERT INTO noted (op, id, v) VALUES ('c', NEW.id, NEW.v);
    ELSIF TG_OP = 'DELETE' THEN INSERT INTO noted (op, id) VALUES ('d', OLD.id);
    ELSIF TG_OP = 'TRUNCATE' THEN INSERT INTO noted (op) VALUES ('t');
    ELSIF NEW.id <> OLD.id THEN
        INSERT INTO noted (op, id) VALUES ('d', OLD.id); INSERT INTO noted (op, id, v) VALUES ('c', NEW.id, NEW.v);
    ELSE INSERT INTO noted (op, id, v) VALUES ('u', NEW.id, NEW.v); END IF;
    RETURN NULL; END $$""",
    "INSERT INTO t SELECT g, g FROM generate_series(0, 11999) g",
    "CREATE TRIGGER each_row AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE TRIGGER emptied AFTER TRUNCATE ON t FOR EACH STATEMENT EXECUTE FUNCTION note()",
)


@dataclass
class Writer(threading.Thread):
    """Live traffic of one session that survives its server: it forgets changes that it could not commit."""

    server: PgServer
    database: str
    random: Random
    enough: threading.Event = field(default_factory=threading.Event)
    pause: threading.Lock = field(default_factory=threading.Lock)
    failed: BaseException | None = None
    serial: int = 1_000_000

    def __post_init__(self) -> None:
        super().__init__(name="writer")

    def __hash__(self) -> int:
        return id(self)

    def run(self) -> None:
        try:
            while not self.enough.is_set():
                try:
                    with self.server.session(self.database, autocommit=False) as connection:
                        while not self.enough.is_set():
                            with self.pause:
                                for _ in range(self.random.choice((1, 1, 3, 40))):
                                    self._change(connection)
                                connection.commit()
                            self.enough.wait(0.01)
                except psycopg.OperationalError:
                    self.enough.wait(0.1)
        except BaseException as error:  # checked in the test's own thread
            self.failed = error
            raise

    def _change(self, connection: Any) -> None:
        self.serial += 1
        key, kind = self.random.randrange(3000), self.random.random()
        if kind < 0.4:
            connection.execute("INSERT INTO t (id, v) VALUES (%s, %s)", (self.serial, self.serial))
        elif kind < 0.7:
            connection.execute("UPDATE t SET v = %s WHERE id = %s", (self.serial, key))
        elif kind < 0.85:
            connection.execute("DELETE FROM t WHERE id = %s", (key,))
        else:
            connection.execute("UPDATE t SET id = %s, v = %s WHERE id = %s", (self.serial, self.serial, key))


@dataclass
class Run:
    """One capture of one database, and helpers to inspect it."""

    captured: PgDatabase
    process: subprocess.Popen[bytes] | None = None

    def topic(self) -> str:
        return self.captured.topic("t")

    def start(self) -> None:
        with (self.captured.file.parent / "capture.log").open("a") as log:
            command = [sys.executable, "-m", "ingest", str(self.captured.file), "--source", "shop"]
            self.process = subprocess.Popen(command, stderr=log)

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self.log()
        self.process.send_signal(number)
        self.process.wait(60)

    def log(self) -> str:
        return (self.captured.file.parent / "capture.log").read_text()[-3000:]

    def end(self) -> int:
        position = self.captured.position()
        return 0 if position is None else int(position["position"]["sequence"])

    def progresses(self, more: int) -> None:
        process, seen = self.process, self.end()
        assert process is not None

        def reached() -> bool:
            assert process.poll() is None, self.log()
            return self.end() >= seen + more

        wait_for(reached, "no progress", seconds=120)


@pytest.fixture
def run(request: pytest.FixtureRequest, stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Run]:
    server = PgServer(tmp_path / "server", request.param)
    server.start()
    name = unique("pgchaos")
    one = Run(make(server, name, tmp_path / f"{name}.yml", "t"))
    one.captured.sql(*TABLES)
    yield one
    if one.process is not None and one.process.poll() is None:
        one.process.kill()
    one.captured.close()
    server.kill()


def disturb(run: Run, number: int) -> None:
    """Disturb the source in a round."""
    if number % 5 == 1:
        run.captured.sql(f"ALTER TABLE t ADD c{number} INT DEFAULT {number}")
    elif number % 5 == 2:
        run.captured.sql("UPDATE t SET v = v + 1")
    elif number % 5 == 3:
        run.captured.sql(
            "BEGIN; TRUNCATE t; INSERT INTO t (id, v) SELECT g, g FROM generate_series(0, 29999) g; COMMIT"
        )
    elif number % 5 == 4:
        run.captured.server.kill()
        run.captured.server.start()


def batter(run: Run, rounds: int, stack: Stack | None = None) -> int:
    """Kill the capture so many times under live traffic, and the broker too if its stack is given; return the published
    changes."""
    random, writer = Random(11), Writer(run.captured.server, run.captured.name, Random(12))
    writer.start()
    try:
        for number in range(rounds):
            run.start()
            run.progresses(random.choice((0, 1, 100, 400)))
            with writer.pause:
                disturb(run, number)
            if stack is not None and number % 10 == 1:
                stack.kill("kafka")
                stack.start("kafka")
            writer.enough.wait(random.random() / 2)
            run.kill()
    finally:
        writer.enough.set()
        writer.join()
    assert writer.failed is None
    run.start()
    run.captured.caught_up()
    run.kill(signal.SIGTERM)
    changes, state = published(run)  # type: ignore[arg-type]  # it has what is asked of it
    noted = [row for row in run.captured.sql("SELECT op, id, v FROM noted ORDER BY n") if row[0] != "t"]
    assert changes == noted[-len(changes) :]
    assert len(changes) > 100 * rounds
    assert {key: row["v"] for key, row in state.items()} == dict(run.captured.sql("SELECT id, v FROM t"))
    return len(changes)


@pytest.mark.parametrize("run", [pytest.param(name, marks=pytest.mark.matrix) for name in ("18", "15")], indirect=True)
def test_a_capture_of_postgresql_survives_kills(run: Run) -> None:
    """Kill -9 of capture and of its server; a column, a TRUNCATE and a huge transaction in between."""
    batter(run, 5)


@pytest.mark.chaos
@pytest.mark.parametrize("run", ["18", "15"], indirect=True)
def test_a_capture_of_postgresql_survives_chaos(run: Run, stack: Stack) -> None:
    """The same for longer, with restarts of the broker."""
    began = time.monotonic()
    changes = batter(run, ROUNDS, stack)
    if ROUNDS >= 50:
        note(run, changes, time.monotonic() - began)


def note(run: Run, changes: int, seconds: float) -> None:
    """Write the result of a full run."""
    ((version,),) = run.captured.sql("SHOW server_version")
    head = f"| postgresql{version.partition('.')[0]} "
    line = f"{head}({version}) | {ROUNDS} | {changes:,} | {seconds:.0f} s | {date.today()} |"
    kept = [known for known in RESULTS.read_text().splitlines() if not known.startswith(head)]
    RESULTS.write_text("\n".join([*kept, line]) + "\n")
