"""A hostile or careless Kafka client writes records into every internal topic: no process ends.

Forged records that are valid cannot be distinguished from ours: Kafka's access control keeps them out.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Message, Producer

from cdc.model.naming import control_topics, signals_topic, transactional_id
from cdc.process.file_topology import load_topology
from cdc.topology.roles import ROLES
from cdc.topology.topology import Topology
from ingest.gateway.kafka_audit import KafkaAudit
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_signals import KafkaSignals
from ingest.log.kafka_topics import make_topics
from tests.support.foreign_records import counted
from tests.support.kafka_work import WORK
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka(), pytest.mark.timeout(300)]

VALUES = (
    b"", b"\xff\x00", b"null", b"7", b"[]", b"{}", b'{"format":1}', b'{"format":"x"}', b"[" * 5000,
    b'{"format":1,"source":"shop","database":7,"table":[],"sequence":"x","position":{},"end_offsets":7,"state":[]}',
    b'{"format":1,"stage":"settled","ids":7}', b'{"format":1,"stage":"settled","row":[1]}',
    b'{"format":1,"stage":"indexer","index":"i","row":"zz"}', b'{"format":1,"stage":"join","table":"wide","key":"k"}',
    b'{"type":"execute-snapshot","data":[]}', b'{"type":"execute-snapshot","data":{"data-collections":[{}]}}',
    b'{"name":7,"role":"admin","sha256":[],"issued_ms":"x","expires_ms":"x"}', b'{"labels":7}', b'{"checked":[{}]}',
)  # fmt: skip
KEYS = (
    None, b"", b"\xff", b"7", b"{}", b"settled", b'["token","0123456789abcdef"]', b'["lease","shop",9,"c"]',
    b'["desired","shop",9,"w"]', b'["revoked",[]]', b'["agent","a"]',
)  # fmt: skip


def topology_of(name: str, folder: Path) -> Topology:
    file = folder / "t.yml"
    file.write_text(
        f"""name: {name}
sources:
  shop: {{type: mysql, hostname: 127.0.0.1, username: cdc, password: cdc, database: d, tables: [orders], server_id: 77}}
tables:
  wide: {{query: SELECT o.id FROM shop.orders o, row_key: [id]}}
log: {{bootstrap_servers: "127.0.0.1:{os.environ["TAILORBIRD_PORT_KAFKA"]}"}}
""",
        encoding="utf-8",
    )
    return load_topology(str(file))


def forge(topology: Topology) -> None:
    """Write every value under every key, and under the keys of the source, into every internal topic."""
    own = (transactional_id(topology.name, "shop").encode(), b'["change","shop","d","orders",9]', b'["mark","shop",9]')
    keyed = [key for key in (*KEYS, *own) if key is not None]
    assert write(topology, keyed) == set()
    # Kafka refuses whole batches with such a record in compacted topics
    assert write(topology, [None]) < set(control_topics(topology.name))


def write(topology: Topology, keys: Sequence[bytes | None]) -> set[str]:
    """Write every value under these keys into every internal topic. Return the topics that refuse records."""
    refused = set[str]()

    def written(error: object, record: Message) -> None:
        if error is not None:
            refused.add(record.topic() or "")

    producer = Producer({"bootstrap.servers": topology.log.bootstrap_servers})
    for topic in control_topics(topology.name):
        for key in keys:
            for value in VALUES:
                producer.produce(topic, key=key, value=value, partition=0, on_delivery=written)
        producer.poll(0)
    assert producer.flush(60) == 0
    return refused


@pytest.mark.matrix
def test_foreign_records_in_every_internal_topic_end_nothing(
    stack: object, unique: Callable[[str], str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Capture, gateway, join, indexer, console and operator do their work as before; each topic's records are counted.

    The position is still the one that the capture has committed.
    """
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    topology = topology_of(unique("forged"), tmp_path)
    for role in ROLES:
        WORK[role](topology)
    forge(topology)
    for role in ROLES:
        WORK[role](topology)
    audit = KafkaAudit(topology.log, topology.name)
    audit.newest(100)
    audit.close()
    signals = KafkaSignals(topology, "shop")
    wait_for(lambda: signals.read(0) and counted(signals_topic(topology.name)), "no signal was read", 30)
    signals.close()
    log = KafkaLog(topology, topology.sources["shop"], make_topics(topology, topology.sources["shop"]))
    try:
        found = log.peek()
    finally:
        log.close()
    assert found.checkpoint is not None
    assert (found.checkpoint.position.file, found.history) == ("f", ())
    assert [topic for topic in control_topics(topology.name) if not counted(topic)] == []
