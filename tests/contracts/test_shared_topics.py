"""Tables that share a topic: each reader sees one table, as if it had a topic of its own."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from cdc.model.event import ChangeEvent, Op, SourceInfo
from cdc.model.naming import TRUNCATE_KEY, change_topic
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.changes.kafka_changes import KafkaChanges
from ingest.ledger.run_ledger import ledger_of
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.records.findings import Search
from ingest.records.records import Recorder
from tests.contracts.test_capture_log import FIRST, SECOND, read_topic
from tests.support.waiting import wait_for

COLUMNS = (Column(name="id", column_type="int", nullable=False),)
ONE, TWO, LATER = (TableId(source="s", database="d", table=name) for name in ("one", "two", "later"))


def topology(topics: str, tables: str = "one, two", name: str = "") -> Topology:
    text = f"""
name: {name or f"t_shared_{uuid4().hex[:8]}"}
log: {{partitions: 1, topics: {topics}, bootstrap_servers: '127.0.0.1:${{TAILORBIRD_PORT_KAFKA:-9092}}'}}
sources:
  s: {{type: mysql, hostname: x, username: u, password: p, database: d, tables: [{tables}], server_id: 1}}
"""
    return read_topology(text, file="t.yml", environ=os.environ)


def opened(settings: Topology) -> KafkaLog:
    source = settings.sources["s"]
    return KafkaLog(settings, source, make_topics(settings, source))


def schema(table: TableId) -> TableSchema:
    return TableSchema(table_id=table, version=1, columns=COLUMNS, primary_key=("id",))


class Writer:
    """Writes rows of tables as capture does."""

    def __init__(self, settings: Topology, log: KafkaLog) -> None:
        self.log, self.recorder, self.sequence = log, Recorder(settings.name, "mysql", log.ensure_topic), 0

    def begin(self, *tables: TableId) -> None:
        self.log.extend([self.recorder.schema(schema(table)) for table in tables])

    def write(self, table: TableId, op: Op, number: int = 0) -> None:
        self.sequence += 1
        where = SourceInfo(
            table_id=table, ts_ms=1, server_id=1, gtid=None, file="f", pos=4, row=0, sequence=self.sequence
        )  # fmt: skip
        if op == "t":
            position = replace(FIRST.position, sequence=self.sequence)
            self.log.append(self.recorder.writer(schema(table)).marker(position, self.sequence, 1))
            return
        row = {"id": number}
        event = ChangeEvent(
            op=op, before=row if op == "d" else None, after=None if op == "d" else row, source=where, ts_ms=1
        )  # fmt: skip
        self.log.extend(self.recorder.change(event, schema(table)))


@pytest.mark.integration
@pytest.mark.kafka
def test_each_reader_sees_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have rows of equal keys in one topic. Changes, the ledger and a search show those of one table; a marker
    and a delete of one table leave the other's rows. A table that is added later is read, too."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    settings = topology("per_database", "one, two, later")
    with closing(opened(settings)) as log:
        writer = Writer(settings, log)
        log.recover()
        writer.begin(ONE, TWO)
        for number in range(3):
            writer.write(ONE, "c", number)
            writer.write(TWO, "c", number)
        writer.write(TWO, "d", 2)
        log.commit(FIRST)
        records = read_topic(settings.log.bootstrap_servers, f"{settings.name}.s.d", {0})
        assert len(records) == 8
        assert len({key for key, _ in records}) == 6, "compaction would remove another table's row"
        with ledger_of(settings) as ledger, closing(KafkaChanges(settings, ("s",))) as changes:

            def counts() -> dict[str, int]:
                ledger.poll(0.1)
                return {table.table: one.total().count for table, one in ledger.topology_ledger.tables.items()}

            wait_for(lambda: counts() == {"one": 3, "two": 2}, "its rows are not read")
            changes.begin()
            ends = changes.released(TWO)
            ops = [one.event.op for one in changes.read(TWO, changes.begins(TWO), ends).changes]
            assert ops == ["c", "c", "c", "d"]
            search = Search(change_topic(settings.name, ONE), (b'{"id":2}',), (), 10)
            log.search(search)
            wait_for(lambda: search.done, "the search does not end")
            assert search.failed is None
            assert [one.live for one in search.found.values()] == [{"id": 2}]
            writer.begin(LATER)
            writer.write(LATER, "c", 7)
            writer.write(ONE, "t")
            log.commit(SECOND)
            wait_for(lambda: counts() == {"one": 0, "two": 2, "later": 1}, "a marker or a new table is not read")
        with ledger_of(settings) as again:
            wait_for(lambda: again.poll(0.1) == 0 and again.reader.caught_up, "it is not read again")
            found = again.topology_ledger.tables
            assert {t.table: one.total().count for t, one in found.items()} == {"one": 0, "two": 2, "later": 1}
            assert sum(one.unread for one in found.values()) == 0


@pytest.mark.integration
@pytest.mark.kafka
def test_another_setting_makes_tables_be_read_again() -> None:
    """After a change of `log.topics`, and of a table that was not captured for a time, its records are missing."""
    before = topology("per_table")
    both = {change_topic(before.name, ONE), change_topic(before.name, TWO)}
    with closing(opened(before)) as log:
        log.recover()
        Writer(before, log).begin(ONE, TWO)
        log.commit(FIRST)
    for topics, tables, behind in (
        ("per_table", "one, two", set()),
        ("per_source", "one, two", both),
        ("per_source", "one, two", set()),
        ("per_source", "one", set()),
        ("per_source", "one, two", both - {change_topic(before.name, ONE)}),
        ("per_database", "one, two", both),
        ("per_table", "one, two", both),
    ):
        settings = topology(topics, tables, before.name)
        with closing(opened(settings)) as log:
            assert log.recover().behind == behind, (topics, tables)
            log.commit(SECOND)


@pytest.mark.integration
@pytest.mark.kafka
def test_another_setting_makes_accepted_tables_be_read_again() -> None:
    """The same holds for tables that the topology does not list."""
    before = topology("per_table")
    both = {change_topic(before.name, ONE), change_topic(before.name, TWO)}
    for topics, behind in (
        ("per_table", set()), ("per_source", both), ("per_source", set()), ("per_table", both), ("per_table", set()),
    ):  # fmt: skip
        settings = topology(topics, name=before.name)
        source = replace(settings.sources["s"], tables=(), filter_policy="accept")
        with closing(KafkaLog(settings, source, make_topics(settings, source))) as log:
            recovered = log.recover()
            assert recovered.behind & both == behind, topics
            writer = Writer(settings, log)
            writer.begin(ONE, TWO)
            writer.write(ONE, "c", 1)
            log.commit(SECOND)


def test_keys_name_the_table() -> None:
    """The key in Kafka names the table, and the reader gets the key of a topic of its own. Markers stay markers."""
    settings = topology("per_source")
    one, two = change_topic(settings.name, ONE), change_topic(settings.name, TWO)
    routing = settings.routing
    for key in (b'{"id":1}', b'{"a":"\\"}","b":[1]}', TRUNCATE_KEY):
        stored = routing.stored_key(one, key)
        assert (routing.own_key(one, stored), routing.own_key(two, stored)) == (key, None)
    assert routing.stored_key(one, b'{"id":1}') == b'{"__dbz__physicalTableIdentifier":"%s","id":1}' % one.encode()
    assert routing.topic(f"{settings.name}.positions") == f"{settings.name}.positions"
    alone = topology("per_table").routing
    assert (alone.topic(one), alone.stored_key(one, b"{}"), alone.own_key(one, b"{}")) == (one, b"{}", b"{}")
