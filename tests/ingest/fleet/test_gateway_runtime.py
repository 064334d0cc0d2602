"""A gateway survives an internal error, an error of a broker, and a configuration that takes long to read."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from cdc.model.brokers import Brokers
from cdc.model.errors import Retriable
from cdc.process.verdict import HealthTracker, HealthVerdict
from cdc.topology.reader import read_topology
from ingest.fleet.desired import DesiredSource, SourceSpec, source_of
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.state import FleetState, StateRecord, beat_record, desired_record
from ingest.gateway import kafka_sources, kafka_state
from ingest.gateway.kafka_sources import KafkaFleet
from ingest.gateway.kafka_state import KafkaState
from ingest.gateway.run_gateway import GatewayRuntime, coordinator_of
from tests.support.nearby_fleet import NearbyAudit, NearbyTopic
from tests.support.waiting import wait_for

PARIS = FleetIdentity("acme", "agents", "paris")
TOPOLOGY = """
name: t
sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1, tables: {orders: {}}}}
tables: {w: {query: SELECT o.id FROM s.orders o, row_key: [id]}}
"""


@pytest.mark.long
def test_a_coordinator_continues_after_an_internal_error() -> None:
    """Otherwise the gateway would serve sessions but assign no leases."""

    class Broken(NearbyTopic):
        turns = 0

        def send(self, record: StateRecord) -> None:
            self.turns += 1
            if self.turns == 1:
                raise KeyError("internal error")
            super().send(record)

    topic, audit = Broken(), NearbyAudit()
    runtime = GatewayRuntime(coordinator_of("g1#1", "acme", "t", topic, audit), lambda *_: None, audit, topic)
    wait_for(lambda: topic.state.beats, "the coordinator has stopped", seconds=20)
    runtime.close()


def test_health_reports_a_coordinator_that_cannot_continue() -> None:
    """A probe sees it after half a minute, and no longer once a turn succeeds."""

    class Unavailable(NearbyTopic):
        refuses = True

        def send(self, record: StateRecord) -> None:
            if self.refuses:
                raise Retriable("Kafka is unavailable", "start it")
            super().send(record)

    topic, audit, standing = Unavailable(), NearbyAudit(), HealthTracker()
    standing.ready()
    runtime = GatewayRuntime(coordinator_of("g1#1", "acme", "t", topic, audit), lambda *_: None, audit, topic, standing)

    def verdict() -> HealthVerdict:
        return standing.judge(time.monotonic() + 60)

    wait_for(lambda: not verdict().healthy, "no wait is recorded", seconds=20)
    assert verdict().status == "away"
    assert "the coordinator: Kafka is unavailable" in verdict().reason
    topic.refuses = False
    wait_for(lambda: verdict().healthy, "it never recovers", seconds=20)
    runtime.close()


class Message:
    """A consumer's message: a record or an error."""

    def __init__(self, offset: int, record: StateRecord | None, error: int = 0) -> None:
        self._offset, self._record, self._error = offset, record, error

    def error(self) -> KafkaError | None:
        return KafkaError(self._error) if self._error else None

    def key(self) -> bytes | None:
        return self._record[0] if self._record else None

    def value(self) -> bytes | None:
        return self._record[1] if self._record else None

    def offset(self) -> int:
        return self._offset


def test_records_that_arrive_with_an_error_are_read() -> None:
    """They are not read again. A missed lease would be assigned twice."""
    state: Any = object.__new__(KafkaState)
    state._topic, state._state, state._next, state._read = "t.fleet", FleetState(), 0, threading.Condition()
    with pytest.raises(KafkaException):
        state._take([Message(0, beat_record("g1", 1)), Message(1, None, KafkaError.TOPIC_AUTHORIZATION_FAILED)])
    assert (state.state.beats, state._next) == ({"g1": 1}, 1)
    state._take([])
    state._take([Message(1, beat_record("g1", 2)), Message(2, None, KafkaError._PARTITION_EOF)])
    assert (state.state.beats, state._next) == ({"g1": 2}, 2)


class OneLeader:
    """An admin client that keeps the leader known at its creation, like librdkafka's."""

    leader = 0

    def __init__(self, settings: object) -> None:
        self._leader = OneLeader.leader

    def list_offsets(self, asked: Mapping[Any, Any], **how: Any) -> dict[Any, Future[Any]]:
        answer = Future[Any]()
        if self._leader == OneLeader.leader:
            answer.set_result(SimpleNamespace(offset=7))
        else:
            answer.set_exception(KafkaException(KafkaError(KafkaError.FENCED_LEADER_EPOCH)))
        return dict.fromkeys(asked, answer)


def test_a_restarted_broker_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has a new leader epoch, which no response reports. Without a new client no lease check succeeds."""
    monkeypatch.setattr(kafka_state, "AdminClient", OneLeader)
    state: Any = object.__new__(KafkaState)
    state._topic, state._state, state._next, state._read = "t.fleet", FleetState(), 7, threading.Condition()
    state._brokers, state._at = Brokers("nowhere:9"), "partition 0"
    state._admin = OneLeader({})
    assert state.fresh() is state.state
    OneLeader.leader += 1
    asking = [threading.Thread(target=state.fresh) for _ in range(5)]
    for thread in asking:
        thread.start()
    for thread in asking:
        thread.join(20)
    assert state.fresh() is state.state


def test_a_configuration_is_read_by_its_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """The event loop serves all streams, and half a megabyte of YAML takes seconds to parse."""
    read: Callable[..., Any] = source_of
    by = list[str]()

    def noted(*what: Any) -> Any:
        by.append(threading.current_thread().name)
        return read(*what)

    monkeypatch.setattr(kafka_sources, "source_of", noted)
    topic = NearbyTopic()
    spec = SourceSpec(agents=("paris",), connection="db", keys={"database": "d", "tables": {"orders": {}}})
    topic.write(desired_record(DesiredSource(source="s", version=1, spec=spec), "test"))
    opened = KafkaFleet(read_topology(TOPOLOGY, file="t.yml", environ={}), "acme", topic).source(PARIS, "s", 1)
    assert opened is not None
    assert (opened.name, by) == ("s", [])
    session_handler = threading.Thread(
        target=lambda: [opened.permits.topic("t.s.d.orders") for _ in range(3)], name="desk s"
    )
    session_handler.start()
    session_handler.join()
    assert opened.permits.topic("t.s.d.orders")
    assert not opened.permits.topic("t.s.d.users")
    assert by == ["desk s"]


def test_a_source_for_agents_is_not_served_before_it_is_applied() -> None:
    """Otherwise any agent of the tenant could capture it, like a source of the gateway's own topology."""
    text = TOPOLOGY.replace("database: d,", "database: d, agent: {names: [paris], connection: db},")
    for said, opens in ((TOPOLOGY, True), (text, False)):
        opened = KafkaFleet(read_topology(said, file="t.yml", environ={}), "acme", NearbyTopic()).source(PARIS, "s", 0)
        assert opened is not None
        assert opened.permits.topic("t.s.d.orders") == opens
