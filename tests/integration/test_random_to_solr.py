"""Random databases, from their tables to Solr: HBase and Solr have the server's rows, and `verify` raises no alarm."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from cdc.topology.reader import read_topology
from tailorbird.devtools.stack.proc_stack import Stack
from tests.databases.capturing import ThreadedCapture
from tests.databases.far_ends import declared
from tests.databases.fuzz import served
from tests.databases.kafka_capturing import ThreadedKafkaCapture
from tests.databases.running import Database, play
from tests.integration.conftest import servers as brokers

pytestmark = [
    pytest.mark.integration, pytest.mark.matrix, pytest.mark.kafka("hbase", "thrift", "solr"),
    pytest.mark.timeout(3000),
]  # fmt: skip
SEED, CASES, TABLES = 42, range(300, 312), 12


@pytest.mark.parametrize(("name", "topics"), [("mysql-8.0", "per_table"), ("postgresql-18", "per_database")])
def test_random_databases_reach_solr(
    name: str, topics: str, stack: Stack, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture starts in the middle of their traffic and is killed. Then joins and indexes read its topics from their
    beginning, with all that the traffic did to the tables.

    `verify` of all stages never reports a difference, and compares nearly all of it.
    """
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    topology_name, databases, rows = unique("solr"), list[Database](), list[int]()

    def capture(database: Database, random: Random, kills: int) -> ThreadedCapture:
        databases.append(database)
        log = f"log: {{bootstrap_servers: '{brokers()}', topics: {topics}}}\n"
        text = database.topology_text(log, topology_name)
        topology = read_topology(text, file="random.yml", environ={})
        return ThreadedKafkaCapture(topology, random, kills, servers=brokers())

    def to_solr(capturing: ThreadedCapture) -> None:
        capturing.stop()
        shown, published, passed = databases[0].shown(), capturing.published(), capturing.passed()
        tables = [one for one in sorted(published) if one not in passed and one in shown and shown[one].rows]
        with declared(databases[0], topology_name, tables[:TABLES], tmp_path / "random.yml", topics=topics) as far:
            far.pipeline.start()
            rows.append(far.must_equal(1200))
            far.must_raise_no_alarm()

    with served(name, tmp_path / "server") as server:
        outcome = play(server, SEED, CASES, capture=capture, then=to_solr)
    assert not outcome.wrong, outcome.wrong
    assert sum(rows) > 30, "hardly anything was compared"
