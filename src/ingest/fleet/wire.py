"""The stream's name and limits, the same at both ends; pure."""

from __future__ import annotations

from ingest.fleet.fleet_pb2 import Header, Hello, StreamRequest

METHOD = "/tailorbird.fleet.v1.Fleet/Connect"
SERVICE, RPC = METHOD.split("/")[1:]
PROTOCOL = 1
FIRST = 256 * 1024  # bytes of records that a lane may send before it is given credit
MOST = 4 * 1024 * 1024  # bytes of a lane's records that may be on their way at a time
MESSAGE = 1024 * 1024  # bytes; each end refuses a longer one
_PING_MS, _PONG_MS = 20_000, 10_000

# a ping every 20 s, also while nothing is under way: a stream that is cut in silence ends within half a minute
AGENT_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE),
    ("grpc.max_send_message_length", MESSAGE),
    ("grpc.keepalive_time_ms", _PING_MS),
    ("grpc.keepalive_timeout_ms", _PONG_MS),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
GATEWAY_OPTIONS = (
    *AGENT_OPTIONS,
    # else it takes an agent's pings for an attack, and hangs up
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_MS // 2),
    ("grpc.http2.min_ping_interval_without_data_ms", _PING_MS // 2),
    ("grpc.so_reuseport", 0),  # a second gateway on one port is a mistake
)


def hello(version: str, tenant: str = "", agent: str = "") -> StreamRequest:
    """The first message of either side."""
    return StreamRequest(header=Header(tenant=tenant, agent=agent), hello=Hello(protocol=PROTOCOL, version=version))
