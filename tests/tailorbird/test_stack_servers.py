"""The stack on real servers: `up` repairs what was killed, and nothing acknowledged is lost."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import happybase
import pymysql
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import EXTRA_SERVICES, LOAD_LOGIN, SERVICES, ServiceName

pytestmark = pytest.mark.integration

SOME: tuple[ServiceName, ...] = ("mysql-crm", "kafka")
MORE: tuple[ServiceName, ...] = (*SOME, "hbase")  # which takes half a minute to start again


def pids(stack: Stack) -> dict[str, int]:
    return {status.name: status.pid for status in stack.status()}


def mysql(stack: Stack) -> pymysql.Connection[pymysql.cursors.Cursor]:
    port = stack.settings.ports.mysql_crm
    return pymysql.connect(host="127.0.0.1", port=port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)


@pytest.fixture
def thing(stack: Stack, unique: Callable[[str], str]) -> Iterator[str]:
    """One name for a database, a topic and a table, made before and removed after."""
    name = unique("killed")
    admin = AdminClient({"bootstrap.servers": stack.addresses()["kafka"]})
    with mysql(stack) as connection, connection.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {name}")
        cursor.execute(f"CREATE TABLE {name}.t (id INT PRIMARY KEY)")
    admin.create_topics([NewTopic(name, 1)])[name].result()
    hbase = happybase.Connection("127.0.0.1", stack.settings.ports.thrift)
    hbase.create_table(name, {"f": {}})
    hbase.close()
    yield name
    with mysql(stack) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")
    admin.delete_topics([name])[name].result()
    hbase = happybase.Connection("127.0.0.1", stack.settings.ports.thrift)
    hbase.delete_table(name, disable=True)
    hbase.close()


@pytest.mark.timeout(240)
@pytest.mark.parametrize("killed", [SOME, pytest.param(MORE, marks=pytest.mark.matrix)])
def test_what_was_acknowledged_survives_kill_9_and_up(
    stack: Stack, thing: str, killed: tuple[ServiceName, ...]
) -> None:
    """After `kill -9` of several servers at a time one `up` has all answering, with every commit, record and row."""
    before = pids(stack)
    with mysql(stack) as connection, connection.cursor() as cursor:
        cursor.execute(f"INSERT INTO {thing}.t VALUES (42)")
        connection.commit()
    producer = Producer({"bootstrap.servers": stack.addresses()["kafka"], "acks": "all", "log_level": 0})
    producer.produce(thing, b"acknowledged")
    assert producer.flush(30) == 0
    hbase = happybase.Connection("127.0.0.1", stack.settings.ports.thrift)
    hbase.table(thing).put(b"row", {b"f:q": b"acknowledged"})
    hbase.close()

    for name in killed:
        stack.kill(name)
    assert {status.name for status in stack.status() if status.state == "stopped"} == set(killed)
    stack.up()

    after = pids(stack)
    assert {name for name in SERVICES if before[name] != after[name]} == set(killed)
    with mysql(stack) as connection, connection.cursor() as cursor:
        cursor.execute(f"SELECT id FROM {thing}.t")
        assert cursor.fetchall() == ((42,),)
    hbase = happybase.Connection("127.0.0.1", stack.settings.ports.thrift)
    assert hbase.table(thing).row(b"row") == {b"f:q": b"acknowledged"}
    hbase.close()
    assert first_record(stack, thing) == b"acknowledged"


def first_record(stack: Stack, topic: str) -> bytes | None:
    consumer = Consumer({"bootstrap.servers": stack.addresses()["kafka"], "group.id": topic, "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    deadline = time.monotonic() + 30
    try:
        while time.monotonic() < deadline:
            record = consumer.poll(0.5)
            if record is not None and not record.error():
                return record.value()
    finally:
        consumer.close()
    return None


def test_up_is_idempotent_and_serialised(stack: Stack) -> None:
    """Concurrent calls are allowed: nothing is started twice or restarted."""
    before = pids(stack)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(stack.up) for _ in range(2)]:
            done.result()
    assert pids(stack) == before


def test_all_is_ready_and_small(stack: Stack) -> None:
    """The whole stack fits in 1.5 GiB, next to other programs. Servers on request are not part of it."""
    found = stack.status()
    assert [(status.name, status.problem) for status in found if status.state != "ready"] == []
    assert not any(status.stale for status in found)
    assert 0 < sum(status.rss_mib for status in found if status.name not in EXTRA_SERVICES) <= 1536
