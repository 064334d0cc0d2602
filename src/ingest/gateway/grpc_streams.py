"""One stream of one agent, as the gateway has it: its lanes, and its seat where it wants to be commanded.

One event loop has all streams and never waits for Kafka: desks do, in a thread for each lane that is in use, and the
steward, which commands the agents that want to be commanded. What it says goes before the desks' answers.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, NoReturn, Protocol

import grpc
import structlog

from cdc.model.errors import Retriable
from ingest.fleet.answers import failure_of
from ingest.fleet.fleet_pb2 import Failure, LogReply, StreamRequest, Unsupported
from ingest.fleet.identity import FleetIdentity
from ingest.fleet.improper import improper
from ingest.fleet.wire import MESSAGE
from ingest.gateway.gateway_interfaces import AgentConnection
from ingest.gateway.grpc_session import Opened, SessionHandler
from ingest.gateway.proc_credit import CreditBudget

_WAITING = 1024 * 1024  # bytes of answers that an agent has not taken yet; beyond, whoever answers waits
_CHANNELS = 64  # of one stream
# of the steward's words, what an agent has not taken: it is full, and it takes nothing; bytes, and how many
_FULL, _UNSENT, _UNSENT_WORDS = 4 * 1024 * 1024, 32 * 1024 * 1024, 1000
# of an agent's words to the steward: what it may say at once, and a second
_SAYS, _SAYS_PER_SECOND = 500.0, 50.0
_COMMAND, _ANSWER = 0, 1  # what is sent first
_HEARD = frozenset({"report", "map_part"})
_ONLY_COUNTED = frozenset({"heartbeat", "unsupported"})  # an answer to what it does not know would have no end
_SILENT = 10  # looks, one a second; agents say every 3 s that they are there
_UNKNOWN = 16  # types of one stream's that the audit tells of
_BROKEN = 0.1  # seconds in which gRPC tells that a stream has not ended but broken
_BROKE_OFF = f"the agent went away without a word, or sent more than {MESSAGE} bytes at once"

log = structlog.get_logger()


class Fleet(Protocol):
    """Whom the gateway serves. Called in the event loop: nothing here waits."""

    def serves(self, agent: FleetIdentity) -> bool:
        """Whether its tenant is one of the gateway's."""

    def source(self, agent: FleetIdentity, name: str, epoch: int) -> Opened | None:
        """A source that an agent may capture, under a lease (0: under none); None for any other."""

    def revoked(self, agent: FleetIdentity, serial: str) -> bool:
        """Whether a certificate of an agent's counts no more."""

    def bearer(self, token: str) -> FleetIdentity | str:
        """The agent whose token somebody shows, or why it is none."""

    def joined(self, agent_connection: AgentConnection, request: StreamRequest, version: str) -> None:
        """An agent wants to be commanded; `request` holds its `ready`."""

    def heard(self, agent_connection: AgentConnection, request: StreamRequest) -> None:
        """What such an agent tells."""

    def left(self, agent_connection: AgentConnection) -> None:
        """Its stream has ended."""

    def refused(self, said: Mapping[str, Any], agent: FleetIdentity | None) -> None:
        """What was not done, for the audit; by an agent, or by nobody that is known."""


async def turned_away(
    fleet: Fleet, context: Any, code: grpc.StatusCode, why: str, agent: FleetIdentity | None
) -> NoReturn:
    """Tell why a stream ends, once in the audit and once to the peer; raises."""
    who = agent.uri if agent else None
    log.warning("turned away", peer=context.peer(), agent=who, why=why, code=code.name)
    fleet.refused({"what": "dial", "who": who, "from": context.peer(), "outcome": "turned away", "why": why}, agent)
    await context.abort(code, why)
    raise AssertionError("abort raises")


class AgentStream:
    """The lanes of one stream; and the agent's seat (`interfaces.AgentConnection`), where it wants to be commanded."""

    def __init__(self, fleet: Fleet, agent: FleetIdentity, context: Any, version: str, budget: CreditBudget) -> None:
        self._fleet, self.agent, self._context, self._version = fleet, agent, context, version
        self._budget = budget
        self._desks: dict[int, SessionHandler] = {}
        self._outgoing: asyncio.PriorityQueue[tuple[int, int, StreamRequest]] = asyncio.PriorityQueue()
        self._numbers = itertools.count()
        self._room, self._answers = asyncio.Event(), 0  # bytes that wait
        self._commands = 0
        self._said, self._sent = 0, 0  # bytes of the steward's, each counted in one thread
        self._loop = asyncio.get_running_loop()
        self._gone, self._ending = threading.Event(), self._loop.create_future()
        self._peer: str = context.peer()  # which gRPC knows no more once the stream has ended
        self._seated = False
        self._looks = 0  # since something was heard
        self._places: set[tuple[str, str]] = set()
        self._unknown: set[int] = set()
        self._over: dict[int, str] = {}  # lanes that have no desk any more, or never had one, and why
        self._threads: list[threading.Thread] = []
        self._says, self._said_at = _SAYS, time.monotonic()

    async def run(self, requests: AsyncIterator[StreamRequest]) -> None:
        """Read until the stream ends, write beside it."""
        writing, reading = asyncio.create_task(self._write()), asyncio.create_task(self._read(requests))
        try:
            await asyncio.wait({reading, self._ending}, return_when=asyncio.FIRST_COMPLETED)
            if reading.done():
                reading.result()  # raises what has ended it
                await asyncio.sleep(_BROKEN)
            else:
                code, why = self._ending.result()
                if code is not grpc.StatusCode.UNAVAILABLE:
                    await self._unavailable(code, why)
                await self._context.abort(code, why)
        except asyncio.CancelledError:
            # gRPC says the same of a message that it has refused as of an agent that was killed
            self._reported("stream", "broke off", _BROKE_OFF)
            raise
        finally:
            writing.cancel()
            reading.cancel()

    def close(self) -> None:
        """Every desk gives up what is uncommitted, and ends."""
        self._gone.set()
        if self._seated:
            self._fleet.left(self)
        for session_handler in self._desks.values():
            session_handler.put(None)

    def say(self, request: StreamRequest) -> None:
        """See `interfaces.AgentConnection`; the steward's thread calls it."""
        self._said += request.ByteSize()
        self._soon(self._command, request)

    @property
    def full(self) -> bool:
        """See `interfaces.AgentConnection`."""
        return self._said - self._sent > _FULL

    def end(self, why: str) -> None:
        """See `interfaces.AgentConnection`; any thread may call it."""
        self._soon(self._end, why)

    def void(self, why: str) -> None:
        """End the stream, since its certificate counts no more; called in the event loop."""
        self._end(why, grpc.StatusCode.UNAUTHENTICATED)

    def _soon(self, do: Callable[..., None], what: Any) -> None:
        if not self._gone.is_set():
            self._loop.call_soon_threadsafe(do, what)

    def _end(self, why: str, code: grpc.StatusCode = grpc.StatusCode.UNAVAILABLE) -> None:
        if not self._ending.done():
            self._ending.set_result((code, why))

    def _command(self, request: StreamRequest) -> None:
        self._commands += 1
        if self._commands > _UNSENT_WORDS or self._said - self._sent > _UNSENT:
            self._end("it takes nothing")
            return
        if request.WhichOneof("payload") == "withdraw":
            source = request.withdraw.source
            for channel in [
                channel for channel, session_handler in self._desks.items() if session_handler.source == source
            ]:
                self._shut(channel, f"source {source} was withdrawn")  # whether or not the agent does as it is told
        self._outgoing.put_nowait((_COMMAND, next(self._numbers), request))

    def silent(self) -> None:
        """A look at the stream, one of several a second apart: a lane whose records wait for their commit ends where
        nothing was heard between so many of them, else readers would wait for an agent that is suspended. Looks are
        counted, not seconds: a loop that was busy has not read what came.
        """
        self._looks += 1
        if self._looks > _SILENT:
            for channel in [channel for channel, session_handler in self._desks.items() if session_handler.uncommitted]:
                self._shut(channel, f"the agent was silent for {_SILENT} s")

    def _shut(self, channel: int, why: str) -> None:
        """Its desk ends, and its session is told so at once: it may wait for credit, which nobody gives any more."""
        self._desks.pop(channel).put(None)
        self._over[channel] = why
        self._answer_now(StreamRequest(log_reply=LogReply(channel=channel, failure=_failure(why))))

    async def _read(self, requests: AsyncIterator[StreamRequest]) -> None:
        async for request in requests:
            await self._one(request)

    async def _write(self) -> None:
        while True:
            kind, _, request = await self._outgoing.get()
            await self._context.write(request)
            if kind == _ANSWER:
                self._answers -= request.ByteSize()
                self._room.set()
            else:
                self._commands -= 1
                self._sent += request.ByteSize()

    async def _answer(self, request: StreamRequest) -> None:
        while self._answers > _WAITING:
            self._room.clear()
            await self._room.wait()
        self._answers += request.ByteSize()
        self._outgoing.put_nowait((_ANSWER, next(self._numbers), request))

    def _answer_now(self, request: StreamRequest) -> None:
        """Of who reads the stream, which must not wait: an agent that does not hear would not be heard either."""
        if self._answers > _WAITING:
            self._end("it takes nothing")
            return
        self._answers += request.ByteSize()
        self._outgoing.put_nowait((_ANSWER, next(self._numbers), request))

    async def _one(self, request: StreamRequest) -> None:
        what, self._looks = request.WhichOneof("payload"), 0
        if why := improper(request):
            await self._unavailable(grpc.StatusCode.INVALID_ARGUMENT, why)
        if what == "ready" and not self._seated:
            self._seated = True
            self._places = {(place.connection, place.database) for place in request.ready.places}
            self._fleet.joined(self, request, self._version)
        elif what in _HEARD and self._seated:
            await self._counted()
            await self._heard(request)
        elif what in _ONLY_COUNTED:
            await self._counted()
        elif what == "log_call":
            await self._called(request)
        else:
            if request.type not in self._unknown and len(self._unknown) < _UNKNOWN:
                self._unknown.add(request.type)
                self._reported("message", "not supported", f"a message of type {request.type}")
            reported = Unsupported(type=request.type, what=f"a message of type {request.type}")
            self._answer_now(StreamRequest(type=request.type, unsupported=reported))

    async def _counted(self) -> None:
        now = time.monotonic()
        self._says = min(_SAYS, self._says + (now - self._said_at) * _SAYS_PER_SECOND) - 1
        self._said_at = now
        if self._says < 0:
            await self._unavailable(grpc.StatusCode.RESOURCE_EXHAUSTED, "it says more than a gateway hears")

    async def _heard(self, request: StreamRequest) -> None:
        part = request.map_part
        if request.HasField("map_part") and (part.connection, part.database) not in self._places:
            await self._unavailable(
                grpc.StatusCode.INVALID_ARGUMENT, f"a map of {part.database[:64]!r}, not named before"
            )
        self._fleet.heard(self, request)

    async def _called(self, request: StreamRequest) -> None:
        call = request.log_call
        session_handler = self._desks.get(call.channel)
        if session_handler is None and call.channel not in self._over and self._crowded():
            if len(self._over) >= _UNSENT_WORDS:
                await self._unavailable(grpc.StatusCode.RESOURCE_EXHAUSTED, "sessions without end")
            self._over[call.channel] = f"an agent has {_CHANNELS} sessions at most over one stream"
            self._reported("session", "refused", self._over[call.channel], request.header.source)
        if call.channel in self._over:  # its agent may not have heard of it yet
            if call.call:
                failed = LogReply(channel=call.channel, call=call.call, failure=_failure(self._over[call.channel]))
                self._answer_now(StreamRequest(log_reply=failed))
            if call.WhichOneof("what") == "close":
                del self._over[call.channel]
            return
        if session_handler is None:
            session_handler = await self._opened(call.channel, request.header.source, request.header.epoch)
        if why := session_handler.put(call):
            await self._unavailable(grpc.StatusCode.RESOURCE_EXHAUSTED, why)
        if call.WhichOneof("what") == "close":
            del self._desks[call.channel]

    async def _opened(self, channel: int, name: str, epoch: int) -> SessionHandler:
        source = self._fleet.source(self.agent, name, epoch)
        if source is None:
            await self._unavailable(grpc.StatusCode.PERMISSION_DENIED, f"source {name[:80]!r} is none of this agent's")
        session_handler = self._desks[channel] = SessionHandler(
            source, channel, self._reply, self._refused(source.name), self._budget
        )
        self._threads.append(threading.Thread(target=session_handler.run, name=f"desk {source.name}", daemon=True))
        self._threads[-1].start()
        return session_handler

    def _crowded(self) -> bool:
        """Whether it has as many lanes as it may, or as many that are still ending: each has a thread, and a client."""
        self._threads = [one for one in self._threads if one.is_alive()]
        return len(self._desks) >= _CHANNELS or len(self._threads) >= 2 * _CHANNELS

    async def _unavailable(self, code: grpc.StatusCode, why: str) -> NoReturn:
        await turned_away(self._fleet, self._context, code, why, self.agent)

    def _refused(self, source: str) -> Callable[[str], None]:
        def reported(what: str) -> None:
            self._reported("write", "refused", what, source)

        return reported

    def _reported(self, what: str, outcome: str, why: str, source: str = "") -> None:
        who, peer = self.agent.uri, self._peer
        log.warning(outcome, agent=who, source=source, what=what, why=why)
        line = {"what": what, "who": who, "from": peer, "outcome": outcome, "why": why}
        self._fleet.refused({**line, "on": source} if source else line, self.agent)

    def _reply(self, reply: LogReply) -> None:
        """Called by desks, in their threads: waits while the agent takes nothing."""
        if self._gone.is_set():
            raise Retriable("the agent is gone")
        put = asyncio.run_coroutine_threadsafe(self._answer(StreamRequest(log_reply=reply)), self._loop)
        while not self._gone.is_set():
            try:
                put.result(1.0)
                return
            except TimeoutError:
                continue
        put.cancel()
        raise Retriable("the agent is gone")


def _failure(why: str) -> Failure:
    return failure_of(Retriable(why, retry_after=5.0))
