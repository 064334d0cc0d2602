"""Topics of a source with many tables: those of the first exist from the start, others with a first record."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from itertools import chain
from pathlib import Path
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._resource import ResourceType

from cdc.model.errors import UsageError
from cdc.model.event import ChangeEvent, SourceInfo
from cdc.model.naming import schemas_topic
from cdc.model.schema import Column, TableId, TableSchema
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.changes.kafka_changes import KafkaChanges
from ingest.ledger.run_ledger import ledger_of
from ingest.log import kafka_waiting
from ingest.log.kafka_defaults import own_settings
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import AT_ONCE, NewTopics, client_settings, is_named, make_topics, source_topics
from ingest.records.capture_interfaces import EVERY_PARTITION, Record
from ingest.records.records import Recorder
from tests.contracts.test_capture_log import FIRST, SECOND, read_topic
from tests.support.waiting import wait_for

LISTED = AT_ONCE + 60
ON_KAFKA = [pytest.mark.integration, pytest.mark.kafka]


def topology(policy: str = "drop", listed: int = LISTED) -> Topology:
    name = f"t_many_{uuid4().hex[:8]}"
    tables = ", ".join(f"t{number}" for number in range(listed))
    text = f"""
name: {name}
log: {{partitions: 1, bootstrap_servers: '127.0.0.1:${{TAILORBIRD_PORT_KAFKA:-9092}}'}}
sources:
  s: {{type: mysql, hostname: x, username: u, password: p, database: d, tables: [{tables}], server_id: 1,
       filter_policy: {policy}}}
tables:
  w: {{query: SELECT t.id FROM s.`T{listed - 1}` t, row_key: [id]}}
"""
    return read_topology(text, file="t.yml", environ=os.environ)


def topic(settings: Topology, number: int) -> str:
    return f"{settings.name}.s.d.t{number}"


def existing(settings: Topology) -> set[str]:
    found = AdminClient(client_settings(settings.log.brokers)).list_topics(timeout=20.0).topics
    return {name for name in found if name.startswith(f"{settings.name}.s.")}


def row(settings: Topology, number: int, value: bytes = b"v") -> Record:
    return Record(topic(settings, number), b'{"id":1}', value)


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return the names that each request contains."""
    found: list[list[str]] = []
    request = NewTopics.request

    def noted(self: NewTopics, names: Sequence[str]) -> None:
        if names:
            found.append([*names])
        request(self, names)

    monkeypatch.setattr(NewTopics, "request", noted)
    return found


def opened(settings: Topology) -> KafkaLog:
    source = settings.sources["s"]
    return KafkaLog(settings, source, make_topics(settings, source))


@pytest.mark.integration
@pytest.mark.kafka
def test_a_topic_is_made_with_its_first_record(requested: list[list[str]]) -> None:
    """Few requests create all topics of a commit. Records arrive in order; a restart reads no table again that has no
    topic yet, but one whose topic was deleted."""
    settings = topology()
    first = {topic(settings, number) for number in range(AT_ONCE)} | {topic(settings, LISTED - 1)}
    many = range(AT_ONCE, AT_ONCE + 40)
    with closing(opened(settings)) as log:
        assert existing(settings) == first
        log.recover()
        for number in range(LISTED):
            log.ensure_topic(topic(settings, number))
        log.extend([Record(schemas_topic(settings.name), b"s.d.t0", b"{}")])
        log.commit(FIRST)
        assert (existing(settings), requested) == (first, [])
        for number in many:
            log.extend([row(settings, number), row(settings, number, b"w"), row(settings, 0)])
        log.append(Record(topic(settings, AT_ONCE), b'"truncate"', b"t", EVERY_PARTITION))
        assert log.undelivered() >= 81
        log.commit(SECOND)
        assert sorted(chain(*requested)) == sorted(topic(settings, number) for number in many)
        assert len(requested) <= 10
        assert existing(settings) == first | {topic(settings, number) for number in many}
        servers = settings.log.bootstrap_servers
        assert [value for _, value in read_topic(servers, topic(settings, AT_ONCE), {0})] == [b"v", b"w", b"t"]
        assert len(read_topic(servers, topic(settings, 0), {0})) == 40
    admin = AdminClient(client_settings(settings.log.brokers))
    admin.delete_topics([topic(settings, AT_ONCE)])[topic(settings, AT_ONCE)].result(30)
    with closing(opened(settings)) as again:
        recovered = again.recover()
        assert (recovered.checkpoint, recovered.behind) == (SECOND, {topic(settings, AT_ONCE)})


@pytest.mark.integration
@pytest.mark.kafka
def test_topics_have_settings_of_their_own_unless_they_are_the_defaults() -> None:
    """For each topic with settings, a broker goes through all its logs. But a topic whose settings are missing would
    lose records, so one difference to the brokers' defaults gives it all of them."""
    settings = topology()
    admin = AdminClient(client_settings(settings.log.brokers))
    same = {"cleanup.policy": "delete", "delete.retention.ms": "86400000"}
    for other in ({"cleanup.policy": "compact"}, {"delete.retention.ms": "86400001"}, {"retention.ms": "604800000"}):
        assert own_settings(admin, same | other) == same | other
    assert own_settings(admin, same) == {}
    with NewTopics(settings.log) as new:
        new.request([topic(settings, 0)])
        wait_for(lambda: new.look(), "the topic is not ready", seconds=30)
    resource = ConfigResource(ResourceType.TOPIC, topic(settings, 0))
    found = admin.describe_configs([resource], request_timeout=10)[resource].result(10)
    assert (found["cleanup.policy"].value, found["min.compaction.lag.ms"].value) == ("compact", "604800000")


@pytest.mark.integration
@pytest.mark.kafka
def test_records_that_were_aborted_are_not_written(requested: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Records wait for their topics in memory, up to a limit; an abort discards them. A topic that was requested for
    them stays, empty; for the next session its table is neither new nor lost."""
    settings = topology("accept", 2)
    source = replace(settings.sources["s"], tables=())
    with closing(KafkaLog(settings, source, make_topics(settings, source))) as log:
        log.recover()
        for number in range(AT_ONCE):
            log.ensure_topic(topic(settings, number))
        log.commit(FIRST)
        assert len([*chain(*requested)]) == AT_ONCE
        log.ensure_topic(topic(settings, 900))
        log.append(row(settings, 900))
        log.abort()
        log.commit(SECOND)
        assert read_topic(settings.log.bootstrap_servers, topic(settings, 900), {0}) == []
        monkeypatch.setattr(kafka_waiting, "_RECORDS", 2)
        log.extend([row(settings, 901), row(settings, 902), row(settings, 903)])
        assert {topic(settings, number) for number in (901, 902, 903)} <= existing(settings)
        log.commit(SECOND)
        assert read_topic(settings.log.bootstrap_servers, topic(settings, 903), {0}) == [(b'{"id":1}', b"v")]
    with closing(KafkaLog(settings, source, make_topics(settings, source))) as again:
        recovered = again.recover()
        assert (recovered.checkpoint, recovered.behind) == (SECOND, frozenset())


@pytest.mark.integration
@pytest.mark.kafka
def test_a_refused_topic_fails_the_commit() -> None:
    """Its name differs from that of another topic only in `.` and `_`. Nothing of the commit is written."""
    settings = topology("accept", 2)
    source = replace(settings.sources["s"], tables=())
    with closing(KafkaLog(settings, source, make_topics(settings, source))) as log:
        log.recover()
        log.append(row(settings, 1))
        log.commit(FIRST)
        log.extend([row(settings, 1), Record(topic(settings, 1).replace(".s.d.", ".s_d."), b"k", b"v")])
        with pytest.raises(UsageError, match="Kafka refuses topic"):
            log.commit(SECOND)
        log.abort()
    assert read_topic(settings.log.bootstrap_servers, topic(settings, 1), {0}) == [(b'{"id":1}', b"v")]


@pytest.mark.integration
@pytest.mark.kafka
def test_readers_wait_for_a_topic_that_does_not_exist_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ledger follows it from its first record on. For readers of changes it is empty until then."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    settings = topology()
    table = TableId(source="s", database="d", table=f"t{AT_ONCE}")
    columns = (Column(name="id", column_type="int", nullable=False),)
    schema = TableSchema(table_id=table, version=1, columns=columns, primary_key=("id",))
    source = SourceInfo(table_id=table, ts_ms=1, server_id=1, gtid=None, file="f", pos=4, row=0, sequence=1)
    with closing(opened(settings)) as log:
        recorder = Recorder(settings.name, "mysql", log.ensure_topic)
        log.recover()
        log.append(recorder.schema(schema))
        log.commit(replace(SECOND, position=FIRST.position))
        with ledger_of(settings) as ledger, closing(KafkaChanges(settings, ("s",))) as changes:
            wait_for(lambda: ledger.poll(0.1) == 0 and "s" in ledger.topology_ledger.reached, "it is not read")
            assert ledger.topology_ledger.tables[table].total().count == 0
            changes.begin()
            assert (changes.tables(), changes.begins(table)) == ((table,), {0: 0})
            log.extend(
                recorder.change(ChangeEvent(op="c", before=None, after={"id": 1}, source=source, ts_ms=1), schema)
            )
            log.commit(SECOND)
            read = ledger.topology_ledger
            wait_for(lambda: ledger.poll(0.1) >= 0 and read.tables[table].total().count == 1, "its row is not read")


def test_a_table_that_a_query_names_is_known_by_its_topic() -> None:
    """Upper and lower case and quotes make no difference. A shortened name of a topic may be that of any table."""
    settings = topology(listed=3)
    named = is_named(settings)
    assert [named(name) for name in source_topics(settings, settings.sources["s"]).changes] == [False, False, True]
    assert named(f"{settings.name}.s.d.{'x' * 300}")
