"""A session handler executes calls in order, and ends the session if anything is inconsistent."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from cdc.compression import zstd
from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.event import Position
from cdc.model.naming import history_topic, schemas_topic
from ingest.fleet.answers import checkpoint_bytes
from ingest.fleet.fleet_pb2 import Commit, Empty, Records
from ingest.fleet.frames import FrameWriter
from ingest.fleet.permits import Permits
from ingest.fleet.wire import MOST
from ingest.gateway.grpc_session import SignalValues
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.capture_interfaces import Checkpoint, Record, SessionLog
from tests.support.nearby_gateway import NearbyGateway

AT = Checkpoint(position=Position(file="f", pos=4, gtid_set="", sequence=0), snapshot="done", ts_ms=1)
TOPIC = "t.s.d.t"


class Log(MemoryLog):
    """The log in memory, as a session handler opens it; `waits` blocks appends."""

    waits = threading.Event()
    waits.set()

    def ensure_topic(self, name: str) -> None:
        """Do nothing: all topics exist."""

    def close(self) -> None:
        """Abort uncommitted records."""
        self.abort()

    def append(self, record: Record) -> None:
        assert self.waits.wait(30)
        super().append(record)


class Signalled:
    """One signal, once."""

    def values(self, start: int | None) -> tuple[list[Mapping[str, Any]], int | None]:
        fresh: Mapping[str, Any] = {"type": "pause-snapshot", "data": {}}
        return ([fresh] if start is None else []), 7

    def close(self) -> None:
        """Do nothing: no connection is open."""


class Source:
    """A source over one broker in memory."""

    name = "s"
    permits = Permits("t", "s", frozenset({TOPIC}), False)

    def __init__(self) -> None:
        self.broker = Broker()

    def log(self) -> SessionLog:
        return Log(self.broker, schemas_topic("t"), history_topic("t"))

    def signals(self) -> SignalValues:
        return Signalled()


@pytest.fixture
def source() -> Source:
    return Source()


@pytest.fixture
def gateway(source: Source) -> Iterator[NearbyGateway]:
    yield (made := NearbyGateway(source))
    for session_handler in made.desks:
        session_handler.join(10)
        assert not session_handler.is_alive(), "a session handler is still running"


@pytest.fixture
def log(gateway: NearbyGateway) -> Iterator[GatewayLog]:
    yield (opened := GatewayLog(gateway, "s"))
    opened.close()


def records(count: int, topic: str = TOPIC) -> list[Record]:
    return [Record(topic, b"%d" % n, b"v") for n in range(count)]


def sent(*pieces: bytes) -> Iterator[Records]:
    for piece in pieces:
        yield Records(frames=zstd.compress(piece), size=len(piece))


def test_a_commit_of_other_records_than_came_is_refused(gateway: NearbyGateway, log: GatewayLog) -> None:
    """A lost message does not advance the position over its rows."""
    log.recover()
    writer = FrameWriter()
    pieces = [*writer.write(records(3)), *writer.rest()]
    for piece in sent(pieces[0]):
        log._channel.report(records=piece)
    with pytest.raises(Retriable, match="4 records were sent, 3 have arrived"):
        log._channel.ask(commit=Commit(records=4, checkpoint=checkpoint_bytes(AT, "s")))
    log.close()
    assert gateway.source.log().recover().checkpoint is None


def test_a_commit_over_half_a_record_is_refused(gateway: NearbyGateway, log: GatewayLog) -> None:
    """It is refused even if the count is correct."""
    log.recover()
    writer = FrameWriter()
    data = b"".join([*writer.write(records(3)), *writer.rest()])
    for piece in sent(data[:-1]):
        log._channel.report(records=piece)
    with pytest.raises(Retriable, match="2 have arrived"):
        log._channel.ask(commit=Commit(records=3, checkpoint=checkpoint_bytes(AT, "s")))


def test_anothers_topic_is_refused_and_reported(gateway: NearbyGateway, log: GatewayLog) -> None:
    """Nothing of that commit is written, and it is audited once."""
    log.recover()
    log.extend([*records(2), *records(1, "t.crm.d.t")])
    with pytest.raises(Fatal, match=r"may not write a record of topic t\.crm\.d\.t"):
        log.commit(AT)
    log.close()
    assert gateway.refused == ["source s may not write a record of topic t.crm.d.t under key b'0'"]
    assert gateway.source.log().recover().checkpoint is None


def test_anothers_topic_is_neither_made_nor_read(gateway: NearbyGateway) -> None:
    """Neither by name nor by search."""
    log = GatewayLog(gateway, "s")
    log.recover()
    log.ensure_topic("t.crm.d.t")
    with pytest.raises(Fatal, match="may not write"):
        log.commit(AT)
    log.close()


def test_a_session_recovers_first_and_once(gateway: NearbyGateway) -> None:
    """Otherwise it would interfere with a predecessor's open commit."""
    first = GatewayLog(gateway, "s")
    with pytest.raises(Fatal, match="must recover first"):
        first.commit(AT)
    second = GatewayLog(gateway, "s")
    second.recover()
    with pytest.raises(Fatal, match="must recover only once"):
        second.recover()
    first.close()
    second.close()


def test_noise_is_refused(gateway: NearbyGateway, log: GatewayLog) -> None:
    """Bytes that are not records, or more of them than a message may have."""
    log.recover()
    log._channel.report(records=Records(frames=b"noise", size=5))
    with pytest.raises(Fatal, match="are not records"):
        log.commit(AT)
    other = GatewayLog(gateway, "s")
    other.recover()
    other._channel.report(records=Records(frames=zstd.compress(b"x" * 300_000), size=300_000))
    with pytest.raises(Fatal, match="300000 bytes"):
        other.commit(AT)
    other.close()


def test_a_decompression_bomb_is_refused(gateway: NearbyGateway, log: GatewayLog) -> None:
    """A small message claims to contain a gigabyte. Its declared length is checked first."""
    log.recover()
    bomb = zstd.compress(bytes(256 * 1024 * 1024))
    assert len(bomb) < 100_000
    log._channel.report(records=Records(frames=bomb, size=200_000))
    with pytest.raises(Fatal, match="are not records"):
        log.commit(AT)


def test_more_records_than_the_gateway_accepts_wait(source: Source, log: GatewayLog) -> None:
    """Appends wait for credit and continue as soon as the log accepts more."""
    log.recover()
    Log.waits.clear()
    big = [Record(TOPIC, b"%d" % n, b"v" * 100_000) for n in range(3 * MOST // 100_000)]
    appending = threading.Thread(target=log.extend, args=(big,))
    appending.start()
    appending.join(0.5)
    assert appending.is_alive(), "nothing blocks it"
    Log.waits.set()
    appending.join(30)
    log.commit(AT)
    assert len(source.broker.records) == len(big)


def test_the_end_of_a_channel_ends_waiting_calls(gateway: NearbyGateway, log: GatewayLog) -> None:
    """The session receives the error of a lost stream at once."""
    log.recover()
    log._channel.end(Retriable("the stream is cut"))
    log.append(records(1)[0])
    with pytest.raises(Retriable, match="the stream is cut"):
        log.commit(AT)
    with pytest.raises(Retriable, match="the stream is cut"):
        log.history()


def test_signals_pass(gateway: NearbyGateway, log: GatewayLog) -> None:
    """The first read waits for the answer, later ones do not."""
    log.recover()
    found, behind = log.read(None)
    assert ([one.type for one in found], behind) == (["pause-snapshot"], 7)
    assert log.read(behind) == ([], 7)


def test_an_unknown_call_is_reported(gateway: NearbyGateway, log: GatewayLog) -> None:
    """A newer agent receives the call that this gateway does not know."""
    log.recover()
    with pytest.raises(Fatal, match="does not know the call"):
        log._channel.ask()


def test_abort_begins_again(source: Source, log: GatewayLog) -> None:
    """Records appended before are dropped, including unsent ones."""
    log.recover()
    log.extend(records(2))
    log.abort()
    log.extend(records(1))
    log.commit(AT)
    assert [record.key for record in source.broker.records] == [b"0"]


def test_an_internal_error_is_reported_to_the_agent() -> None:
    """Otherwise its agent would wait for two minutes without a reason."""

    class Broken(Source):
        def log(self) -> SessionLog:
            raise KeyError("a bug")

    log = GatewayLog(NearbyGateway(Broken()), "s")
    with pytest.raises(Retriable, match="KeyError: see the gateway's log"):
        log.recover()
    log.close()


def test_a_disconnected_session_fences_no_other() -> None:
    """A session handler waited for Kafka longer than its agent. The agent's next session is not fenced."""
    opening, resumes = threading.Event(), threading.Event()

    class Slow(Source):
        def log(self) -> SessionLog:
            opening.set()
            assert resumes.wait(30)
            return super().log()

    source = Slow()
    gateway = NearbyGateway(source)
    log = GatewayLog(gateway, "s")
    log._channel.begin(recover=Empty())
    assert opening.wait(30)
    log._channel.close()
    resumes.set()
    log.close()
    assert not gateway.desks[0].is_alive()
    assert source.broker.epoch == 0


def test_a_usage_error_of_the_gateway_reaches_the_agent() -> None:
    """For example, if a topic has other partitions than the topology: the capture ends with the same message."""

    class Mistaken(Source):
        def log(self) -> SessionLog:
            raise UsageError("topic t has 2 partitions", "correct log.partitions")

    log = GatewayLog(NearbyGateway(Mistaken()), "s")
    with pytest.raises(UsageError, match="2 partitions; correct"):
        log.recover()
    log.close()
