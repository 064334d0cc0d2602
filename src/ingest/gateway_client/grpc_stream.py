"""The agent's stream to a gateway, over mTLS, with many session channels; implements `gateway_log.SessionChannels`.

A stream is used until it ends. The next session then dials the next address (`Gateways.stream`).
"""

from __future__ import annotations

import itertools
import math
import queue
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import grpc

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from ingest.fleet.fleet_pb2 import Control_Heartbeat, Empty, Header, LogReply, RequestType, StreamRequest, Unsupported
from ingest.fleet.request_types import PARTS, RECORDS, TYPED, accepts_catalog, plugin_key, type_name, typed
from ingest.fleet.wire import AGENT_OPTIONS, METHOD, PROTOCOL, hello
from ingest.gateway_client.grpc_channel import MOST_BYTES, SessionChannel

_TIMEOUT = 15.0  # seconds until the gateway's hello
_FAREWELL = 1.0  # seconds
_BEAT = 3.0  # seconds without a message until a heartbeat is sent, while records are uncommitted
_PATIENCE = 10.0  # seconds until a report is queued
_AGAIN = 1.0  # maximum seconds between attempts; within that time, all sources of the agent share one attempt
_VERSION = version("tailorbird")
_REMEDIES = {
    grpc.StatusCode.UNAUTHENTICATED: "use the certificate or token of an agent of this fleet",
    grpc.StatusCode.PERMISSION_DENIED: "this agent may not capture that source: see the gateway's log",
    grpc.StatusCode.FAILED_PRECONDITION: "update the agent, or the gateway",
    grpc.StatusCode.UNAVAILABLE: "check that the gateway runs there and that its certificate names that host",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Paths of PEM files: the fleet's CA certificate, and either certificate and key of the agent, or its `token`."""

    ca: Path
    certificate: Path
    key: Path
    token: Path | None = None

    @classmethod
    def of(cls, folder: Path) -> Credentials:
        """Return the files in a folder that `tailorbird fleet ca issue` wrote. If it contains a `token`, that is
        used."""
        token = folder / "token"
        return cls(
            ca=folder / "ca.pem", certificate=folder / "cert.pem", key=folder / "key.pem",
            token=token if token.exists() else None,
        )  # fmt: skip

    def channel(self) -> grpc.ChannelCredentials:
        """Return the credentials for a gRPC channel. Raises UsageError if a file cannot be read."""
        if self.token is None:
            return grpc.ssl_channel_credentials(_read(self.ca), _read(self.key), _read(self.certificate))
        bearer = grpc.access_token_call_credentials(_read(self.token).decode(errors="replace").strip())
        return grpc.composite_channel_credentials(grpc.ssl_channel_credentials(_read(self.ca)), bearer)


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "create it with: tailorbird fleet ca issue") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveLimits:
    """Limits of what a gateway can make this process receive: bytes of one answer, and bytes per second of all."""

    answer_bytes: int = MOST_BYTES
    rate: int = 32 * 1024 * 1024


class GrpcStream:
    """One open stream to a gateway. Raises Retriable if the gateway is unavailable or refuses the agent.

    `commanded` receives the gateway's commands.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        commanded: Callable[[StreamRequest], None] | None = None,
        limits: ReceiveLimits | None = None,
    ) -> None:
        self._address, self._commanded, self._limits = address, commanded, limits or ReceiveLimits()
        self._answer_bytes = None if limits is None else limits.answer_bytes  # None: no policy
        self._outgoing: queue.Queue[StreamRequest | None] = queue.Queue(64)
        self._channels: dict[int, SessionChannel] = {}
        self._numbers = itertools.count(1)
        self._greeted = threading.Event()
        self._takes_parts = self._takes_records = False  # as of a session channel
        self._features: frozenset[str] = frozenset()
        self._former = True  # the gateway is of the previous release, which does not set every type
        self._ended: Retriable | None = None
        self._channel = grpc.secure_channel(address, credentials.channel(), options=AGENT_OPTIONS)
        connect = self._channel.stream_stream(
            METHOD, request_serializer=StreamRequest.SerializeToString, response_deserializer=StreamRequest.FromString
        )
        self._outgoing.put(hello(_VERSION))
        self._call = connect(self._requests())
        self._hearing = threading.Thread(target=self._hear, name=f"gateway {address}", daemon=True)
        self._hearing.start()
        if not self._greeted.wait(_TIMEOUT):
            self.close()
            raise Retriable(f"the gateway at {address} does not answer", _REMEDIES[grpc.StatusCode.UNAVAILABLE])
        if self._ended is not None:
            self.close()
            raise self._ended

    @property
    def open(self) -> bool:
        """Return whether the stream has not ended, so that session channels can be opened."""
        return self._ended is None

    def accepts_catalog(self, key: RequestType) -> bool:
        """Return whether the gateway accepts catalogs of type `key`. Only those of MySQL are accepted by all."""
        return accepts_catalog(self._features, key)

    def report(self, request: StreamRequest) -> None:
        """Send a message that belongs to no session channel. Raises Retriable if the stream has ended.

        The stream ends if the gateway reads nothing for ten seconds, because callers may hold locks.
        """
        self._send(request, most=_PATIENCE)

    def channel(self, source: str, unasked: Callable[[LogReply], None], epoch: int = 0) -> SessionChannel:
        """Implements `SessionChannels.channel`. `epoch` is that of the lease, or 0 without a lease."""
        header = Header(source=source, epoch=epoch)
        session_channel = SessionChannel(
            next(self._numbers), lambda call: self._send(StreamRequest(header=header, log_call=call)), unasked,
            self._answer_bytes,
        )  # fmt: skip
        session_channel.takes_parts, session_channel.takes_records = self._takes_parts, self._takes_records
        self._channels[session_channel.number] = session_channel
        if self._ended is not None:
            session_channel.end(self._ended)
        return session_channel

    def leave(self, session_channel: SessionChannel) -> None:
        """Drop a session channel, so that later replies to it are ignored. Implements `SessionChannels`."""
        self._channels.pop(session_channel.number, None)

    def close(self) -> None:
        """End the stream and all its session channels."""
        self._end(Retriable(f"the stream to {self._address} was closed"))
        if self._hearing is not threading.current_thread():
            self._hearing.join(_FAREWELL)  # wait: a reachable gateway then ends the stream, too
        self._call.cancel()
        self._channel.close()

    def _requests(self) -> Iterator[StreamRequest]:
        while self._ended is None or not self._outgoing.empty():
            try:
                request = self._outgoing.get(timeout=_BEAT)
            except queue.Empty:
                if any(session_channel.uncommitted for session_channel in list(self._channels.values())):
                    yield typed(StreamRequest(heartbeat=Empty()))
                continue
            if request is None:
                return
            yield request

    def _send(self, request: StreamRequest, most: float = math.inf) -> None:
        """Queue a message. If that is not possible within `most` seconds, end the stream."""
        due = time.monotonic() + most
        while self._ended is None:
            with suppress(queue.Full):
                self._outgoing.put(typed(request), timeout=min(1.0, max(0.0, due - time.monotonic())))
                return
            if time.monotonic() >= due:
                self._unread()
        raise self._ended

    def _unread(self) -> None:
        self._end(Retriable(f"the gateway at {self._address} reads nothing"))

    def _hear(self) -> None:
        try:
            begun, received = time.monotonic(), 0
            for reply in self._call:
                if self._ended is None:  # otherwise only wait until the gateway has read the last messages
                    self._one(reply)
                received += reply.ByteSize()
                if received >= self._limits.rate:  # do not read on: then the gateway cannot send on
                    time.sleep(max(0.0, begun + received / self._limits.rate - time.monotonic()))
                    begun, received = time.monotonic(), 0
            self._end(Retriable(f"the gateway at {self._address} ended the stream"))
        except grpc.RpcError as error:
            hint = _REMEDIES.get(error.code(), "")
            self._end(Retriable(f"gateway at {self._address}: {error.details()}", hint, retry_after=2.0))
        except BaseException as error:  # the callers that wait for an answer raise the error
            self._end(Retriable(f"gateway at {self._address}: {error!r}"))
            raise

    def _one(self, reply: StreamRequest) -> None:
        what = reply.WhichOneof("payload")
        try:
            reply.type = plugin_key(reply, former=self._former)
        except ValueError as error:
            self._refuse(reply, str(error))
            return
        if what == "hello":
            self._former = TYPED not in reply.hello.features
            self._takes_parts = PARTS in reply.hello.features
            self._takes_records = RECORDS in reply.hello.features
            self._features = frozenset(reply.hello.features)
            if reply.hello.protocol != PROTOCOL:
                self._end(Retriable(f"the gateway uses protocol {reply.hello.protocol}", "update the agent"))
            self._greeted.set()
        elif what == "log_reply":
            session_channel = self._channels.get(reply.log_reply.channel)
            if session_channel is not None:
                session_channel.hear(reply.log_reply)
        elif what in ("assign", "withdraw") and self._commanded is not None:
            self._commanded(reply)
        elif what == "unsupported" and reply.unsupported.type == Control_Heartbeat:
            return  # an older gateway, which needs no heartbeats
        elif what == "unsupported":
            self._end(Retriable(f"the gateway does not know {reply.unsupported.what}", "update the gateway"))
        else:
            try:  # this thread must not wait: it also receives what makes room
                self._outgoing.put_nowait(_unsupported(reply, f"a message of type {type_name(reply.type)}"))
            except queue.Full:
                self._unread()

    def _refuse(self, reply: StreamRequest, why: str) -> None:
        """Refuse a mislabelled message: report it to the gateway, which audits such reports, and end the stream."""
        with suppress(queue.Full):
            self._outgoing.put_nowait(_unsupported(reply, why))
        self._end(Retriable(f"the gateway at {self._address} sent {why}", "update the agent, or the gateway"))

    def _end(self, error: Retriable) -> None:
        self._ended = self._ended or error
        for session_channel in list(self._channels.values()):
            session_channel.end(self._ended)
        self._greeted.set()
        with suppress(queue.Full):
            self._outgoing.put_nowait(None)


def _unsupported(reply: StreamRequest, why: str) -> StreamRequest:
    return StreamRequest(type=reply.type, unsupported=Unsupported(type=reply.type, what=why))


class Gateways:
    """The gateways that an agent may dial; at most one stream is open.

    `opened` is called with each new stream before its use. `commanded` receives the commands of its gateway. `limits`
    apply to the next stream.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        credentials: Credentials,
        *,
        opened: Callable[[GrpcStream], None] = lambda stream: None,
        commanded: Callable[[StreamRequest], None] | None = None,
        limits: ReceiveLimits | None = None,
    ) -> None:
        self._opened, self._commanded, self.limits = opened, commanded, limits
        self._addresses = itertools.cycle(addresses)
        self._credentials = credentials
        self._stream: GrpcStream | None = None
        # error of the last attempt, which all sources get until the time `_again`
        self._failed: Retriable | None = None
        self._again = 0.0
        self._lock = threading.Lock()

    def stream(self) -> GrpcStream:
        """Return the open stream, or dial the next address. Raises Retriable if no gateway answers there.

        For up to a second after a failed attempt, it does not dial, but raises the same error again."""
        with self._lock:
            if self._stream is None or not self._stream.open:
                if self._failed is not None and time.monotonic() < self._again:
                    raise Retriable(self._failed.message, self._failed.hint, retry_after=self._failed.retry_after)
                self.close()
                try:
                    self._stream = self._dialled()
                except Retriable as error:
                    self._failed, self._again = error, time.monotonic() + _AGAIN * random.uniform(0.5, 1.0)
                    raise
            return self._stream

    def _dialled(self) -> GrpcStream:
        stream = GrpcStream(next(self._addresses), self._credentials, self._commanded, self.limits)
        try:
            self._opened(stream)
        except BaseException:
            stream.close()  # close the connection
            raise
        return stream

    def close(self) -> None:
        """End the stream."""
        stream, self._stream = self._stream, None
        if stream is not None:
            with suppress(TailorbirdError):
                stream.close()
