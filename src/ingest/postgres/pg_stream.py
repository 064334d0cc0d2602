"""Stream the log of a PostgreSQL server: START_REPLICATION, then messages in both directions until the stream ends.

Only committed positions are confirmed to the server. If every received position were confirmed, as libraries do, a
crash could lose changes that are not published.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct

from cdc.model.errors import Retriable
from cdc.topology.topology import Source
from ingest.postgres.messages import EPOCH_US, U64, lsn_text
from ingest.postgres.pg_connection import PgConnection, PgError, translated
from ingest.postgres.pg_slot import Names
from ingest.postgres.selects import quoted
from ingest.records.capture_interfaces import PositionLost

_STATUS = Struct(">cQQQqB")
_DATA, _KEEPALIVE = ord("w"), ord("k")
_PAYLOAD = 25  # offset of the payload of a `w` message
# maximum seconds between two status messages; the server ends a stream after wal_sender_timeout without one
_SPEAK_EVERY = 5.0
_POLITE, _TAKE_OVER = 1.0, 10.0  # seconds until the slot's present reader is terminated, and until this one gives up
_UNDEFINED = "42704"  # undefined_object: of a stream, its publication
_LOOK_EVERY = 0.5  # seconds between checks for changes that the log does not contain


class PgFeed:
    """Messages of one slot; implements `pgoutput.Feed`.

    If no message arrives for `heartbeat` seconds, it asks the server how far it has read its log. `look` is called
    regularly between messages.
    """

    def __init__(
        self, connection: PgConnection, source: Source, names: Names, start: int, *, heartbeat: float,
        look: Callable[[], None],
    ) -> None:  # fmt: skip
        self._connection, self._source, self._names = connection, source, names
        self._confirmed, self._heartbeat, self._look = start, heartbeat, look
        self._spoke = self._looked = time.monotonic()

    def begin(self, displace: Callable[[], None]) -> None:
        """Start streaming from the confirmed position on.

        `displace` terminates the slot's present reader: an earlier session that has been fenced, but may not know it.
        """
        options = f"proto_version '1', publication_names '{quoted(self._names.publication)}'"
        command = f'START_REPLICATION SLOT "{self._names.slot}" LOGICAL {lsn_text(self._confirmed)} ({options})'
        began = time.monotonic()
        with translated(self._source, "read the log"):
            while True:
                try:
                    self._connection.begin_copy(command)
                    return
                except PgError as error:
                    # the server may need a moment to end the previous stream
                    waited = time.monotonic() - began
                    if error.state != "55006" or waited > _TAKE_OVER:
                        raise
                    if waited > _POLITE:
                        displace()
                time.sleep(0.02)

    def __iter__(self) -> Iterator[bytes | int | None]:
        take = self._connection.take
        with translated(self._source, "read the log"), self._published():
            while True:
                data = take()
                if data is None:
                    yield None
                    if not self._connection.arrives(self._heartbeat):
                        self._say(ask=True)
                        self._connection.arrives(self._heartbeat)
                elif data[0] == _DATA:
                    yield bytes(data[_PAYLOAD:])
                elif data[0] == _KEEPALIVE:
                    yield U64(data, 1)[0]
                    if data[17]:
                        self._say()
                else:
                    raise Retriable(f"source {self._source.name}: the server sent {bytes(data[:1])!r} in its stream")
                self._turn()

    @contextmanager
    def _published(self) -> Iterator[None]:
        """Raise PositionLost for changes from a time without the publication: servers before 18 never send them."""
        try:
            yield
        except PgError as error:
            if error.state != _UNDEFINED:
                raise
            what = f"source {self._source.name}: the log cannot be read on: {error.message}"
            raise PositionLost(what, "do not drop the publication while its source is captured") from error

    def _turn(self) -> None:
        now = time.monotonic()
        if now - self._spoke > _SPEAK_EVERY:
            self._say()
        if now - self._looked > _LOOK_EVERY:
            self._look()
            self._looked = now

    def nothing_within(self, seconds: float) -> bool:
        """Wait up to `seconds`. Returns True if no message arrived."""
        return not self._connection.arrives(seconds)

    def confirm(self, lsn: int) -> None:
        """Confirm that everything before a position is committed, so that the server may discard it."""
        if lsn > self._confirmed:
            self._confirmed = lsn
            with translated(self._source, "confirm what was read"):
                self._say()

    def _say(self, *, ask: bool = False) -> None:
        self._spoke = time.monotonic()
        now = int(time.time() * 1_000_000) - EPOCH_US
        place = self._confirmed
        self._connection.send(_STATUS.pack(b"r", place, place, place, now, int(ask)))
