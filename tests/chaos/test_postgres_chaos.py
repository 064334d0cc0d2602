"""Capture a PostgreSQL server under live traffic, while every process is killed.

Afterwards a read_committed reader must have seen each change that a trigger recorded in its own transaction exactly
once, in order, and the rows of its records must equal the table's.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from random import Random

import pytest

from tailorbird.devtools.stack.proc_stack import Stack
from tests.chaos.capture_run import running
from tests.chaos.pg_capture_run import PgRun, Writer, check
from tests.chaos.test_capture_chaos import RESULTS, ROUNDS
from tests.integration.pg_database import make
from tests.support.pg_servers import PgServer

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(1800)]


@pytest.fixture
def run(request: pytest.FixtureRequest, stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[PgRun]:
    server = PgServer(tmp_path / "server", request.param)
    server.start()
    name = unique("pgchaos")
    one = PgRun(make(server, name, tmp_path / f"{name}.yml", "t"))
    one.fill(12_000)
    yield one
    one.close()


def disturb(run: PgRun, number: int) -> None:
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


def batter(run: PgRun, rounds: int, stack: Stack | None = None) -> int:
    """Kill the capture so many times under live traffic, and the broker too if its stack is given; return the published
    changes."""
    random, writer = Random(11), Writer(run.captured.server, run.captured.name, Random(12))
    with running(writer):
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
    run.start()
    run.captured.caught_up()
    run.kill(signal.SIGTERM)
    changes = check(run)
    assert changes > 100 * rounds
    return changes


@pytest.mark.parametrize("run", [pytest.param(name, marks=pytest.mark.matrix) for name in ("18", "15")], indirect=True)
def test_a_capture_of_postgresql_survives_kills(run: PgRun) -> None:
    """Kill -9 of capture and of its server; a column, a TRUNCATE and a huge transaction in between."""
    batter(run, 5)


@pytest.mark.chaos
@pytest.mark.parametrize("run", ["18", "15"], indirect=True)
def test_a_capture_of_postgresql_survives_chaos(run: PgRun, stack: Stack) -> None:
    """The same for longer, with restarts of the broker."""
    began = time.monotonic()
    changes = batter(run, ROUNDS, stack)
    if ROUNDS >= 50:
        note(run, changes, time.monotonic() - began)


def note(run: PgRun, changes: int, seconds: float) -> None:
    """Write the result of a full run."""
    ((version,),) = run.captured.sql("SHOW server_version")
    head = f"| postgresql{version.partition('.')[0]} "
    line = f"{head}({version}) | {ROUNDS} | {changes:,} | {seconds:.0f} s | {date.today()} |"
    kept = [known for known in RESULTS.read_text().splitlines() if not known.startswith(head)]
    RESULTS.write_text("\n".join([*kept, line]) + "\n")
