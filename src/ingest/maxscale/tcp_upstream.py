"""A MaxScale as a source: one connection per table, read only as fast as the log accepts records."""

from __future__ import annotations

import hashlib
import selectors
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import orjson

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.event import Position
from cdc.model.filters import TableRule
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.capture.empty_chunks import StreamOnlySource
from ingest.capture.groups import IdleDetector
from ingest.ddl.catalog import Catalog, TableDefinition
from ingest.ddl.dialect import Dialect
from ingest.events.tables import Tables
from ingest.maxscale.upstream import LOG, UpstreamEvents, UpstreamLine, marks_of, table_name
from ingest.maxscale.upstream_values import reads_reported
from ingest.records.capture_interfaces import Checkpoint, PositionLost, ServerTables, Stream

_TIMEOUT = 10.0  # seconds to wait for an answer
_IDLE, _GAP = 1.0, 0.05
_LONGEST = 64 * 1024 * 1024  # maximum bytes of a line


class UpstreamSource(StreamOnlySource):
    """A MaxScale, read by its CDC protocol in JSON; implements `capture_interfaces.SourceServer`."""

    def __init__(self, settings: Source) -> None:
        self._settings = settings
        self._rules = {table: settings.rules[table] for table in settings.tables}

    def head(self) -> Position:
        """Return position 0, from which a MaxScale sends everything that it has."""
        return Position(file=LOG, pos=0, gtid_set="", sequence=0)

    def seen(self) -> ServerTables:
        """Return the tables, each as the schema line at the begin of its stream describes it.

        Raises Retriable if such a line does not arrive.
        """
        tables: dict[tuple[str, str], TableDefinition] = {}
        for table, rule in self._rules.items():
            found = self.described(table, rule)
            if lacking := [
                name for name in rule.message_key_columns if name not in [column.name for column in found.columns]
            ]:
                raise UsageError(f"{self._where(table)} has no column {lacking[0]}", "correct its message_key_columns")
            tables[table.database, table.table] = found
        return ServerTables(catalog=Catalog(tables=tables), dialect=Dialect(server="maxscale", version=0))

    def described(self, table: TableId, rule: TableRule) -> TableDefinition:
        """Return any table as the schema line at the begin of its stream describes it. Raises the errors of `seen`."""
        with self._link(table, "") as link:
            line = link.line()
        try:
            return reads_reported(orjson.loads(line), rule).definition
        except (ValueError, KeyError, TypeError) as error:
            raise Fatal(
                f"{self._where(table)}: its stream does not begin with a schema: {error}",
                "check that the server is a MaxScale",
            ) from error

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        """Implements `SourceServer.stream`. Iterating raises PositionLost if the checkpoint's GTID is gone there."""
        marks = marks_of(checkpoint)
        with ExitStack() as stack:
            links = {}
            for table in self._rules:
                mark = marks.get(table_name(table))
                links[table] = stack.enter_context(self._link(table, "" if mark is None else str(mark.gtid)))
            yield UpstreamEvents(_Feed(links, busy=busy), tables, self._rules, checkpoint)

    @contextmanager
    def _link(self, table: TableId, gtid: str) -> Iterator[_Link]:
        where = self._where(table)
        try:
            connection = socket.create_connection((self._settings.hostname, self._settings.port), timeout=_TIMEOUT)
        except OSError as error:
            raise Retriable(f"{where}: {error}", "check that it is running") from error
        link = _Link(connection, where)
        try:
            link.open(self._settings.username, self._settings.password, f"{table_name(table)} {gtid}".rstrip())
            yield link
        except OSError as error:
            raise Retriable(f"{where}: {str(error) or type(error).__name__}") from error
        finally:
            connection.close()

    def _where(self, table: TableId) -> str:
        one = self._settings
        return f"source {one.name}: MaxScale at {one.hostname}:{one.port}: {table_name(table)}"


class _Link:
    """Connection for the rows of one table."""

    def __init__(self, connection: socket.socket, where: str) -> None:
        self.socket, self._where, self._received = connection, where, bytearray()

    def open(self, user: str, password: str, wanted: str) -> None:
        """Log in, register, and request the table `wanted`. Raises UsageError if the login fails."""
        self.socket.sendall((user.encode() + b":" + hashlib.sha1(password.encode()).digest()).hex().encode())
        if (answer := self._answer()) != b"OK":
            raise UsageError(f"{self._where}: {answer.decode(errors='replace')[:200]}", "correct username and password")
        self.socket.sendall(b"REGISTER UUID=tailorbird, TYPE=JSON")
        if (answer := self._answer()) != b"OK":
            raise Retriable(f"{self._where}: {answer.decode(errors='replace')[:200]}")
        self.socket.sendall(f"REQUEST-DATA {wanted}\n".encode())

    def line(self) -> bytes:
        """Return the first line of the stream. Raises Retriable if none arrives."""
        return self._checked(self._answer())

    def _answer(self) -> bytes:
        while not (found := self._next()):  # skip the second line end after the answer to a login
            if found is None:
                self.take()
        return found

    def take(self) -> None:
        """Wait for bytes and buffer them. Raises Retriable if the connection has ended."""
        data = self.socket.recv(256 * 1024)
        if not data:
            raise Retriable(f"{self._where}: it has closed the connection")
        self._received += data
        if len(self._received) > _LONGEST:
            raise Fatal(f"{self._where}: a line of more than {_LONGEST} bytes", "check that it is a MaxScale")

    def lines(self) -> Iterator[bytes]:
        """Yield the complete lines in the buffer."""
        while (line := self._next()) is not None:
            yield self._checked(line)

    def _next(self) -> bytes | None:
        end = self._received.find(b"\n")
        if end < 0:
            return None
        line = bytes(self._received[:end])
        del self._received[: end + 1]
        return line

    def _checked(self, line: bytes) -> bytes:
        if not line.startswith(b"ERR"):
            return line
        answer = line.decode(errors="replace")[:200]
        if b"GTID" in line:
            raise PositionLost(
                f"{self._where}: {answer}", "set `position_lost: resnapshot` to read everything that it has again"
            )
        raise Retriable(f"{self._where}: {answer}")


class _Feed:
    """Lines of all connections; implements `upstream.UpstreamFeed`."""

    def __init__(self, links: dict[TableId, _Link], *, busy: bool) -> None:
        self._links, self._selector = links, selectors.DefaultSelector()
        self._idle = IdleDetector(self._nothing_within, 0.0 if busy else _GAP, time.monotonic)
        self._wait = 0.02 if busy else _IDLE

    def _nothing_within(self, seconds: float) -> bool:
        return not self._selector.select(seconds)

    def __iter__(self) -> Iterator[UpstreamLine | None]:
        with self._selector:
            for table, link in self._links.items():
                self._selector.register(link.socket, selectors.EVENT_READ, (table, link))
                for line in link.lines():
                    yield UpstreamLine(table, line)
            while True:
                ready = self._selector.select(0)
                if not ready:
                    if self._idle():
                        yield None
                    ready = self._selector.select(self._wait)
                    if not ready:
                        yield None
                for key, _ in ready:
                    table, link = key.data
                    with suppress(TimeoutError):
                        link.take()
                    for line in link.lines():
                        yield UpstreamLine(table, line)
