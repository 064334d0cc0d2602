"""The contract of a change log: one suite, run on Kafka, on the in-memory log of the property tests, and on either
through a gateway."""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import orjson
import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from kafka.partitioner.default import murmur2

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.event import Position
from cdc.model.naming import history_topic, schemas_topic
from cdc.model.schema import Column, TableId, TableSchema
from cdc.process.kafka_admin import add_partitions
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from ingest.fleet.permits import Permits
from ingest.gateway.grpc_session import SignalValues
from ingest.gateway.kafka_sources import KafkaFleet
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, GrpcStream
from ingest.log.kafka_log import KafkaLog
from ingest.log.kafka_topics import make_topics
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import ChangeLog, Checkpoint, OpenLog, Record, SessionLog
from ingest.records.findings import Search
from ingest.records.records import Recorder
from tests.support.gateways import TENANT, certificates, server_open
from tests.support.nearby_gateway import NearbyGateway

FIRST = Checkpoint(position=Position(file="f", pos=4, gtid_set="", sequence=0), snapshot="running", ts_ms=1)
SECOND = Checkpoint(position=Position(file="f", pos=9, gtid_set="a", sequence=3), snapshot="done", ts_ms=2)


class Place(Protocol):
    """Opens logs of one source and shows what a read_committed reader sees there."""

    @property
    def topology(self) -> str: ...

    def open(self) -> ChangeLog: ...

    def read(self) -> list[tuple[bytes, bytes | None]]: ...


@dataclass
class InMemory:
    """The log in memory."""

    topology: str
    broker: Broker = field(default_factory=Broker)

    def open(self) -> ChangeLog:
        return MemoryLog(self.broker, schemas_topic(self.topology), history_topic(self.topology))

    def read(self) -> list[tuple[bytes, bytes | None]]:
        schemas = schemas_topic(self.topology)
        return [(shown(record.key), record.value) for record in self.broker.records if record.topic != schemas]


@dataclass
class InKafka:
    """Kafka of the local stack."""

    settings: Topology
    logs: list[OpenLog] = field(default_factory=list)

    @property
    def topology(self) -> str:
        return self.settings.name

    def open(self) -> ChangeLog:
        source = self.settings.sources["s"]
        log = KafkaLog(self.settings, source, make_topics(self.settings, source))
        self.logs.append(log)
        return log

    def read(self) -> list[tuple[bytes, bytes | None]]:
        name, routing = topic(self.topology), self.settings.routing
        found = read_topic(self.settings.log.bootstrap_servers, routing.topic(name), {0})
        return [(shown(routing.own_key(name, key) or b""), value) for key, value in found]


class MemorySession(MemoryLog):
    """The log in memory, as a session handler opens it."""

    def ensure_topic(self, name: str) -> None:
        """Do nothing, since every topic exists in memory."""

    def close(self) -> None:
        """Abort the records that are not committed."""
        self.abort()


@dataclass
class GatewayPlace:
    """A place whose logs are opened by the session handlers of a gateway: `InMemory`'s in this process, `InKafka`'s
    over mTLS."""

    place: InMemory
    gateway: NearbyGateway = field(init=False)
    logs: list[GatewayLog] = field(default_factory=list)

    name = "s"

    def __post_init__(self) -> None:
        self.gateway = NearbyGateway(self)

    @property
    def topology(self) -> str:
        return self.place.topology

    @property
    def permits(self) -> Permits:
        return Permits(self.topology, "s", (topic(self.topology),), open_ended=False)

    def log(self) -> SessionLog:
        return MemorySession(self.place.broker, schemas_topic(self.topology), history_topic(self.topology))

    def signals(self) -> SignalValues:
        raise UsageError("no signals here")

    def open(self) -> ChangeLog:
        self.logs.append(GatewayLog(self.gateway, "s"))
        return self.logs[-1]

    def read(self) -> list[tuple[bytes, bytes | None]]:
        return self.place.read()


def read_topic(servers: str, name: str, partitions: Collection[int]) -> list[tuple[bytes, bytes | None]]:
    """Read all records that a read_committed consumer sees up to the ends of a topic."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "contracts",
        "isolation.level": "read_committed",
        "enable.partition.eof": True,
    }
    consumer, found, ended = Consumer(settings), list[Any](), set[int | None]()
    consumer.assign([TopicPartition(name, partition, 0) for partition in partitions])
    try:
        while len(ended) < len(partitions):
            message = consumer.poll(10)
            assert message is not None, "Kafka does not answer"
            if message.error() is None:
                found.append((message.key(), message.value()))
            else:
                ended.add(message.partition())
    finally:
        consumer.close()
    return found


def topic(topology: str) -> str:
    return f"{topology}.s.d.t"


def topology_text(name: str, sources: tuple[str, ...] = ("s",), topics: str = "per_table") -> str:
    """Return a topology whose sources are never connected to."""
    servers = "bootstrap_servers: '127.0.0.1:${TAILORBIRD_PORT_KAFKA:-9092}'"
    lines = [f"name: {name}", f"log: {{partitions: 1, topics: {topics}, {servers}}}"]
    lines.append("sources:")
    for i, source in enumerate(sources):
        lines.append(
            f"  {source}: {{type: mysql, hostname: x, username: u, password: p, "
            f"database: d, tables: [t], server_id: {i + 1}}}"
        )
    lines += ["tables:", f"  w: {{query: SELECT t.id FROM {sources[0]}.t t, row_key: [id]}}"]
    return "\n".join(lines)


ON_KAFKA = [pytest.mark.integration, pytest.mark.kafka]


@dataclass
class ThroughServer(InKafka):
    """Kafka's log through a gateway, over mTLS."""

    stream: GrpcStream | None = None

    def open(self) -> ChangeLog:
        assert self.stream is not None
        log = GatewayLog(self.stream, "s")
        self.logs.append(log)
        return log


PLACES = ["memory", "gateway", pytest.param("kafka", marks=ON_KAFKA)]
# the gateway in this process has the same session handlers: `make test` uses mTLS for a commit and for fencing only
WITH_MTLS = pytest.mark.parametrize("place", [*PLACES, pytest.param("mtls", marks=ON_KAFKA)], indirect=True)


IN_MATRIX = [*ON_KAFKA, pytest.mark.matrix]


# `shared`: through the gateway into a topic of several tables
@pytest.fixture(params=[*PLACES, *(pytest.param(name, marks=IN_MATRIX) for name in ("mtls", "shared"))])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    name = f"t_log_{uuid4().hex[:8]}"
    if request.param == "memory":
        yield InMemory(name)
        return
    if request.param == "gateway":
        through_gateway = GatewayPlace(InMemory(name))
        yield through_gateway
        for one in through_gateway.logs:
            one.close()
        return
    topics = "per_source" if request.param == "shared" else "per_table"
    topology = read_topology(topology_text(name, topics=topics), file="t.yml", environ=os.environ)
    kafka = InKafka(topology)
    if request.param == "kafka":
        yield kafka
    else:
        folder = certificates(tmp_path)
        with (
            server_open(KafkaFleet(topology, TENANT), folder) as address,
            closing(GrpcStream(address, Credentials.of(folder / "agent"))) as stream,
        ):
            kafka = ThroughServer(topology, stream=stream)
            yield kafka
            for log in kafka.logs:
                log.close()
    for log in kafka.logs:
        log.close()


def record(place: Place, key: str, value: str | None) -> Record:
    value_bytes = None if value is None else value.encode()
    return Record(topic=topic(place.topology), key=b'{"id":"%s"}' % key.encode(), value=value_bytes)


def shown(key: bytes) -> bytes:
    """Return the text that `record` put into a key."""
    return str(orjson.loads(key)["id"]).encode()


def test_a_new_log_is_empty(place: Place) -> None:
    """Before the first commit there is no checkpoint and no schema: capture takes a snapshot."""
    recovered = place.open().recover()
    assert recovered.checkpoint is None
    assert recovered.schemas == {}


@WITH_MTLS
def test_records_and_checkpoint_are_one_commit(place: Place) -> None:
    """A reader sees a commit's records in order, tombstones included; the next session finds the checkpoint after
    them."""
    log = place.open()
    log.recover()
    log.append(record(place, "a", "1"))
    log.append(record(place, "a", None))
    log.commit(FIRST)
    log.append(record(place, "b", "2"))
    log.commit(SECOND)
    assert place.read() == [(b"a", b"1"), (b"a", None), (b"b", b"2")]
    assert place.open().recover().checkpoint == SECOND


def test_a_search_sees_committed_records_once(place: Place) -> None:
    """A search shows every committed record of its topic, in order per key; repeated, only the records since then."""

    class Heard(Search):
        def see(self, partition: int, key: bytes, value: bytes | None) -> None:
            heard.append((shown(key), value))

    log, heard = place.open(), list[tuple[bytes, bytes | None]]()
    log.recover()
    search = Heard(topic(place.topology), (), (), 10)

    def searched() -> list[tuple[bytes, bytes | None]]:
        heard.clear()
        search.done = False
        log.search(search)
        deadline = time.monotonic() + 60
        while not search.done:
            assert search.failed is None
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return sorted(heard, key=lambda one: one[0])

    log.append(record(place, "a", "1"))
    log.append(record(place, "a", None))
    log.append(record(place, "b", "2"))
    log.commit(FIRST)
    log.append(record(place, "c", "open"))
    assert searched() == [(b"a", b"1"), (b"a", None), (b"b", b"2")]
    log.append(record(place, "a", "3"))
    log.commit(SECOND)
    assert searched() == [(b"a", b"3"), (b"c", b"open")]
    for number in range(10):  # a broker acknowledges a commit before its partitions show it
        log.append(record(place, "a", str(number)))
        log.commit(SECOND)
        assert searched() == [(b"a", str(number).encode())]


def test_uncommitted_records_are_never_seen(place: Place) -> None:
    """No reader sees records without a commit, whether they were aborted or their process died."""
    log = place.open()
    log.recover()
    log.append(record(place, "a", "1"))
    log.commit(FIRST)
    log.append(record(place, "a", "given up"))
    log.abort()
    log.append(record(place, "a", "left behind"))
    successor = place.open()
    assert successor.recover().checkpoint == FIRST
    successor.append(record(place, "b", "2"))
    successor.commit(SECOND)
    assert place.read() == [(b"a", b"1"), (b"b", b"2")]


@WITH_MTLS
def test_a_successor_fences_its_predecessor(place: Place) -> None:
    """Two captures of one source cannot both commit: the newer one continues, the older one ends with Fatal."""
    old = place.open()
    old.recover()
    old.append(record(place, "a", "old"))
    new = place.open()
    assert new.recover().checkpoint is None

    def go_on() -> None:
        old.append(record(place, "a", "too late"))
        old.commit(SECOND)

    with pytest.raises(Fatal, match="another capture"):
        go_on()
    new.append(record(place, "a", "new"))
    new.commit(FIRST)
    assert place.read() == [(b"a", b"new")]
    assert place.open().recover().checkpoint == FIRST


class FailingProducer:
    """A producer whose flush fails as the client sometimes does: with a SystemError without a cause."""

    def __init__(self, producer: Any) -> None:
        self._producer = producer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._producer, name)

    def flush(self, timeout: float) -> int:
        with suppress(KafkaException, SystemError):
            self._producer.flush(timeout)
        raise SystemError("<method 'flush' of 'cimpl.Producer' objects> returned NULL without setting an exception")


@pytest.mark.parametrize("place", ["kafka"], indirect=True)
@pytest.mark.integration
@pytest.mark.kafka
def test_fencing_is_reported_even_when_the_client_raises_a_bare_error(place: Place) -> None:
    """The capture finds the cause of the client's bare SystemError and ends with a useful message."""
    old = place.open()
    assert isinstance(old, KafkaLog)
    old.recover()
    old.append(record(place, "a", "old"))
    place.open().recover()
    old._producer = FailingProducer(old._producer)  # type: ignore[assignment]  # it has all that the log uses
    with pytest.raises(Fatal, match="another capture"):
        old.commit(SECOND)


def test_a_checkpoint_may_be_committed_alone(place: Place) -> None:
    """An idle source advances its position without records, in any number of commits."""
    log = place.open()
    log.recover()
    for sequence in range(70):
        log.commit(replace(SECOND, position=replace(SECOND.position, sequence=sequence)))
    found = place.open().recover().checkpoint
    assert found is not None
    assert found.position.sequence == 69
    assert place.read() == []


def test_the_newest_schema_of_each_table_is_found_again(place: Place) -> None:
    """A restarted capture knows the published schemas, so that it publishes each change once."""
    table = TableId(source="s", database="d", table="t")
    schema = TableSchema(
        table_id=table,
        version=1,
        columns=(Column(name="id", column_type="int", nullable=False),),
        primary_key=("id",),
    )
    recorder, log = Recorder(place.topology), place.open()
    log.recover()
    log.append(recorder.schema(schema))
    log.append(recorder.schema(replace(schema, version=2)))
    log.commit(FIRST)
    assert place.open().recover().schemas == {table: replace(schema, version=2)}


def _state(number: int) -> dict[str, Any]:
    """Return a value of the history: the state of a table without known columns."""
    named = {"format": 1, "source": "s", "database": "d", "table": "t", "sequence": number}
    return named | {"schema": None, "version": number, "unknown": "dropped", "detail": None}


def test_only_the_restated_history_is_read(place: Place) -> None:
    """Start-up reads the newest restatement and what follows it, however long the history is; only after it is
    committed."""
    recorder, log = Recorder(place.topology), place.open()
    log.recover()
    old = [(f'["change", "s", "d", "t", {n}]', _state(n)) for n in range(50)]
    log.extend(recorder.history(old))
    log.commit(FIRST)
    again = [('["state", "s", "d", "t"]', _state(49)), *((key, None) for key, _ in old)]
    log.restate(recorder.history(again))
    log.abort()
    log = place.open()
    assert log.recover().history == tuple(old)
    log.restate(recorder.history(again[:1]))
    log.commit(FIRST)
    following = ('["change", "s", "d", "t", 60]', _state(60))
    log.extend(recorder.history([following]))
    log.commit(SECOND)
    assert log.history() == (again[0], following)
    assert place.open().recover().history == (again[0], following)


@pytest.mark.integration
@pytest.mark.kafka
def test_kafka_end_offsets_cover_the_commit() -> None:
    """`end_offsets` of a position gives each partition's end after its rows, across restarts."""
    name = f"t_log_{uuid4().hex[:8]}"
    kafka = InKafka(read_topology(topology_text(name), file="t.yml", environ=os.environ))
    ends: list[int] = []
    for count in (2, 0, 3):
        log = kafka.open()
        log.recover()
        for i in range(count):
            log.append(record(kafka, f"k{i}", "v"))
        log.commit(SECOND)
        newest = read_topic(kafka.settings.log.bootstrap_servers, f"{name}.positions", {0})[-1][1]
        assert newest is not None
        ends.append(orjson.loads(newest)["end_offsets"][topic(name)]["0"])
    for log in kafka.logs:
        log.close()
    assert ends == [2, 2, 6]  # the commit marker after the first two records takes an offset


@pytest.mark.integration
@pytest.mark.kafka
@pytest.mark.parametrize("ending", ["committed", "open", "unused"])
def test_a_closed_log_has_no_threads(ending: str) -> None:
    """A capture whose database is away connects again and again. The objects of a failed session refer to each other,
    so its client may not wait until Python collects them."""
    kafka = InKafka(read_topology(topology_text(f"t_log_{uuid4().hex[:8]}"), file="t.yml", environ=os.environ))
    before = client_threads()
    log = kafka.open()
    assert client_threads() > before
    if ending != "unused":
        log.recover()
        log.append(record(kafka, "k", "v"))
    if ending == "committed":
        log.commit(FIRST)
    for _ in range(2):  # it is safe to call at any time
        kafka.logs[0].close()
    assert client_threads() == before


def client_threads() -> int:
    """Return the number of threads of Kafka's clients in this process."""
    names = [task.read_text() for task in Path("/proc/self/task").glob("*/comm")]
    return sum(name.startswith("rdk:") for name in names)


@pytest.mark.integration
@pytest.mark.kafka
def test_kafka_finds_a_position_in_its_old_partition() -> None:
    """A source added before another in the topology moves the other's positions partition; this must not repeat its
    snapshot."""
    name = f"t_log_{uuid4().hex[:8]}"
    before = read_topology(topology_text(name, ("s",)), file="t.yml", environ=os.environ)
    log = KafkaLog(before, before.sources["s"], make_topics(before, before.sources["s"]))
    log.recover()
    log.commit(SECOND)
    log.close()
    after = read_topology(topology_text(name, ("r", "s")), file="t.yml", environ=os.environ)
    moved = KafkaLog(after, after.sources["s"], make_topics(after, after.sources["s"]))
    assert moved.recover().checkpoint == SECOND
    moved.close()


@pytest.mark.integration
@pytest.mark.kafka
def test_partitions_that_are_added_are_refused() -> None:
    """A row's changes stay in one partition: a commit that has used a new one fails, and a topology with the new number
    is refused until the topic is created again."""
    name = f"t_log_{uuid4().hex[:8]}"
    texts = [topology_text(name), topology_text(name).replace("partitions: 1", "partitions: 24")]
    narrow, wide = (read_topology(text, file="t.yml", environ=os.environ) for text in texts)
    made = make_topics(narrow, narrow.sources["s"])
    with closing(KafkaLog(narrow, narrow.sources["s"], made)) as log:
        log.recover()
        log.append(Record(topic=topic(name), key=b"0", value=b"v"))
        log.commit(FIRST)
    add_partitions(narrow.log.brokers, topic(name), 24)
    # a client that knows the new partitions, as a running one does after some minutes
    with closing(KafkaLog(narrow, narrow.sources["s"], made)) as log:
        log.recover()
        log.extend(Record(topic=topic(name), key=b"%d" % key, value=b"v") for key in range(100))
        with pytest.raises(UsageError, match="got more partitions than the 1 that"):
            log.commit(SECOND)
    with pytest.raises(UsageError, match="has 24 partitions, the topology has 1"):
        make_topics(narrow, narrow.sources["s"])
    later = KafkaLog(wide, wide.sources["s"], make_topics(wide, wide.sources["s"]))
    with closing(later), pytest.raises(UsageError, match=r"got more partitions than the 1 that.*delete the topic"):
        later.recover()


@pytest.mark.integration
@pytest.mark.kafka
def test_kafka_partitions_keys_like_other_clients() -> None:
    """A key goes to the partition that Java's and kafka-python's producers would choose."""
    name = f"t_log_{uuid4().hex[:8]}"
    text = topology_text(name).replace("partitions: 1", "partitions: 5")
    topology = read_topology(text, file="t.yml", environ=os.environ)
    log = KafkaLog(topology, topology.sources["s"], make_topics(topology, topology.sources["s"]))
    log.recover()
    keys = [f'{{"id":{i}}}'.encode() for i in range(50)]
    for key in keys:
        log.append(Record(topic=topic(name), key=key, value=b"v"))
    log.commit(FIRST)
    log.close()
    found = {key: p for p in range(5) for key, _ in read_topic(topology.log.bootstrap_servers, topic(name), {p})}
    assert found == {key: (murmur2(key) & 0x7FFFFFFF) % 5 for key in keys}


@pytest.mark.integration
@pytest.mark.kafka
def test_unavailable_kafka_is_retriable() -> None:
    """The capture waits for a broker that does not answer."""
    text = topology_text(f"t_log_{uuid4().hex[:8]}").replace("${TAILORBIRD_PORT_KAFKA:-9092}", "9")
    topology = read_topology(text, file="t.yml", environ={})
    with pytest.raises(Retriable, match=r"127\.0\.0\.1:9"):
        make_topics(topology, topology.sources["s"])
