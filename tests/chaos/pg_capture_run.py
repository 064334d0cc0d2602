"""Capture a table of a PostgreSQL server of its own under live traffic, and check what a reader must have seen.

A trigger records the expected changes, each in its own transaction.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from random import Random
from typing import Any

import psycopg

from tests.chaos.capture_run import must_equal, published
from tests.integration.pg_database import PgDatabase
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

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
)
TRIGGERS = (
    "CREATE TRIGGER each_row AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note()",
    "CREATE TRIGGER emptied AFTER TRUNCATE ON t FOR EACH STATEMENT EXECUTE FUNCTION note()",
)


@dataclass
class Writer(threading.Thread):
    """Live traffic of one session that survives its server: it forgets changes that it could not commit.

    Half of the changes are in the first 3,000 of the table's `rows`.
    """

    server: PgServer
    database: str
    random: Random
    rows: int = 3_000
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
        key, kind = self.random.randrange(self.random.choice((3_000, self.rows))), self.random.random()
        if kind < 0.4:
            connection.execute("INSERT INTO t (id, v) VALUES (%s, %s)", (self.serial, self.serial))
        elif kind < 0.7:
            connection.execute("UPDATE t SET v = %s WHERE id = %s", (self.serial, key))
        elif kind < 0.85:
            connection.execute("DELETE FROM t WHERE id = %s", (key,))
        else:
            connection.execute("UPDATE t SET id = %s, v = %s WHERE id = %s", (self.serial, self.serial, key))


@dataclass
class PgRun:
    """One capture of one database, and helpers to inspect it."""

    captured: PgDatabase
    process: subprocess.Popen[bytes] | None = None

    def fill(self, rows: int) -> None:
        """Create the table with rows, and the triggers that record what changes from then on."""
        self.captured.sql(*TABLES, f"INSERT INTO t SELECT g, g FROM generate_series(0, {rows - 1}) g", *TRIGGERS)

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

    def caught_up(self) -> None:
        """Wait until the committed position is the server's."""
        self.captured.caught_up()

    def close(self) -> None:
        """Stop all processes, the server too."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for consumer in self.captured._consumers.values():
            consumer.close()
        self.captured.server.kill()


def check(run: PgRun) -> int:
    """Check exactly-once, order and rows; changes before the first published one are in the snapshot's rows. Return the
    number of changes."""
    changes, state = published(run)
    noted = [row for row in run.captured.sql("SELECT op, id, v FROM noted ORDER BY n") if row[0] != "t"]
    assert changes == noted[-len(changes) :]
    must_equal({key: row["v"] for key, row in state.items()}, dict(run.captured.sql("SELECT id, v FROM t")))
    return len(changes)
