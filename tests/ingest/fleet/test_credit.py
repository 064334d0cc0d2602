"""A gateway buffers a limited number of bytes of agents' records, even while Kafka is unavailable."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from cdc.model.errors import Retriable
from ingest.fleet.fleet_pb2 import LogCall, MapPart, Search, StreamRequest
from ingest.fleet.frames import PIECE
from ingest.fleet.state import StateRecord
from ingest.fleet.wire import FIRST, MOST
from ingest.gateway.grpc_session import SessionHandler
from ingest.gateway.proc_credit import ChannelCredit, CreditBudget
from ingest.gateway.run_gateway import GatewayRuntime, coordinator_of
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.records.capture_interfaces import Record, SessionLog
from tests.ingest.fleet.test_session_handler import AT, TOPIC, Log, Source
from tests.support.nearby_fleet import NearbyAudit, NearbyTopic, agent_connection
from tests.support.nearby_gateway import NearbyGateway
from tests.support.waiting import wait_for

MIB = 1024 * 1024


def test_a_window_grows_by_use_and_shrinks_without() -> None:
    """It grows up to the maximum if the budget allows. A channel that needs little gives the rest back."""
    budget = CreditBudget(64 * MIB)
    channel, records = ChannelCredit(budget), 0
    assert channel.window == FIRST
    for _ in range(100):
        records += 1
        assert channel.receive(PIECE)
        assert channel.accept(PIECE, records) >= PIECE
        channel.delivered(records)
    assert (channel.window, budget.held) == (MOST, MOST - FIRST)
    for _ in range(60):
        channel.commit()
        records += 1
        assert channel.receive(100_000)
        channel.accept(100_000, records)
        channel.delivered(records)
    assert (channel.window, budget.held) == (FIRST, 0)
    channel.close()
    assert budget.held == 0


def test_a_thousand_channels_share_the_budget() -> None:
    """Windows share half of the budget. Each channel can always send its first bytes. In the end all is given back."""
    budget, chance = CreditBudget(64 * MIB), random.Random(3)
    channels = [ChannelCredit(budget) for _ in range(1000)]
    open_, number = [FIRST] * 1000, [0] * 1000
    for _ in range(20_000):
        one = chance.randrange(1000)
        channel, size = channels[one], chance.randint(1, PIECE)
        assert open_[one] > 0, "it may send at any time"
        assert channel.receive(size)
        number[one] += 1
        open_[one] += channel.accept(size, number[one]) - size
        channel.delivered(number[one])
        if chance.random() < 0.05:
            channel.commit()
        assert sum(channel.window - FIRST for channel in channels) <= budget.held <= 32 * MIB + PIECE
    assert all(size >= FIRST for size in open_)
    for channel in channels:
        channel.close()
    assert budget.held == 0


def test_records_beyond_the_credit_are_detected() -> None:
    """One message may overdraw the credit by at most its own size."""
    channel = ChannelCredit(CreditBudget())
    assert channel.receive(FIRST)
    assert channel.receive(PIECE)
    assert not channel.receive(1)


class Unavailable(Log):
    """A log that accepts records, none of which Kafka confirms until `there` is set."""

    there = threading.Event()
    taken = 0

    def append(self, record: Record) -> None:
        Unavailable.taken += len(record.value or b"")
        super().append(record)

    def undelivered(self, seconds: float = 0.0) -> int:
        return 0 if self.there.wait(seconds) else len(self._pending)


class UnavailableSource(Source):
    def log(self) -> SessionLog:
        return Unavailable(self.broker, "t.schemas", "t.history")


def test_while_kafka_is_unavailable_channels_stay_within_the_budget() -> None:
    """Records in the client's queue count, too. When Kafka is available, all channels continue and nothing is lost."""
    Unavailable.there.clear()
    Unavailable.taken = 0
    budget, channels = CreditBudget(4 * MIB), 6
    places = [NearbyGateway(UnavailableSource(), budget=budget) for _ in range(channels)]
    logs = [GatewayLog(place, "s") for place in places]
    for log in logs:
        log.recover()
    rows = [Record(TOPIC, b"%d" % n, random.Random(n).randbytes(50_000)) for n in range(100)]
    writing = [threading.Thread(target=log.extend, args=(rows,)) for log in logs]
    for thread in writing:
        thread.start()
    most = 4 * MIB + channels * (FIRST + PIECE)

    def stuck() -> bool:
        before = Unavailable.taken
        for thread in writing:
            thread.join(0.1)
        return Unavailable.taken == before > 0

    wait_for(stuck, "it buffers more and more", seconds=20)
    assert all(thread.is_alive() for thread in writing)
    assert Unavailable.taken <= most
    Unavailable.there.set()
    for thread in writing:
        thread.join(20)
    for log in logs:
        log.commit(AT)
        log.close()
    for place in places:
        assert isinstance(place.source, UnavailableSource)
        assert len(place.source.broker.records) == len(rows)
        place.desks[0].join(10)
    assert budget.held == 0


@pytest.mark.parametrize(
    ("what", "call"),
    [
        ("calls", lambda: LogCall(channel=1, search=Search(number=1))),
        ("bytes", lambda: LogCall(channel=1, ensure_topic="x" * 900_000)),
        ("empty records", lambda: LogCall(channel=1, records={"frames": b"x" * 900_000, "size": 1})),
    ],
)
def test_queued_calls_are_limited(what: str, call: Callable[[], LogCall]) -> None:
    """Their number is limited, and their bytes: those received, not those claimed."""
    session_handler = SessionHandler(Source(), 1, lambda reply: None, lambda reported: None, CreditBudget())
    put = [session_handler.put(call()) for _ in range(1100)]
    refused = next(n for n, why in enumerate(put) if why)
    assert refused * call().ByteSize() <= 5 * MIB
    assert refused <= 1024


def test_a_channel_that_sends_more_than_its_credit_ends() -> None:
    """The session receives the reason and starts again."""
    gateway = NearbyGateway(Source())
    log = GatewayLog(gateway, "s")
    log.recover()
    Log.waits.clear()
    try:
        log._channel._credit = 100 * MIB  # more than any gateway grants
        with pytest.raises(Retriable, match="without credit"):
            log.extend([Record(TOPIC, b"%d" % n, random.Random(n).randbytes(200_000)) for n in range(20)])
    finally:
        Log.waits.set()
        log.close()


class Slow(NearbyTopic):
    """A slow topic."""

    resumes = threading.Event()

    def send(self, record: StateRecord) -> None:
        assert self.resumes.wait(30)
        super().send(record)


def test_queued_messages_to_the_coordinator_are_limited() -> None:
    """Their bytes are limited. An agent that sends more loses its stream and reports again."""
    Slow.resumes.clear()
    topic, audit, there = Slow(), NearbyAudit(), agent_connection("a1")
    runtime = GatewayRuntime(coordinator_of("g1#1", "acme", "t", topic, audit), lambda *_: None, audit, topic)
    part = StreamRequest(map_part=MapPart(connection="c", database="d", content=bytes(900_000)))
    for _ in range(60):
        runtime.heard(there, part)
    assert there.ended == ""
    for _ in range(40):
        runtime.heard(there, part)
    assert there.ended == "the gateway is overloaded"
    Slow.resumes.set()
    runtime.close()
