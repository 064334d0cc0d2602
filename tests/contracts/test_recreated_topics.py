"""Topics that Kafka lost and that capture created again: stored offsets of the former ones mean nothing."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from cdc.model.naming import change_topic, history_topic, positions_topic, schemas_topic
from cdc.topology.topology import Topology
from ingest.ledger.run_ledger import ledger_of
from tests.contracts.test_capture_log import SECOND
from tests.contracts.test_shared_topics import ONE, TWO, Writer, opened, topology
from tests.support.waiting import wait_for


def written(settings: Topology, first: int, rows: int) -> None:
    """Write rows of two tables, as the first capture of a source does."""
    with closing(opened(settings)) as log:
        writer = Writer(settings, log)
        log.recover()
        writer.begin(ONE, TWO)
        for number in range(first, first + rows):
            writer.write(ONE, "c", number)
            writer.write(TWO, "c", number)
        log.commit(SECOND)


def read(settings: Topology) -> dict[str, tuple[int, str]]:
    """Return by table the number of rows in the ledger, and what its digests depend on."""
    with ledger_of(settings) as ledger:
        wait_for(lambda: ledger.poll(0.1) == 0 and ledger.reader.caught_up, "the ledger does not read to the end")
        tables = ledger.topology_ledger.tables
        return {table.table: (one.total().count, one.shape) for table, one in tables.items()}


@pytest.mark.integration
@pytest.mark.kafka
@pytest.mark.parametrize("topics", ["per_table", "per_database"])
def test_the_ledger_reads_recreated_topics_from_their_beginning(
    topics: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` never reports a false difference: also if a new topic has more records than the ledger has read of the
    former one."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    settings = topology(topics, "one, two")
    written(settings, 0, 5)
    before = read(settings)
    assert {name: rows for name, (rows, _) in before.items()} == {"one": 5, "two": 5}
    assert read(settings) == before, "an unchanged topic continues"
    lost = {change_topic(settings.name, table) for table in (ONE, TWO)} if topics == "per_table" else set()
    lost |= {settings.routing.topic_of(ONE), *(one(settings.name) for one in (schemas_topic, positions_topic))}
    admin = AdminClient({"bootstrap.servers": settings.log.bootstrap_servers})
    for future in admin.delete_topics([*lost, history_topic(settings.name)]).values():
        future.result(30)
    written(settings, 100, 20)
    after = read(settings)
    assert {name: rows for name, (rows, _) in after.items()} == {"one": 20, "two": 20}
    assert all(before[name][1] != after[name][1] for name in after), "stored progress of `verify` would still be used"
