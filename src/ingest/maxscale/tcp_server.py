"""TCP server of MaxScale's CDC protocol. Each client is a task of one event loop, and cannot block the others.

a client reads nothing          costs one piece (64 KiB, or one change) and the socket's buffer; the rest is read later
it never logs in or registers   it is disconnected after ten seconds, or thirty
too many do not log in          the oldest of them with one address are disconnected
its login fails                 the next login of the user and address is delayed, twice as long each time
it sends an invalid request     it receives an error, or is disconnected; at most 64 KiB are buffered
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

import structlog

from cdc.formats.avro_rows import avro_is_installed
from cdc.formats.maxscale import parse_number
from cdc.model.connections import ConnectionLimits
from cdc.model.errors import Retriable, TailorbirdError
from cdc.process.tcp_bounded import ACCEPTED_AT_ONCE, BoundedListener, Peer
from ingest.changes.feed_interfaces import ahead
from ingest.maxscale.backoff import BackOff
from ingest.maxscale.catalogue import (
    NoData,
    TableRequest,
    begin_of,
    columns_alone,
    find_table,
    last_transaction,
    transaction_of,
)
from ingest.maxscale.conversation import (
    FAILED,
    UNREGISTERED,
    CloseRequest,
    Conversation,
    DataRequest,
    Form,
    InvalidRequest,
    LoginRequest,
    ProtocolFault,
    RegistrationRequest,
    Request,
    TransactionRequest,
)
from ingest.maxscale.delivery import UNLOGGED, Gate, Piece
from ingest.maxscale.tcp_batches import SharedReads
from ingest.maxscale.tcp_statistics import CLIENTS, CONNECTIONS, REFUSED, SENT, STALLED, delivered, requested
from ingest.maxscale.users import is_right

_QUIET = 0.05  # seconds after which a request without a line end is complete
_WINDOW = 64 * 1024
_log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Maximum number of connections, also of those of one address that have not logged in.

    `login` and `register` are seconds within which a client must log in, and then register."""

    clients: int = 2000
    strangers: int = 200
    login: float = 10.0
    register: float = 30.0


@dataclass(slots=True)
class CdcServer:
    """Server for clients of MaxScale's protocol, in one event loop. `users` is called at each login."""

    reads: SharedReads
    users: Callable[[], Mapping[str, bytes]]
    limits: ServerLimits = ServerLimits()
    _back_off: BackOff = field(default_factory=BackOff)
    _open: set[asyncio.StreamWriter] = field(default_factory=set)
    _listener: BoundedListener | None = None

    @contextlib.asynccontextmanager
    async def listening(
        self, host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> AsyncIterator[tuple[str, int]]:
        """Listen while the block runs. Returns the address. Raises OSError if it cannot listen."""
        limits = ConnectionLimits(most=self.limits.clients, idle_each=self.limits.strangers, idle=self.limits.login)
        self._listener = BoundedListener("maxscale", (host, port), limits)
        server = await asyncio.start_server(
            self._serve, sock=self._listener, ssl=tls, limit=_WINDOW, backlog=ACCEPTED_AT_ONCE,
            ssl_handshake_timeout=self.limits.login if tls else None,
        )  # fmt: skip
        try:
            yield server.sockets[0].getsockname()[:2]
        finally:
            server.close()
            self._listener.close()
            for writer in list(self._open):
                writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = str(writer.get_extra_info("peername")[0])
        self._open.add(writer)
        CONNECTIONS.inc()
        CLIENTS.set(len(self._open))
        writer.transport.set_write_buffer_limits(high=_WINDOW)
        client = _Client(self, reader, writer, address)
        try:
            await client.serve()
        except ProtocolFault as fault:
            REFUSED.labels("protocol").inc()
            _log.warning("client ended", address=address, user=client.user, why=str(fault))
            with contextlib.suppress(OSError):
                writer.write(fault.answer.encode())
                writer.write_eof() if writer.can_write_eof() else None
        except (OSError, asyncio.IncompleteReadError) as error:
            _log.info("client disconnected", address=address, user=client.user, why=str(error))
        finally:
            await client.stop()
            self._open.discard(writer)
            CLIENTS.set(len(self._open))
            writer.close()

    def keep(self, peer: Peer) -> None:
        """Note that a client has logged in: its connection stays open."""
        if self._listener is not None:
            self._listener.occupy(peer)

    async def admit(self, address: str, login: LoginRequest) -> bool:
        """Check a login and return whether it is valid. After failed ones, the check is delayed."""
        who = address, login.user
        while (wait := self._back_off.wait(who, time.monotonic())) > 0:
            await asyncio.sleep(wait)
        if is_right(self.users(), login.user, login.digest):
            self._back_off.right(who)
            return True
        self._back_off.wrong(who, time.monotonic())
        REFUSED.labels("login").inc()
        _log.warning("login refused", address=address, user=login.user)
        return False


class _Client:
    """Connection of one client."""

    def __init__(
        self, server: CdcServer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, address: str
    ) -> None:
        self._server, self._reader, self._writer, self._address = server, reader, writer, address
        self._reads = server.reads
        self._conversation = Conversation()
        self._form: Form = "JSON"
        self._stream: asyncio.Task[None] | None = None
        self._write_lock = asyncio.Lock()  # so that answers are written between two pieces
        self._deadline: float | None = None  # of the login or the registration, while it is missing
        self.user = ""

    async def serve(self) -> None:
        """Serve requests until the client disconnects, or violates the protocol."""
        self._deadline = time.monotonic() + self._server.limits.login
        was_quiet = False  # an unfinished login or registration needs more bytes, even after a pause
        while True:
            settling = None if was_quiet or not self._conversation.waits else _QUIET
            data: bytes | None
            try:
                if self._deadline is not None:
                    settling = max(0.0, self._deadline - time.monotonic())
                async with asyncio.timeout(settling):
                    data = await self._reader.read(_WINDOW)
            except TimeoutError:
                if self._deadline is not None:
                    why = ("no registration in time", UNREGISTERED) if self.user else ("no login in time", FAILED)
                    raise ProtocolFault(*why) from None
                data = None
            if data == b"":
                return
            was_quiet = data is None
            for request in self._conversation.quiet() if data is None else self._conversation.feed(data):
                if not await self._answer(request):
                    return

    async def _answer(self, request: Request) -> bool:
        """Execute a request. Returns False if the connection must be closed."""
        requested(request)
        match request:
            case LoginRequest():
                if not await self._server.admit(self._address, request):
                    await self._say(FAILED.encode())
                    return False
                self.user = request.user
                self._server.keep(self._writer.get_extra_info("peername")[:2])
                self._conversation.accepted()
                self._deadline = time.monotonic() + self._server.limits.register
                await self._say(b"OK\n")
            case RegistrationRequest():
                self._form, self._deadline = request.form, None
                _log.info("client registered", address=self._address, user=self.user, uuid=request.uuid)
                await self._say(b"OK\n")
            case DataRequest():
                await self._begin(request)
            case TransactionRequest():
                await self._report(request)
            case InvalidRequest():
                await self._say(request.answer.encode())
            case CloseRequest():
                return False
        return True

    async def _say(self, data: bytes) -> None:
        async with self._write_lock:
            self._writer.write(data)
            await self._writer.drain()

    async def _report(self, request: TransactionRequest) -> None:
        try:
            if request.gtid:
                answer = await self._reads.ask(transaction_of, self._reads.log, parse_number(request.gtid))
            else:
                answer = await self._reads.ask(last_transaction, self._reads.log)
        except NoData as error:
            answer = str(error).encode()
        except ValueError:
            answer = b"ERR QUERY-TRANSACTION with malformed GTID.\n"
        except Retriable as error:
            _log.warning("not answered", address=self._address, why=str(error))
            answer = b"ERR The log is unavailable, try again.\n"
        await self._say(answer)

    async def _begin(self, request: DataRequest) -> None:
        await self.stop()
        try:
            if self._form == "AVRO" and not avro_is_installed():
                raise NoData("ERR AVRO is not served here: pip install 'tailorbird[formats]'.\n")
            gtid = parse_number(request.gtid) if request.gtid else None
            found = await self._reads.ask(find_table, self._reads.log, request.table)
            gate = Gate(gtid, found.version)
            starts = await self._reads.ask(begin_of, self._reads.log, found.table, gate)
        except NoData as error:
            await self._say(str(error).encode())
        except ValueError:
            await self._say(b"ERR REQUEST-DATA with malformed GTID.\n")
        except Retriable as error:
            _log.warning("not answered", address=self._address, why=str(error))
            await self._say(b"ERR The log is unavailable, try again.\n")
        else:
            _log.info("data requested", address=self._address, user=self.user, table=request.table, gtid=request.gtid)
            self._stream = asyncio.create_task(self._send(found, Piece(b"", starts, UNLOGGED, False), gate))

    async def stop(self) -> None:
        """Stop sending rows."""
        if self._stream is not None:
            self._stream.cancel()
            with contextlib.suppress(asyncio.CancelledError, OSError):
                await self._stream
            self._stream = None

    async def _send(self, found: TableRequest, at: Piece, gate: Gate) -> None:
        """Send rows from a piece on until cancelled. Waits while Kafka is unavailable."""
        pause = 0.5
        try:
            while True:
                seen = self._reads.log.released(found.table)
                try:
                    if not ahead(at.next, seen):
                        if at.version == UNLOGGED:
                            at = await self._reads.ask(columns_alone, self._reads.log, found, self._form, gate, at)
                            await self._took(at.data)
                        await self._reads.news(found.table, seen)
                        continue
                    shared = await self._reads.read(found.table, at.next)
                    pause = 0.5
                    if shared.batch.changes:
                        delivered(shared.batch.changes[-1].event)
                except Retriable as error:
                    _log.warning("waiting", address=self._address, why=str(error), seconds=pause)
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, 15.0)
                    continue
                for piece in shared.pieces(self._form, at.version, None if at.open else gate):
                    at = piece
                    if not await self._took(piece.data):
                        STALLED.inc()
                        del shared, piece  # a client that does not read must not keep a batch in memory
                        await self._writer.drain()
                        break
        except OSError:
            self._writer.close()  # `serve` notices that the client has disconnected, too
        except TailorbirdError as error:
            _log.error("client ended", address=self._address, table=str(found.table), why=str(error))
            self._writer.transport.abort()
        except Exception:
            self._writer.transport.abort()
            raise

    async def _took(self, data: bytes) -> bool:
        """Send a piece. Returns False if the client did not read it within a second."""
        if not data:
            return True
        async with self._write_lock:
            self._writer.write(data)
        SENT.inc(len(data))
        try:
            async with asyncio.timeout(1.0):  # not `wait_for`, which may swallow a cancellation
                await self._writer.drain()
        except TimeoutError:
            return False
        return True
