"""Syslog sockets as a source: UDP, TCP and a Unix socket, read only as fast as the log accepts messages.

Messages cannot be received again. A process that crashes loses messages that are not committed. UDP loses datagrams
that are not read in time; the kernel counts these. After a restart, messages are numbered from 1 again.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import secrets
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import structlog
from prometheus_client import Counter

from cdc.model.connections import ConnectionLimits
from cdc.model.errors import UsageError
from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from cdc.process.tcp_bounded import BoundedListener, Peer
from cdc.topology.topology import Listen, Source
from ingest.capture.empty_chunks import NoChunks, StreamOnlySource
from ingest.capture.groups import IdleDetector
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import Checkpoint, ServerTables, Stream
from ingest.syslog.frames import LARGEST, FrameError, SyslogFrames
from ingest.syslog.rows import DEFINITION, HEADER, LOG, TABLE, ReceivedMessage, SyslogEvents

DROPPED = Counter("tailorbird_syslog_dropped", "Datagrams that arrived faster than they were read", ["source"])
REFUSED = Counter(
    "tailorbird_syslog_refused_streams", "Connections closed because they sent no valid syslog", ["source"]
)
_IDLE, _GAP = 1.0, 0.05
# A connection holds at most one incomplete message, so all together at most 64 MB. A logger may be silent for days.
LIMITS = ConnectionLimits(most=1000, idle_each=1000, idle=0.0)
_RXQ_OVFL = 40  # SO_RXQ_OVFL, which returns how many datagrams the kernel has dropped
_log = structlog.get_logger()


class SyslogSource(StreamOnlySource):
    """A source over listening sockets; implements `capture_interfaces.SourceServer`.

    The sockets are open during a session. Its stream can be reopened without closing connections.
    """

    def __init__(self, settings: Source, listen: Listen) -> None:
        self._settings, self._listen = settings, listen
        self._table = TableId(source=settings.name, database=settings.database, table=TABLE)
        self._sockets: _Sockets | None = None

    def head(self) -> Position:
        """Return position 0: nothing can have been received earlier."""
        return Position(file=LOG, pos=0, gtid_set="", sequence=0)

    def seen(self) -> ServerTables:
        """Return the only table, `messages`."""
        catalog = Catalog(tables={(self._table.database, TABLE): DEFINITION})
        return ServerTables(catalog=catalog, dialect=Dialect(server="syslog", version=0))

    @contextmanager
    def chunks(self) -> Iterator[NoChunks]:
        """Open the sockets for the block. Returns a reader without chunks. Raises UsageError if it cannot listen."""
        with _Sockets(self._settings, self._listen) as sockets:
            self._sockets = sockets
            try:
                yield NoChunks()
            finally:
                self._sockets = None

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        """Implements `SourceServer.stream`. Call it within `chunks`."""
        sockets = self._sockets
        assert sockets is not None, "a session opens its chunks first"
        idle = IdleDetector(sockets.nothing_within, 0.0 if busy else _GAP, time.monotonic)
        rule = self._settings.rules.get(self._table, TableRule())
        yield SyslogEvents(
            sockets, self._table, checkpoint, secrets.token_hex(2), idle, hides_header=any(map(rule.hides, HEADER))
        )


class _Sockets:
    """All sockets of a source, open within a `with` block; implements `rows.SyslogFeed`."""

    def __init__(self, source: Source, listen: Listen) -> None:
        self._source, self._listen = source, listen
        self._selector = selectors.DefaultSelector()
        self._listener: BoundedListener | None = None
        self._frames: dict[socket.socket, tuple[SyslogFrames, Peer]] = {}
        self._dropped = 0
        self._pending: deque[ReceivedMessage] = deque()  # messages that were read from a socket, but not yielded yet

    def __enter__(self) -> _Sockets:
        try:
            if self._listen.udp:
                self._datagrams(socket.AF_INET, self._listen.udp, "udp")
            if self._listen.tcp:
                self._listener = BoundedListener("syslog", self._listen.tcp, LIMITS)
                self._listener.setblocking(False)
                self._selector.register(self._listener, selectors.EVENT_READ, ("tcp", self._listener))
            if self._listen.unix:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(self._listen.unix)
                self._datagrams(socket.AF_UNIX, self._listen.unix, "unix")
        except OSError as error:
            self.close()
            what = f"source {self._source.name}: cannot listen: {error}"
            raise UsageError(what, "correct `listen:`, or stop the process that listens there") from error
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _datagrams(self, family: socket.AddressFamily, address: Any, kind: str) -> None:
        one = socket.socket(family, socket.SOCK_DGRAM)
        one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
        with contextlib.suppress(OSError):  # other kernels do not count dropped datagrams
            one.setsockopt(socket.SOL_SOCKET, _RXQ_OVFL, 1)
        one.bind(address)
        one.setblocking(False)
        self._selector.register(one, selectors.EVENT_READ, (kind, one))

    def nothing_within(self, seconds: float) -> bool:
        """Wait up to `seconds`. Returns True if no message arrived."""
        return not self._pending and not self._selector.select(seconds)

    def __iter__(self) -> Iterator[ReceivedMessage | None]:
        pending = self._pending
        while True:
            while pending:
                yield pending.popleft()
            ready = self._selector.select(0)
            if not ready:
                yield None
                ready = self._selector.select(_IDLE)
            for key, _ in ready:
                kind, one = key.data
                if kind == "tcp":
                    self._accept(one)
                elif kind == "stream":
                    self._read(one)
                else:
                    self._receive(kind, one)
                # before the next socket is read: a thousand of them may send many short messages at once
                while pending:
                    yield pending.popleft()

    def _receive(self, kind: str, one: socket.socket) -> None:
        for _ in range(500):
            try:
                data, ancillary, _, sender = one.recvmsg(LARGEST, 64)
            except BlockingIOError:
                return
            for level, type_, value in ancillary:
                if level == socket.SOL_SOCKET and type_ == _RXQ_OVFL:
                    (dropped,) = struct.unpack("I", value[:4])
                    DROPPED.labels(self._source.name).inc(max(0, dropped - self._dropped))
                    self._dropped = dropped
            if data:
                self._pending.append(ReceivedMessage(data, _now(), f"{kind} {sender[0]}" if kind == "udp" else kind))

    def _accept(self, listener: BoundedListener) -> None:
        """Accept all connections of the queue, before messages are read."""
        try:
            while True:
                connection, (host, port, *_) = listener.accept()
                connection.setblocking(False)
                self._frames[connection] = SyslogFrames(), (host, port)
                self._selector.register(connection, selectors.EVENT_READ, ("stream", connection))
        except BlockingIOError:
            return

    def _read(self, one: socket.socket) -> None:
        frames, peer = self._frames[one]
        sender, seen = f"tcp {peer[0]}", len(self._pending)
        try:
            data = one.recv(LARGEST)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        try:
            for message in frames.feed(data):
                self._pending.append(ReceivedMessage(message, _now(), sender))
        except FrameError as error:
            REFUSED.labels(self._source.name).inc()
            _log.warning("connection ended", source=self._source.name, sender=sender, why=str(error))
            data = b""
        if self._listener is not None and len(self._pending) > seen:
            self._listener.use(peer)
        if not data:
            if rest := frames.end():
                self._pending.append(ReceivedMessage(rest, _now(), sender))
            self._drop(one)

    def _drop(self, one: socket.socket) -> None:
        self._selector.unregister(one)
        del self._frames[one]
        one.close()

    def close(self) -> None:
        """Close all sockets."""
        for key in list(self._selector.get_map().values()):
            _, one = key.data
            one.close()
        self._selector.close()
        if self._listen.unix:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._listen.unix)


def _now() -> dt.datetime:
    return dt.datetime.now(dt.UTC)
