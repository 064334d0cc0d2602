"""Every reader of `…positions` reads whole positions from records of which most contain only what changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pytest

from cdc.model.event import Position
from cdc.model.naming import change_topic, positions_topic
from cdc.model.schema import TableId
from cdc.topology.reader import read_topology
from ingest.changes.kafka_released import KafkaReleased
from ingest.ledger.places import Reach
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.records.capture_interfaces import Checkpoint, Record
from ingest.records.position_writer import PositionWriter
from joins.stores.kafka_cut_positions import PositionsLog
from tailorbird.operate.status.kafka_captured import captured_positions
from tailorbird.verify.log.kafka_changed_keys import KafkaChangedKeys

pytestmark = [pytest.mark.integration, pytest.mark.kafka]
START = Checkpoint(position=Position(file="f", pos=4, gtid_set="", sequence=0), snapshot="done", ts_ms=1)


def test_all_readers_read_whole_positions(stack: object, unique: Callable[[str], str]) -> None:
    """From the beginning, from the middle, and after a crash between two commits, which leaves records without a
    position."""
    name, brokers = unique("positions"), f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}"
    topology = read_topology(
        f"name: {name}\nsources: {{s: {{type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1, "
        f"tables: [a, b, c]}}}}\nlog: {{bootstrap_servers: '{brokers}', partitions: 1}}\n"
        "tables: {t: {query: 'SELECT t.id FROM s.a t', row_key: [id], sink: kafka}}",
        file="t.yml",
        environ={},
    )
    source = topology.sources["s"]
    names = [change_topic(name, TableId(source="s", database="d", table=table)) for table in "abc"]
    meant = dict.fromkeys(names, 0)

    def opened() -> KafkaLog:
        log = KafkaLog(topology, source, make_topics(topology, source))
        log._positions = PositionWriter("s", log._id.encode(), few=0, every=4)
        return log

    log = opened()
    for round_ in range(2):
        log = log if round_ == 0 else opened()
        recovered = log.recover()
        assert round_ == 0 or recovered.checkpoint == replace(START, position=replace(START.position, sequence=7))
        assert not recovered.behind
        for number in range(1, 8):
            topic = names[number % 3]
            log.append(Record(topic, b'{"id":1}', b"{}"))
            log.commit(replace(START, position=replace(START.position, sequence=7 * round_ + number)))
            meant[topic] = log._ends[topic][0]
        log.append(Record(names[0], b'{"id":1}', b"{}"))
        log.undelivered(0.5)
        log.abort()
        log.close()
    ends = {topic: {0: end} for topic, end in meant.items()}
    assert log._positions._number == 1  # the last record is one of changes
    with closing(opened()) as again:
        found = again.peek()
        assert found.checkpoint is not None
        assert found.checkpoint.position.sequence == 14
        assert {topic: one for topic, one in again._ends.items() if topic in ends} == ends
    assert captured_positions(topology)["s"].sequence == 14
    with closing(KafkaReleased(topology, ["s"])) as released:
        released.begin()
        assert released.ends == ends
    for known in ({}, {"s": {"offset": captured_positions(topology)["s"].offset}}):
        newest = PositionsLog(topology.log.brokers, name, frozenset(names)).read(known)[-1]
        assert (newest.sequence, newest.ends) == (14, ends)
    with closing(KafkaChangedKeys(topology.log.brokers)) as changed:
        everything = Reach(START.position)
        assert changed.ends(positions_topic(name), "s", everything) == {
            (topic, 0): one[0] for topic, one in ends.items()
        }
