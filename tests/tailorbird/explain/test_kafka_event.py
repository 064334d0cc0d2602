"""One record of a change topic, at exactly its offset, or why it is not there."""

from __future__ import annotations

import uuid

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.model.brokers import Brokers
from tailorbird.verify.explain.kafka_event import MissingRecord, RecordReader
from tests.integration.conftest import servers

pytestmark = [pytest.mark.integration, pytest.mark.kafka]


def test_a_record_is_read_or_named_as_gone() -> None:
    """An existing record is returned completely. A missing one has a reason: truncated, recreated or compacted log."""
    name = f"explained_{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": servers()})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    producer = Producer({"bootstrap.servers": servers(), "transactional.id": name})
    producer.init_transactions(30)
    for value in (b"a", b"b"):  # offsets 0 and 2: each transaction ends with a control record
        producer.begin_transaction()
        producer.produce(name, key=b"k", value=value)
        producer.commit_transaction(30)
    with RecordReader(Brokers(servers())) as log:
        assert [log.record(name, 0, offset) for offset in (2, 0)] == [(b"k", b"b"), (b"k", b"a")]
        hole, beyond, nowhere = (log.record(*at) for at in ((name, 0, 1), (name, 0, 9), (f"{name}_not", 0, 0)))
        for taken, word in ((hole, "compaction"), (beyond, "recreated"), (nowhere, "does not exist")):
            assert isinstance(taken, MissingRecord)
            assert word in taken.why
        admin.delete_records([TopicPartition(name, 0, 2)])
        cut = log.record(name, 0, 0)
        while not isinstance(cut, MissingRecord):  # the broker answers before it has done so
            cut = log.record(name, 0, 0)
        assert cut == MissingRecord("the log begins at offset 2")
