"""Random databases: whatever a server accepts, a consumer of the topics has the same rows as the server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random

import pytest

from cdc.topology.reader import read_topology
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.verify.findings import Verdict
from tailorbird.verify.log.run_topics import verify_log
from tests.databases.capturing import ThreadedCapture
from tests.databases.cases import Case, Line, read, written
from tests.databases.fuzz import CASES, served
from tests.databases.kafka_capturing import ThreadedKafkaCapture
from tests.databases.running import Database, DatabaseServer, Outcome, play, replay
from tests.databases.shrinking import shrunk
from tests.integration.conftest import servers as brokers

Servers = Callable[[str], DatabaseServer]
SEED = 42


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Start a server by name once."""
    with ExitStack() as started:
        found: dict[str, DatabaseServer] = {}

        def give(name: str) -> DatabaseServer:
            if name not in found:
                found[name] = started.enter_context(served(name, tmp_path_factory.mktemp(name)))
            return found[name]

        yield give


def complaints(outcome: Outcome) -> str:
    """Return the findings by case."""
    return "\n".join(f"{case or 'the run'}: {one}" for case, what in outcome.wrong.items() for one in what[:4])


@pytest.mark.integration
@pytest.mark.parametrize("name", ["mysql-8.0", "postgresql-18"])
def test_fifteen_random_databases(server: Servers, name: str) -> None:
    """A capture starts in the middle of their traffic and is killed three times; at the end every row equals the
    server's."""
    outcome = play(server(name), SEED, range(15))
    assert not outcome.wrong, complaints(outcome)
    assert outcome.deaths > 0
    assert outcome.rows > 100
    assert outcome.accepted > 3 * outcome.refused, outcome.summary()


@pytest.mark.integration
@pytest.mark.matrix
@pytest.mark.parametrize(
    "name", ["mysql-5.7", "mysql-8.0", "mysql-9", "mariadb-10.11", "mariadb-11.4", "postgresql-15", "postgresql-18"]
)
@pytest.mark.timeout(1800)
def test_a_hundred_random_databases(server: Servers, name: str) -> None:
    """The same on every supported server."""
    for first in (100, 150):
        outcome = play(server(name), SEED, range(first, first + 50))
        assert not outcome.wrong, complaints(outcome)


@pytest.mark.integration
@pytest.mark.matrix
@pytest.mark.kafka
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("name", "topics"), [("mysql-8.0", "per_source"), ("mariadb-11.4", "per_table"), ("postgresql-18", "per_database")]
)
def test_verify_raises_no_alarm(
    server: Servers, name: str, topics: str, stack: Stack, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """The same databases, captured into Kafka: `verify` of the log reports equality, or why it could not compare, also
    if many tables share a topic."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    verdicts: list[Verdict] = []

    def capture(database: Database, random: Random, kills: int) -> ThreadedCapture:
        log = f"log: {{bootstrap_servers: '{brokers()}', topics: {topics}}}\n"
        text = database.topology_text(log, unique("random"))
        topology = read_topology(text, file="random.yml", environ={})
        return ThreadedKafkaCapture(topology, random, kills, servers=brokers())

    outcome = play(
        server(name), SEED, range(200, 225), capture=capture,
        then=lambda capturing: verdicts.extend(verify_log(capturing.topology)),
    )  # fmt: skip
    assert not outcome.wrong, complaints(outcome)
    assert [(one.table, one.findings[:2]) for one in verdicts if one.outcome == "different"] == []
    compared = [one for one in verdicts if one.outcome in ("equal", "equal in part")]
    assert len(compared) > 20, "\n".join(f"{one.table} {one.outcome}: {one.unknown}" for one in verdicts)
    assert sum(one.outcome == "equal" for one in compared) > 5, [(one.table, one.uncompared) for one in compared]


@pytest.mark.integration
@pytest.mark.parametrize(
    "file",
    [
        pytest.param(file, id=file.stem, marks=[] if "mysql-8.0" in file.stem else [pytest.mark.matrix])
        for file in sorted(CASES.glob("*.case"))
    ],
)
def test_former_failures_pass(server: Servers, file: Path) -> None:
    """Every failing case that was found and shrunk is run again."""
    case = read(file.read_text())
    outcome = replay(server(case.server), case)
    assert not outcome.wrong, complaints(outcome)


def test_a_case_file_keeps_every_statement() -> None:
    """Line feeds, backslashes and marks survive."""
    lines = (Line(0, "SELECT 'a\\nb\nc\r'"), Line(0, "", "capture"), Line(2, "--- new session"), Line(0, "", "kill"))
    case = Case(server="mysql-8.0", lines=lines, why="one\ntwo")
    assert read(written(case)) == case
    with pytest.raises(ValueError, match="none of capture"):
        read("server: x\n--- somewhere\n")


def test_a_failure_is_shrunk_to_its_cause() -> None:
    """The two relevant ones of forty statements remain, and one row of three."""
    lines = [Line(0, f"SELECT {n}") for n in range(40)]
    lines[7], lines[31] = Line(0, "INSERT INTO t VALUES (1), (2), (3)"), Line(0, "", "capture")
    small = shrunk(
        Case(server="s", lines=tuple(lines)), lambda case: any("(2)" in line.sql for line in case.lines), seconds=5
    )
    assert small.lines == (Line(0, "INSERT INTO t VALUES (2)"), Line(0, "", "capture"))
