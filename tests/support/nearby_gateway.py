"""A gateway in the test's own process: session handlers in threads, messages in their wire format, no socket."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cdc.model.errors import Retriable
from ingest.fleet.fleet_pb2 import LogCall, LogReply
from ingest.fleet.wire import MESSAGE
from ingest.gateway.grpc_session import ServedSource, SessionHandler
from ingest.gateway.proc_credit import CreditBudget
from ingest.gateway_client.grpc_channel import SessionChannel


@dataclass
class NearbyGateway:
    """Implements `gateway_log.SessionChannels`; `refused` lists the requests that its session handlers refused.

    `takes_parts`: it accepts checkpoints in parts, unlike the previous release. `takes_records`: it sends the history
    as records, unlike that. `sent` are the bytes of each message, `received` those of each reply.
    """

    source: ServedSource
    refused: list[str] = field(default_factory=list)
    budget: CreditBudget = field(default_factory=CreditBudget)
    desks: list[threading.Thread] = field(default_factory=list)
    takes_parts: bool = True
    takes_records: bool = True
    received: list[int] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)

    def channel(self, source: str, unasked: Callable[[LogReply], None]) -> SessionChannel:
        """See `gateway_log.SessionChannels`."""
        number = len(self.desks) + 1

        def reply(message: LogReply) -> None:
            self.received.append(message.ByteSize())
            assert message.ByteSize() < MESSAGE, "gRPC refuses it"
            channel.hear(LogReply.FromString(message.SerializeToString()))

        session_handler = SessionHandler(self.source, number, reply, self.refused.append, self.budget)

        def send(call: LogCall) -> None:
            self.sent.append(call.ByteSize())
            assert call.ByteSize() < MESSAGE, "gRPC refuses it"
            if why := session_handler.put(LogCall.FromString(call.SerializeToString())):  # as a stream does
                session_handler.put(None)
                channel.end(Retriable(why))

        channel = SessionChannel(number, send, unasked)
        channel.takes_parts, channel.takes_records = self.takes_parts, self.takes_records
        self.desks.append(threading.Thread(target=session_handler.run, name=f"session {source}"))
        self.desks[-1].start()
        return channel

    def leave(self, channel: SessionChannel) -> None:
        """See `gateway_log.SessionChannels`."""
        self.desks[channel.number - 1].join(30)
