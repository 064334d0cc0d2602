"""A gateway that lies: it speaks the fleet's protocol, returns what a test invents, and keeps all received bytes."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import orjson

from ingest.agent.grpc_agent import FleetAgent
from ingest.fleet.answers import parts_of
from ingest.fleet.catalog import unpacked
from ingest.fleet.fleet_pb2 import (
    FAILED,
    Assign,
    Found,
    FoundRecord,
    Hello,
    LogCall,
    LogReply,
    Records,
    Report,
    RequestType,
    SearchEnd,
    StreamRequest,
    Withdraw,
)
from ingest.fleet.frames import LONGEST, FrameWriter, unzipped, zipped
from ingest.fleet.request_types import typed
from ingest.fleet.wire import GATEWAY_OPTIONS, PROTOCOL, RPC, SERVICE, hello
from ingest.gateway_client.grpc_stream import Credentials, Gateways
from ingest.records.capture_interfaces import Record

CREDIT = 1 << 20
NOTHING: dict[str, Any] = {"checkpoint": None, "history": [], "schemas": [], "behind": []}


@dataclass
class Lies:
    """The false answers of the gateway about one source. `signals` are sent one batch per question.

    `heard` are the messages that its sessions have sent, `frames` their records, decompressed. `commits` and `last` are
    their commits.
    """

    recovered: dict[str, Any] = field(default_factory=lambda: NOTHING)
    history: list[Any] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)
    found: list[tuple[bytes, bytes]] = field(default_factory=list)
    signals: list[list[dict[str, Any]]] = field(default_factory=list)
    heard: bytearray = field(default_factory=bytearray)
    frames: bytearray = field(default_factory=bytearray)
    reports: list[Report] = field(default_factory=list)
    commits: int = 0
    last: bytes = b""
    asked: int = 0

    @property
    def ended(self) -> bool:
        """Return whether the session failed, waits to be tried again, or has nothing to capture."""
        ends = ("waiting:", "no table is captured")
        return self.failed or any(report.reason.startswith(ends) for report in list(self.reports))

    @property
    def failed(self) -> bool:
        """Return whether the agent reported a failure or a refusal."""
        return any(report.progress == FAILED for report in list(self.reports))


class HostileGateway:
    """One gRPC server and the streams that agents opened."""

    def __init__(self, folder: Path) -> None:
        self.sources: dict[str, Lies] = {}
        self.heard, self.lock = bytearray(), threading.Lock()  # everything that belongs to no source
        self.ready = threading.Event()
        self._outgoing: queue.Queue[StreamRequest | object | None] = queue.Queue()
        self._epochs = itertools.count(1)
        self.former = False  # it behaves as a gateway of the previous release, which sets no type of data
        pem = {name: (folder / "gateway" / f"{name}.pem").read_bytes() for name in ("ca", "cert", "key")}
        credentials = grpc.ssl_server_credentials([(pem["key"], pem["cert"])], pem["ca"], require_client_auth=True)
        self._server = grpc.server(ThreadPoolExecutor(4), options=GATEWAY_OPTIONS)
        handler = grpc.stream_stream_rpc_method_handler(
            self._connect, request_deserializer=bytes, response_serializer=StreamRequest.SerializeToString
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {RPC: handler}),))
        self.address = f"127.0.0.1:{self._server.add_secure_port('127.0.0.1:0', credentials)}"
        self._server.start()

    def close(self) -> None:
        """Stop the server."""
        self._outgoing.put(None)
        self._server.stop(0.5).wait(10)

    def send(self, request: StreamRequest, key: RequestType | None = None) -> None:
        """Send any message to the agent, with its type, or the type `key`."""
        if not self.former:
            typed(request)
        if key is not None:
            request.type = key
        self._outgoing.put(request)

    def assign(
        self,
        source: str,
        spec: Any,
        lies: Lies | None = None,
        topology: str = "t",
        version: int = 1,
        key: RequestType | None = None,
    ) -> Lies:
        """Assign a source with any configuration. `spec` is encoded as JSON unless it is bytes."""
        made = self.sources[source] = lies or Lies()
        content = spec if isinstance(spec, bytes) else orjson.dumps(spec)
        assign = Assign(source=source, epoch=next(self._epochs), version=version, spec=content, topology=topology)
        self.send(StreamRequest(assign=assign), key)
        return made

    def withdraw(self, source: str) -> None:
        """Withdraw a source."""
        self.send(StreamRequest(withdraw=Withdraw(source=source, epoch=1 << 40, why="enough")))

    def _connect(self, requests: Iterable[bytes], context: Any) -> Iterator[StreamRequest]:
        channels, end = dict[int, str](), object()

        def read() -> None:
            try:
                for content in requests:
                    self._hear(StreamRequest.FromString(content), content, channels)
            except grpc.RpcError:
                return  # the agent has left
            finally:
                self._outgoing.put(end)  # an agent that closes its stream waits for it

        threading.Thread(target=read, daemon=True).start()
        yield StreamRequest(hello=Hello(protocol=PROTOCOL)) if self.former else hello("hostile")
        while (request := self._outgoing.get()) is not None and request is not end:
            if isinstance(request, StreamRequest):  # not the end of another stream
                yield request

    def _hear(self, request: StreamRequest, content: bytes, channels: dict[int, str]) -> None:
        what = request.WhichOneof("payload")
        if what == "log_call":
            call = request.log_call
            name = channels.setdefault(call.channel, request.header.source)
            self._called(self.sources.setdefault(name, Lies()), call, content)
            return
        with self.lock:
            self.heard += content
            if what == "map_part":
                part = request.map_part
                self.heard += orjson.dumps(unpacked(part.content, "a1", part.connection).to_json())
        if what == "ready":
            self.ready.set()
        elif what == "report" and request.report.source in self.sources:
            lies = self.sources[request.report.source]
            lies.heard += content
            lies.reports.append(request.report)

    def _called(self, lies: Lies, call: LogCall, content: bytes) -> None:
        what = call.WhichOneof("what")
        if what == "records":
            lies.frames += unzipped(call.records.frames, LONGEST)
            self._reply(call, credit=CREDIT)
            return
        lies.heard += content
        if what == "commit":
            lies.commits, lies.last = lies.commits + 1, call.commit.checkpoint
            lies.heard += call.commit.checkpoint
            self._answer(call, None)
        elif what == "recover":
            self._reply(call, credit=CREDIT)
            self._answer(call, lies.recovered)
        elif what == "recover_records":
            self._reply(call, credit=CREDIT)
            self._stored(call, lies.recovered)
            self._answer(call, {key: one for key, one in lies.recovered.items() if key not in ("history", "schemas")})
        elif what == "history_records":
            self._stored(call, {"history": lies.history})
            self._answer(call, None)
        elif what == "signals":
            lies.asked += 1
            if lies.signals:
                self._answer(call, {"values": lies.signals.pop(0), "next": lies.asked})
            elif lies.asked == 1:
                self._answer(call, {"values": [], "next": 0})
        elif what == "search":
            records = [FoundRecord(partition=0, key=key, value=value) for key, value in lies.found]
            self._reply(call, found=Found(search=call.search.number, records=records))
            self._reply(call, search_end=SearchEnd(search=call.search.number, begin={0: 1}))
        elif what in ("history", "kept", "ensure_topic"):
            self._answer(call, {"history": lies.history, "kept": lies.kept}.get(what))

    def _stored(self, call: LogCall, stored: dict[str, Any]) -> None:
        """Send what a test invents as history and schemas. A history that is no list of pairs has keys that are no
        text."""
        records = list[Record]()
        for one in _listed(stored.get("history")):
            pair = one if isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) else None
            key = b"\xff" if pair is None else pair[0].encode(errors="replace")
            value = None if pair is not None and pair[1] is None else orjson.dumps(one if pair is None else pair[1])
            records.append(Record("history", key[:65_000], value))
        records += [Record("schemas", b"", orjson.dumps(one)) for one in _listed(stored.get("schemas"))]
        writer = FrameWriter()
        for piece in itertools.chain(writer.write(records), writer.rest()):
            self._reply(call, records=Records(frames=zipped(piece), size=len(piece)))

    def _answer(self, call: LogCall, answer: Any) -> None:
        for part in parts_of(answer):
            self._reply(call, part=part)

    def _reply(self, call: LogCall, **what: Any) -> None:
        self.send(StreamRequest(log_reply=LogReply(channel=call.channel, call=call.call, **what)))


def wait_until(holds: Callable[[], bool], seconds: float, pause: float = 0.05) -> bool:
    """Wait until a condition holds, at most some seconds. Returns whether it holds."""
    event, turns = threading.Event(), int(seconds / pause)
    return any(holds() or event.wait(pause) for _ in range(turns)) or holds()


@contextmanager
def attending(agent: FleetAgent, gateway: HostileGateway, folder: Path) -> Iterator[FleetAgent]:
    """Let an agent follow the gateway until the block ends. `folder` contains its certificates."""
    stopped = threading.Event()
    streams = Gateways(
        [gateway.address], Credentials.of(folder / "agent"), opened=agent.opened, commanded=agent.commanded
    )
    thread = threading.Thread(target=agent.attend, args=(streams, stopped))
    thread.start()
    try:
        assert gateway.ready.wait(30)
        yield agent
    finally:
        stopped.set()
        streams.close()
        thread.join(60)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
