"""Kill captures, or agents and gateways, while they read a large table in ranges of its key, under live traffic (ADR
107).

Each kill comes after further rows of the divided table were committed, so the next process resumes in the middle of
several ranges. Afterwards a read_committed reader must have seen each row of the snapshot at most once, each change
exactly once and in order, and the rows of its records must equal the table's.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import Any, Protocol

import orjson
import pytest

from cdc.model.naming import TRUNCATE_KEY
from tailorbird.devtools.stack.proc_stack import Stack
from tests.chaos import capture_run, pg_capture_run
from tests.chaos.capture_run import Published, Run, Traffic, run_on, running
from tests.chaos.pg_capture_run import PgRun
from tests.integration.conftest import CapturedDatabase
from tests.integration.pg_database import make
from tests.support.fleet_on_servers import FleetOnServers
from tests.support.pg_policies import postgres_policy
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka,
    pytest.mark.matrix,
    pytest.mark.timeout(900),
]
ROWS = 240_000
KILLS = 4  # at least so many must come while ranges are incomplete


class Processes(Protocol):
    """Processes that read the table."""

    def start(self) -> None:
        """Start those that do not run."""

    def kill(self) -> object:
        """Kill some of them."""


class Fleet:
    """An agent and two gateways. In turn the agent, the gateway that it uses, and both are killed."""

    def __init__(self, captured: CapturedDatabase, folder: Path, policy: str, place: tuple[str, ...]) -> None:
        folder.mkdir()
        self._fleet, self._policy, self._place, self._kills = FleetOnServers(captured, folder), policy, place, 0
        issued = self._fleet.ask("token", "issue", "anna", "--role", "admin", "--topology", str(captured.file))
        self._fleet.token = issued.split()[0]

    def start(self) -> None:
        for name in (*self._fleet.streams, "paris"):
            process = self._fleet.processes.get(name)
            if process is None or process.poll() is not None:
                self._begin(name)
        if self._place:
            self._fleet.until(lambda: self._fleet.api("agents") is not None, "no gateway serves")
            self._fleet.ask("source", "add", "shop", *self._place, "--agent", "paris", "--connection", "db")
            self._place = ()

    def _begin(self, name: str) -> None:
        if name == "paris":
            self._fleet.agent(name, self._policy)
        else:
            self._fleet.gateway(name)

    def kill(self) -> None:
        serves = self._serving()
        for name in (("paris",), (serves,), ("paris", serves))[self._kills % 3]:
            self._fleet.kill(name)
        self._kills += 1

    def _serving(self) -> str:
        for gateway in self._fleet.streams:
            for agent in self._fleet.api("agents", gateway) or ():
                if agent["gateway"]:
                    return str(agent["gateway"].partition("#")[0])
        return "g1"

    def stop(self) -> None:
        """Stop all processes cleanly."""
        for name in ("paris", *self._fleet.streams):
            assert self._fleet.kill(name, signal.SIGTERM) == 0, self._fleet.logs()

    def close(self) -> None:
        self._fleet.close()


def progress(captured: CapturedDatabase) -> Mapping[str, Any] | None:
    """Return the committed progress of the table's snapshot; None once it is complete."""
    position = captured.position()
    if position is None:
        return {"rows": 0}
    entries: list[Mapping[str, Any] | None] = list(position.get("state", {}).get("snapshots", {}).values())
    (entry,) = entries or [None]
    assert entry is not None or position["snapshot"] == "done"
    return entry


def kill_in_ranges(run: Published, processes: Processes, random: Random, writer: Traffic) -> int:
    """Start and kill the processes until the table has been read, under the writer's traffic; return how often a range
    was left in its middle.
    """
    captured, kills, rows = run.captured, 0, 0
    first = dict[int, Any]()  # where each range was when it was first seen
    entry: Mapping[str, Any] | None = {"rows": 0}

    def proceeds() -> bool:
        nonlocal entry
        entry = progress(captured)
        return entry is None or ("ranges" in entry and entry["rows"] > rows)

    while True:
        processes.start()
        wait_for(proceeds, "the snapshot does not proceed", seconds=180)
        if entry is None:
            return kills
        writer.enough.wait(random.random() / 5)
        processes.kill()
        entry = progress(captured)
        if entry is None:
            continue
        rows, left = entry["rows"], {part: after for part, after, _ in entry["ranges"]}
        kills += any(first.setdefault(part, after) != after for part, after in left.items())


def check_reads(run: Published) -> int:
    """Check that no row was read into the log twice; return the number of rows that the snapshot published."""
    read = Counter[bytes]()
    for _, key, value in run.captured.read(run.topic()):
        if value is not None and key != TRUNCATE_KEY and orjson.loads(value)["op"] == "r":
            read[key] += 1
    twice = [key for key, times in read.items() if times > 1]
    assert not twice, f"{len(twice)} rows were published again, as {twice[:5]}"
    return read.total()


@pytest.fixture
def mysql_run(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Run]:
    made = run_on("mysql80", tmp_path, unique("ranges"), keys=range(ROWS))
    yield made
    made.close()


@pytest.fixture
def pg_run(
    request: pytest.FixtureRequest, stack: Stack, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[PgRun]:
    server = PgServer(tmp_path / "server", getattr(request, "param", "18"))
    server.start()
    name = unique("ranges")
    made = PgRun(make(server, name, tmp_path / f"{name}.yml", "t"))
    made.fill(ROWS)
    yield made
    made.close()


def batter_mysql(run: Run, processes: Processes) -> None:
    """Kill the processes in the ranges of MySQL's table, and check the log."""
    writer = capture_run.Writer(run.server, Random(21), keys=range(ROWS))
    with running(writer):
        kills = kill_in_ranges(run, processes, Random(22), writer)
    run.caught_up()
    report(kills, check_reads(run), capture_run.check(run))


def batter_postgres(run: PgRun, processes: Processes) -> None:
    """Same as `batter_mysql`, for PostgreSQL."""
    writer = pg_capture_run.Writer(run.captured.server, run.captured.name, Random(23), rows=ROWS)
    with running(writer):
        kills = kill_in_ranges(run, processes, Random(24), writer)
    run.caught_up()
    report(kills, check_reads(run), pg_capture_run.check(run))


def report(kills: int, read: int, changes: int) -> None:
    print(f"{kills} kills within ranges, {read:,} rows read, {changes:,} changes")
    assert kills >= KILLS
    assert read > ROWS * 0.9


def test_mysql_is_read_in_ranges_under_kills(mysql_run: Run) -> None:
    """Kill -9 of a capture of MySQL 8.0."""
    batter_mysql(mysql_run, mysql_run)
    mysql_run.kill(signal.SIGTERM)


@pytest.mark.parametrize("pg_run", ["18", "15"], indirect=True)
def test_postgresql_is_read_in_ranges_under_kills(pg_run: PgRun) -> None:
    """Kill -9 of a capture of PostgreSQL."""
    batter_postgres(pg_run, pg_run)
    pg_run.kill(signal.SIGTERM)


def test_mysql_is_read_in_ranges_through_gateways(mysql_run: Run, tmp_path: Path) -> None:
    """Kill -9 of an agent of MySQL 8.0 and of the gateways that it uses."""
    policy = (
        "dumps: true\nconnections:\n  db: {hostname: 127.0.0.1, port: "
        f"{mysql_run.server.port}, username: cdc, password: cdc, databases: {{d: all}}}}\n"
    )
    fleet = Fleet(mysql_run.captured, tmp_path / "fleet", policy, ("--database", "d", "--table", "t"))
    try:
        batter_mysql(mysql_run, fleet)
        fleet.stop()
    finally:
        fleet.close()


def test_postgresql_is_read_in_ranges_through_gateways(pg_run: PgRun, tmp_path: Path) -> None:
    """Kill -9 of an agent of PostgreSQL and of the gateways that it uses."""
    policy = postgres_policy(pg_run.captured.server.port, pg_run.captured.name, "      public: {tables: {t: {}}}")
    fleet = Fleet(pg_run.captured, tmp_path / "fleet", policy, ("--type", "postgresql", "--table", "t"))
    try:
        batter_postgres(pg_run, fleet)
        fleet.stop()
    finally:
        fleet.close()
