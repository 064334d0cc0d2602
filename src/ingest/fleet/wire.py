"""Name and limits of the gRPC stream between agent and gateway, used by both."""

from __future__ import annotations

from ingest.fleet.fleet_pb2 import Header, Hello, StreamRequest
from ingest.fleet.request_types import FEATURES, typed

METHOD = "/tailorbird.fleet.v1.Fleet/Connect"
SERVICE, RPC = METHOD.split("/")[1:]
PROTOCOL = 1
FIRST = 256 * 1024  # bytes of records that a session channel may send before it receives credit
MOST = 4 * 1024 * 1024  # bytes of a session channel's records that may be in flight
MESSAGE = 1024 * 1024  # bytes; each end refuses a longer one
_PING_MS, _PONG_MS = 20_000, 10_000

# a ping every 20 s, also on an idle stream, so that a broken connection is noticed within half a minute
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
    # with the default, the server would treat the agent's pings as abuse and close the connection
    ("grpc.http2.min_recv_ping_interval_without_data_ms", _PING_MS // 2),
    ("grpc.http2.min_ping_interval_without_data_ms", _PING_MS // 2),
    # a client that does not complete the handshake, or calls nothing, is disconnected
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),
    ("grpc.so_reuseport", 0),  # a second gateway on the same port must fail
)


def hello(version: str, tenant: str = "", agent: str = "") -> StreamRequest:
    """Return the first message that either side sends."""
    first = Hello(protocol=PROTOCOL, version=version, features=FEATURES)
    return typed(StreamRequest(header=Header(tenant=tenant, agent=agent), hello=first))
