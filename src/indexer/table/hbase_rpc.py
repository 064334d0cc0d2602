"""Call one server of HBase over its own RPC, for what the Thrift server does not offer."""

from __future__ import annotations

import itertools
import socket
from types import TracebackType
from typing import TypeVar

from google.protobuf.message import Message

from cdc.model.errors import Fatal, Retriable, TailorbirdError
from indexer.peer import wire
from indexer.peer import wire_pb2 as pb

M = TypeVar("M", bound=Message)

_TIMEOUT = 60.0
_UNAVAILABLE = "is HBase running? `tailorbird stack status`"
_PASSING = (
    "PleaseHoldException",
    "ServerNotRunningYetException",
    "NotServingRegionException",
    "RegionMovedException",
    "RegionOpeningException",
    "MasterStoppedException",
    "RegionServerStoppedException",
    "UnknownScannerException",
    "OutOfOrderScannerNextException",
)


class HBaseRpc:
    """One connection to a service (`MasterService`, `ClientService`, `AdminService`) of one server. For one thread.

    `name` is what messages call the server. `reach` (seconds) limits the attempt to connect. Use it as a context
    manager. Raises Retriable if the server does not answer."""

    def __init__(self, host: str, port: int, service: str, *, name: str, reach: float = _TIMEOUT) -> None:
        self._name = name
        self._calls = itertools.count(1)
        self._frames = wire.Frames()
        header = pb.ConnectionHeader(service_name=service)
        header.user_info.effective_user = "tailorbird"
        try:
            self._socket = socket.create_connection((host, port), reach)
            self._socket.settimeout(_TIMEOUT)
            self._socket.sendall(wire.PREAMBLE + wire.frame(header.SerializeToString()))
        except OSError as error:
            raise Retriable(f"{name} at {host}:{port} does not answer: {error}", _UNAVAILABLE) from error

    def __enter__(self) -> HBaseRpc:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def call(self, method: str, request: Message, answer: type[M]) -> M:
        """Call a method and return its answer.

        Raises Retriable if the server becomes unavailable or reports a passing state, and Fatal, with the server's
        message, if it refuses the call."""
        call_id = next(self._calls)
        header = pb.RequestHeader(call_id=call_id, method_name=method, request_param=True)
        try:
            self._socket.sendall(wire.frame(wire.delimited(header), wire.delimited(request)))
            while (received := self._frames.next()) is None:
                data = self._socket.recv(1 << 16)
                if not data:
                    raise ConnectionResetError("connection closed")
                self._frames.feed(data)
        except OSError as error:
            raise Retriable(f"{self._name} became unavailable during {method}: {error}", _UNAVAILABLE) from error
        response, at = wire.read_delimited(received, 0, pb.ResponseHeader)
        if response.HasField("exception"):
            raise _refusal(method, response.exception)
        return wire.read_delimited(received, at, answer)[0]


def _refusal(method: str, reason: pb.ExceptionResponse) -> TailorbirdError:
    first_line = reason.stack_trace.split("\n", 1)[0]
    if reason.exception_class_name.endswith(_PASSING):
        return Retriable(f"HBase is starting or moving regions: {first_line}", "try again in a few seconds")
    return Fatal(f"HBase refused {method}: {first_line or reason.exception_class_name}")
