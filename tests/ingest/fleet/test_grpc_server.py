"""The gRPC server on a real socket: sessions, agent connections and unknown messages.

For refused input see test_bad_input.py.
"""

from __future__ import annotations

import itertools
import queue
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import grpc
import pytest
import structlog

from cdc.model.errors import Retriable
from ingest.fleet.fleet_pb2 import (
    Control_Map,
    Control_MSSQLClient,
    Control_Syslog,
    Data_Log,
    Empty,
    Header,
    Hello,
    LogCall,
    MapPart,
    MapPlace,
    Ready,
    Report,
    StreamRequest,
    Withdraw,
)
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.request_types import typed
from ingest.fleet.wire import MESSAGE, METHOD, PROTOCOL, hello
from ingest.gateway import agent_use, grpc_server, grpc_streams
from ingest.gateway.agent_use import AgentUse
from ingest.gateway.gateway_interfaces import AgentConnection
from ingest.gateway.grpc_session import ServedSource
from ingest.gateway_client import grpc_stream
from ingest.gateway_client.gateway_log import GatewayLog
from ingest.gateway_client.grpc_stream import Credentials, Gateways, GrpcStream
from ingest.records.capture_interfaces import Record
from ingest.records.findings import Search
from tailorbird.web.fleet.file_ca import init, issue
from tests.ingest.fleet.test_session_handler import AT, TOPIC, Log, Source, records
from tests.support.gateways import TENANT, certificates, server_open
from tests.support.waiting import wait_for

pytestmark = pytest.mark.timeout(60)


class Served:
    """One source for every agent of the tenant."""

    def __init__(self) -> None:
        self.opened = Source()
        self.lines: list[Mapping[str, Any]] = []
        self.said: queue.Queue[tuple[str, AgentConnection, StreamRequest | None]] = queue.Queue()

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> ServedSource | None:
        return self.opened if (agent.tenant, name) == (TENANT, "s") else None

    def serves(self, agent: FleetIdentity) -> bool:
        return True

    def revoked(self, agent: FleetIdentity, serial: str) -> bool:
        return False

    def bearer(self, token: str) -> FleetIdentity | str:
        return "no such token"

    def joined(self, agent_connection: AgentConnection, request: StreamRequest, version: str) -> None:
        self.said.put(("joined", agent_connection, request))

    def heard(self, agent_connection: AgentConnection, request: StreamRequest) -> None:
        self.said.put(("heard", agent_connection, request))

    def left(self, agent_connection: AgentConnection) -> None:
        self.said.put(("left", agent_connection, None))

    def refused(self, said: Mapping[str, Any], agent: FleetIdentity | None) -> None:
        self.lines.append(said)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificates(tmp_path_factory.mktemp("fleet"))


@pytest.fixture(scope="module")
def served() -> Served:
    return Served()


@pytest.fixture(scope="module")
def address(folder: Path, served: Served) -> Iterator[str]:
    structlog.reset_defaults()
    with server_open(served, folder) as address:
        GrpcStream(address, Credentials.of(folder / "agent")).close()  # it serves
        yield address


def written(request: StreamRequest) -> bytes:
    """Return the bytes of a message with its type."""
    return typed(request).SerializeToString()


def speak(address: str, credentials: grpc.ChannelCredentials, *requests: StreamRequest) -> list[StreamRequest]:
    """Return the gateway's replies to an arbitrary client. Raises the error with which it refused the client."""
    with grpc.secure_channel(address, credentials) as channel:
        outgoing: queue.Queue[StreamRequest | None] = queue.Queue()
        for request in requests:
            outgoing.put(request)
        call = channel.stream_stream(
            METHOD, request_serializer=written, response_deserializer=StreamRequest.FromString
        )(iter(outgoing.get, None), timeout=20)
        heard = list[StreamRequest]()
        for reply in call:
            heard.append(reply)
            if len(heard) == len(requests):
                break
        outgoing.put(None)
        return heard


def test_a_session_over_a_socket(address: str, folder: Path, served: Served) -> None:
    """Recover, append megabytes, commit and search them, over TLS and the event loop."""
    stream = GrpcStream(address, Credentials.of(folder / "agent"))
    log = GatewayLog(stream, "s")
    log.recover()
    log.extend([record._replace(value=b"x" * 40_000) for record in records(300)])
    log.commit(AT)
    log.close()
    again = GatewayLog(stream, "s")
    assert again.recover().checkpoint == AT
    again.close()
    stream.close()
    assert len(served.opened.broker.records) == 300
    served.opened.broker.records.clear()


class Heard(Search):
    """Keeps every record that it sees; with `fails` it raises at the first one."""

    def __init__(self, topic: str, *, fails: bool = False) -> None:
        self.records, self._fails = list[tuple[bytes, bytes | None]](), fails
        super().__init__(topic, (), (), 0)

    def see(self, partition: int, key: bytes, value: bytes | None) -> None:
        if self._fails:
            raise ValueError("internal error")
        self.records.append((key, value))


def test_large_records_are_searched(address: str, folder: Path, served: Served) -> None:
    """A record that is too long for a message is sent in parts.

    If the search itself fails, only the search receives the error. The stream, which other sources share, continues.
    """
    sizes = [10, 2 * MESSAGE, 262_144, 0, 3 * MESSAGE + 7, 800_000, 300_000]
    reported: list[tuple[bytes, bytes | None]] = [(b"%d" % n, b"x" * size) for n, size in enumerate(sizes)]
    reported.insert(3, (b"gone", None))
    served.opened.broker.records[:] = [Record(TOPIC, key, value) for key, value in reported]
    stream = GrpcStream(address, Credentials.of(folder / "agent"))
    log = GatewayLog(stream, "s")
    log.recover()
    heard, failing = Heard(TOPIC), Heard(TOPIC, fails=True)
    for search in (failing, heard):
        log.search(search)
        wait_for(lambda: search.done or search.failed is not None, "the search does not end")  # noqa: B023
    assert (heard.failed, heard.records == reported) == (None, True)
    assert repr(failing.failed) == "ValueError('internal error')"
    log.commit(AT)
    assert stream.open
    log.close()
    stream.close()
    served.opened.broker.records.clear()


def test_a_gateway_of_another_fleet_is_not_trusted(address: str, tmp_path: Path) -> None:
    """An agent sends it nothing."""
    init(tmp_path / "authority", TENANT)
    issue(tmp_path / "authority", FleetIdentity(TENANT, "agents", "a1"), tmp_path / "agent")
    with pytest.raises(Retriable, match="check that the gateway runs there"):
        GrpcStream(address, Credentials.of(tmp_path / "agent"))


def test_only_a_session_beyond_the_limit_fails(
    address: str, folder: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other sessions of the stream continue. When one ends, a new one is accepted."""
    monkeypatch.setattr(grpc_streams, "_CHANNELS", 2)
    stream = GrpcStream(address, Credentials.of(folder / "agent"))
    logs = [GatewayLog(stream, "s") for _ in range(2)]
    for log in logs:
        log.recover()
    lines = len(served.lines)
    late = GatewayLog(stream, "s")
    with pytest.raises(Retriable, match="may run 2 sessions"):
        late.recover()
    assert len(served.lines) == lines + 1
    logs[-1].commit(AT)
    logs[0].close()
    again = GatewayLog(stream, "s")
    again.recover()
    assert stream.open
    stream.close()


def test_sessions_of_all_streams_of_an_agent_are_limited(
    address: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each has threads in the gateway. When one ends, a new one is accepted, on any stream."""
    monkeypatch.setattr(agent_use, "SESSIONS", 2)
    streams = [GrpcStream(address, Credentials.of(folder / "agent")) for _ in range(3)]
    logs = [GatewayLog(stream, "s") for stream in streams]
    for log in logs[:2]:
        log.recover()
    with pytest.raises(Retriable, match="sessions on all of its streams"):
        logs[2].recover()
    logs[0].close()

    def accepted() -> bool:
        with suppress(Retriable):
            GatewayLog(streams[2], "s").recover()
            return True
        return False

    wait_for(accepted, "the ended session still counts")
    for stream in streams:
        assert stream.open
        stream.close()


def test_messages_of_all_streams_of_an_agent_are_limited() -> None:
    """Sixty-four streams may not send sixty-four times as much as one."""
    use = AgentUse()
    assert sum(use.may_send(1000.0) for _ in range(5000)) == 2000
    assert sum(use.may_send(1001.0) for _ in range(5000)) == 200


def test_a_stream_that_fails_at_its_start_is_closed(address: str, folder: Path) -> None:
    """It broke while its agent announced itself. Its connection is closed."""
    made = list[GrpcStream]()

    def opened(stream: GrpcStream) -> None:
        made.append(stream)
        raise Retriable("it broke")

    gateways = Gateways([address], Credentials.of(folder / "agent"), opened=opened)
    with pytest.raises(Retriable, match="it broke"):
        gateways.stream()
    assert not made[0].open


def test_sources_dial_together(folder: Path) -> None:
    """While no gateway is reachable, fifty sources of a host share the attempts to connect."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        no_one = f"127.0.0.1:{server.getsockname()[1]}"
    tried = list[str]()

    class Counted(itertools.cycle):  # type: ignore[type-arg]
        def __next__(self) -> str:
            tried.append(no_one)
            return no_one

    gateways = Gateways([no_one], Credentials.of(folder / "agent"))
    gateways._addresses = Counted([no_one])
    began = time.monotonic()
    for _ in range(50):
        with pytest.raises(Retriable, match="check that the gateway runs there"):
            gateways.stream()
    assert len(tried) <= 2 + (time.monotonic() - began) / 0.5


def test_an_agent_has_so_many_streams_at_most(address: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each stream costs threads and memory. The existing ones continue."""
    monkeypatch.setattr(grpc_server, "_STREAMS", 1)
    stream = GrpcStream(address, Credentials.of(folder / "agent"))
    with pytest.raises(Retriable, match="more than 1 streams of one agent"):
        GrpcStream(address, Credentials.of(folder / "agent"))
    assert stream.open
    stream.close()


def test_an_unknown_type_is_answered_and_the_stream_continues(address: str, folder: Path) -> None:
    """A newer agent receives the answer and may continue without that feature."""
    credentials = Credentials.of(folder / "agent").channel()
    heard = speak(
        address, credentials, hello("9"), StreamRequest(type=Control_MSSQLClient), StreamRequest(type=Control_Syslog)
    )
    assert [reply.WhichOneof("payload") for reply in heard] == ["hello", "unsupported", "unsupported"]
    assert [reply.unsupported.type for reply in heard[1:]] == [17, 12]


def test_an_agent_of_the_previous_release_is_served(address: str, folder: Path, served: Served) -> None:
    """Its first message has no feature `types`, and its data the type 0. What it labels otherwise is refused."""
    credentials = Credentials.of(folder / "agent").channel()
    header, call = Header(source="s"), LogCall(channel=1, call=1, recover=Empty())
    part = MapPart(connection="c", database="d", content=b"x", last=True)
    with grpc.secure_channel(address, credentials) as channel:
        said = queue.Queue[StreamRequest]()
        connect = channel.stream_stream(
            METHOD, request_serializer=StreamRequest.SerializeToString, response_deserializer=StreamRequest.FromString
        )
        replies = connect(iter(said.get, None), timeout=20)
        for one in (
            StreamRequest(hello=Hello(protocol=PROTOCOL, version="0.9")),
            StreamRequest(ready=Ready(places=[MapPlace(connection="c", database="d")])),
            StreamRequest(type=Control_Map, map_part=part),
            StreamRequest(header=header, log_call=call),
        ):
            said.put(one)
        heard = [next(replies)]
        while not heard[-1].log_reply.HasField("part"):
            heard.append(next(replies))
        assert {reply.type for reply in heard[1:]} == {Data_Log}
        assert [served.said.get(timeout=10)[0] for _ in range(2)] == ["joined", "heard"]
        said.put(StreamRequest(type=Control_MSSQLClient, header=header, log_call=call))
        with pytest.raises(grpc.RpcError) as refused:
            next(replies)
    assert "Control_MSSQLClient (17) contains log_call" in str(refused.value.details())
    assert served.said.get(timeout=10)[0] == "left"


def test_a_connection_is_commanded_and_ended(address: str, folder: Path, served: Served) -> None:
    """The coordinator's commands are sent, a withdrawn session channel ends, and an ended stream reports the reason."""
    said, heard = queue.Queue[StreamRequest](), list[StreamRequest]()
    with grpc.secure_channel(address, Credentials.of(folder / "agent").channel()) as channel:
        call = channel.stream_stream(
            METHOD, request_serializer=written, response_deserializer=StreamRequest.FromString
        )(iter(said.get, None), timeout=30)
        for one in (
            hello("9"),
            StreamRequest(ready=Ready(labels={"site": "x"})),
            StreamRequest(report=Report(source="s")),
            StreamRequest(header=Header(source="s"), log_call=LogCall(channel=1, call=1, recover=Empty())),
        ):
            said.put(one)
        while not (heard and heard[-1].HasField("log_reply")):
            heard.append(next(call))
        what, agent_connection, request = served.said.get(timeout=10)
        assert request is not None
        assert (what, agent_connection.agent.name, dict(request.ready.labels)) == ("joined", "a1", {"site": "x"})
        assert served.said.get(timeout=10)[0] == "heard"
        agent_connection.send(StreamRequest(withdraw=Withdraw(source="s", epoch=1, why="stopped")))
        assert next(call).withdraw.why == "stopped"
        assert "was withdrawn" in next(call).log_reply.failure.message, "its session receives it at the next call"
        said.put(StreamRequest(header=Header(source="s"), log_call=LogCall(channel=1, call=2, history=Empty())))
        assert "was withdrawn" in next(call).log_reply.failure.message, "the session handler still exists"
        agent_connection.end("drained")
        with pytest.raises(grpc.RpcError) as ended:
            next(call)
    assert (ended.value.code(), ended.value.details()) == (grpc.StatusCode.UNAVAILABLE, "drained")
    assert served.said.get(timeout=10)[:2] == ("left", agent_connection)


def test_a_session_that_waits_for_credit_is_notified_of_its_end(address: str, folder: Path, served: Served) -> None:
    """It sends no call that could be answered. Without the notice, it and its successor would wait for two minutes."""
    stream = GrpcStream(address, Credentials.of(folder / "agent"), lambda command: None)
    stream.report(StreamRequest(ready=Ready()))
    what, agent_connection, _ = served.said.get(timeout=10)
    assert what == "joined"
    log, failed = GatewayLog(stream, "s"), list[Retriable]()
    log.recover()

    def append() -> None:
        try:
            log.extend(record._replace(value=b"x" * 100_000) for record in records(100))
        except Retriable as error:
            failed.append(error)

    Log.waits.clear()
    try:
        appending = threading.Thread(target=append)
        appending.start()
        wait_for(lambda: log._channel._credit <= 0, "it has credit for everything", seconds=20)
        agent_connection.send(StreamRequest(withdraw=Withdraw(source="s", epoch=1, why="another agent has it")))
        appending.join(20)
        assert not appending.is_alive(), "it was not notified"
    finally:
        Log.waits.set()
    assert [error.message for error in failed] == ["source s was withdrawn"]
    assert stream.open
    log.close()
    stream.close()
    assert served.said.get(timeout=10)[0] == "left"


@pytest.mark.long
def test_a_silent_agent_leaves_no_commit_open(
    address: str, folder: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers would otherwise wait for the transaction timeout of a suspended agent.

    A running agent sends heartbeats, however long its commit takes. Agents without uncommitted records need not.
    """
    looks, silent = list[object](), grpc_streams.AgentStream.check_silence

    def look(stream: grpc_streams.AgentStream) -> None:
        looks.append(stream)
        silent(stream)

    monkeypatch.setattr(grpc_streams.AgentStream, "check_silence", look)
    monkeypatch.setattr(grpc_server, "_WATCH", 0.05)
    monkeypatch.setattr(grpc_stream, "_BEAT", 0.05)
    given_up = threading.Event()

    def close(log: Log) -> None:
        log.abort()
        given_up.set()

    monkeypatch.setattr(Log, "close", close)
    stream = GrpcStream(address, Credentials.of(folder / "agent"))
    log = GatewayLog(stream, "s")

    def looked_at(often: int) -> None:
        due = len(looks) + often
        wait_for(lambda: len(looks) >= due, "nobody looks", seconds=20)

    log.recover()
    log.extend(records(5))
    log._flush()
    looked_at(40)
    log.commit(AT)
    monkeypatch.setattr(grpc_stream, "_BEAT", 60.0)
    looked_at(40)
    log.commit(AT)
    log.extend(records(5))
    log._flush()
    assert given_up.wait(20), "its commit stays open"
    with pytest.raises(Retriable, match="the agent was silent for 10 s"):
        log.commit(AT)
    log.close()
    assert stream.open
    stream.close()
    assert len(served.opened.broker.records) == 5
    served.opened.broker.records.clear()


def test_messages_of_an_unregistered_agent_are_unsupported(address: str, folder: Path) -> None:
    """The agent receives the answer that they are unsupported."""
    credentials = Credentials.of(folder / "agent").channel()
    heard = speak(address, credentials, hello("9"), StreamRequest(report=Report(source="s")))
    assert heard[1].WhichOneof("payload") == "unsupported"


def test_a_command_that_an_agent_does_not_know_ends_nothing(
    address: str, folder: Path, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers so, and the stream continues without an endless exchange of answers."""
    counted, count = threading.Event(), grpc_streams.AgentStream._count

    async def noted(stream: grpc_streams.AgentStream) -> None:
        counted.set()
        await count(stream)

    monkeypatch.setattr(grpc_streams.AgentStream, "_count", noted)
    stream = GrpcStream(address, Credentials.of(folder / "agent"))
    stream.report(StreamRequest(ready=Ready()))
    _, agent_connection, _ = served.said.get(timeout=10)
    agent_connection.send(StreamRequest(withdraw=Withdraw(source="other", epoch=1, why="stopped")))
    log = GatewayLog(stream, "s")
    assert counted.wait(20), "its answer was answered"
    refused = "the agent refused 'a message of type Control_Lease (101)'"
    wait_for(lambda: refused in [line.get("why") for line in served.lines], "the refusal is audited", 20)
    log.recover()
    log.commit(AT)
    assert stream.open
    log.close()
    stream.close()
    assert served.said.get(timeout=10)[0] == "left"
