"""Read the newest positions of a source from a real Kafka: the last ones have no gap."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # not in __all__

from cdc.model.naming import positions_topic, transactional_id
from cdc.topology.reader import read_topology
from tailorbird.operate.status.kafka_captured import PositionsReader

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


def test_the_last_positions_have_no_gap(stack: object, unique: Callable[[str], str]) -> None:
    """Read continuously, they grow to a hundred; a reader that paused for longer forgets what it had read before."""
    name, servers = unique("lately"), f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}"
    source = "{type: mysql, hostname: h, username: u, password: p, database: shop, tables: [t], server_id: 1}"
    topology = read_topology(
        f"name: {name}\nsources: {{shop: {source}, crm: {source.replace('server_id: 1', 'server_id: 2')}}}\n"
        f"log: {{bootstrap_servers: '{servers}'}}\n"
        "tables: {t: {query: 'SELECT t.id FROM shop.t t', row_key: [id], sink: kafka}}",
        file="t.yml",
        environ={},
    )
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(positions_topic(name), 1, 1)])[positions_topic(name)].result(60)
    producer, reported = Producer({"bootstrap.servers": servers}), 0

    def report(count: int, of: str = "shop") -> None:
        nonlocal reported
        for _ in range(count):
            reported += 1
            position = {"gtid_set": "", "sequence": reported, "file": "binlog.000001", "pos": reported}
            value = json.dumps({"position": position, "snapshot": "done"})
            producer.produce(positions_topic(name), key=transactional_id(name, of), value=value, partition=0)
        assert producer.flush(60) == 0

    def lately(reader: PositionsReader, of: str = "shop") -> list[int]:
        reader.read()
        return [one.sequence for one in reader.lately(of)]

    report(1, of="crm")
    report(3)
    with PositionsReader(topology) as reader:
        assert lately(reader) == [2, 3, 4]
        report(2)
        assert lately(reader) == [2, 3, 4, 5, 6]
        report(120)
        assert lately(reader) == list(range(27, 127))
        assert lately(reader, "crm") == [1]
        report(500, of="crm")  # more than a reader keeps
        assert lately(reader) == [126], "only the newest position, since there may be a gap before it"
        assert lately(reader, "crm") == list(range(527, 627))
