"""A gateway in the test's own process: desks in threads, a lane's messages through their wire format, no socket."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from cdc.model.errors import Retriable
from ingest.fleet.fleet_pb2 import LogCall, LogReply
from ingest.gateway.grpc_session import Desk, Opened
from ingest.gateway.proc_credit import CreditBudget
from ingest.gateway_client.grpc_channel import Lane


@dataclass
class NearbyGateway:
    """Implements `gateway_log.Lanes`; `refused` is what its desks would not do."""

    source: Opened
    refused: list[str] = field(default_factory=list)
    budget: CreditBudget = field(default_factory=CreditBudget)
    desks: list[threading.Thread] = field(default_factory=list)

    def lane(self, source: str, unasked: Callable[[LogReply], None]) -> Lane:
        """See `gateway_log.Lanes`."""
        number = len(self.desks) + 1
        desk = Desk(
            self.source, number, lambda reply: lane.hear(LogReply.FromString(reply.SerializeToString())),
            self.refused.append, self.budget,
        )  # fmt: skip

        def send(call: LogCall) -> None:
            if why := desk.put(LogCall.FromString(call.SerializeToString())):  # as a stream does
                desk.put(None)
                lane.end(Retriable(why))

        lane = Lane(number, send, unasked)
        self.desks.append(threading.Thread(target=desk.run, name=f"desk {source}"))
        self.desks[-1].start()
        return lane

    def leave(self, lane: Lane) -> None:
        """See `gateway_log.Lanes`."""
        self.desks[lane.number - 1].join(30)
