"""Ownership of an upsert topic is known from its records; records of other producers are never overwritten or
deleted."""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.model.brokers import Brokers
from cdc.model.errors import UsageError
from joins.runtime.chunks import stale_keys
from joins.stores.kafka_table import UpsertTopic, check_own, produce, written_by

OURS, OTHERS = [("run", b"7f3a")], [("trace", b"x")]


@pytest.mark.parametrize("firsts", [[], [OURS], [OURS, OURS]])
def test_an_empty_topic_and_one_that_we_began_are_ours(firsts: Sequence[list[tuple[str, bytes]]]) -> None:
    """A topic created by an operator is accepted; a restart recognizes its own records."""
    check_own("t.wide", firsts)


@pytest.mark.parametrize("firsts", [[OTHERS], [[]], [OURS, OTHERS]])
def test_a_topic_that_others_began_is_refused(firsts: Sequence[list[tuple[str, bytes]]]) -> None:
    """Its rows would be mixed with ours, and a new run would delete them."""
    with pytest.raises(UsageError, match=r"topic t\.wide holds records of another producer; choose another table name"):
        check_own("t.wide", firsts)


def test_the_sweep_leaves_what_others_have_written() -> None:
    """Only keys whose newest record belongs to a former run are deleted."""
    log = [
        (b"former", b"{}", [("run", b"old")]),
        (b"now", b"{}", [("run", b"old")]),
        (b"now", b"{}", [("run", b"new")]),
        (b"gone", b"{}", [("run", b"old")]),
        (b"gone", None, [("run", b"old")]),
        (b"theirs", b"{}", OTHERS),
        (b"taken", b"{}", [("run", b"old")]),
        (b"taken", b"{}", []),
    ]
    read = [(key, written_by(value, headers)) for key, value, headers in log]
    assert list(stale_keys(lambda: read, "new")) == [[b"former"]]


@pytest.mark.integration
@pytest.mark.kafka
def test_a_topic_of_others_stays_as_it_is() -> None:
    """With Kafka's own answers: refused before a record is written; our own topic is accepted and swept."""
    servers = f"127.0.0.1:{os.environ.get('TAILORBIRD_PORT_KAFKA', '9092')}"
    theirs, ours = (f"upsert_{uuid.uuid4().hex[:8]}.wide" for _ in range(2))
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(theirs, 2, 1)])[theirs].result(30)
    producer = Producer({"bootstrap.servers": servers})
    producer.produce(theirs, b"{}", b"key", partition=1)
    assert producer.flush(30) == 0
    with pytest.raises(UsageError, match="holds records of another producer"):
        UpsertTopic(Brokers(servers), theirs, partitions=2, replication=1).check()
    table = UpsertTopic(Brokers(servers), ours, partitions=2, replication=1)
    table.check()
    assert not table.exists(), "a run creates it"
    table.create()
    table.check()
    assert table.exists()
    produce(Brokers(servers), ours, "old", [(b"a", b"{}"), (b"b", b"{}")])
    produce(Brokers(servers), ours, "new", [(b"a", b"{}")])
    table.check()
    assert table.sweep("new") == 1
    assert table.sweep("new") == 0
