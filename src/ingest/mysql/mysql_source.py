"""A MySQL or MariaDB server as a source: end of the log, tables, snapshots and stream, each over its own connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from cdc.model.errors import UsageError
from cdc.model.event import Position
from cdc.topology.topology import Source
from ingest.binlog import BinlogPosition, BinlogReader, StreamOptions
from ingest.binlog.format.errors import (
    BinlogError,
    CorruptBinlog,
    LogPurged,
    MissingTableMap,
    PositionGone,
    UndecodableValue,
    UnsupportedEvent,
)
from ingest.binlog.format.gtid import AnyGtidSet, GtidSet, parse_gtid_set
from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.capture.groups import IdleDetector
from ingest.events.foreign_keys import ForeignKeys
from ingest.events.logged import ENVELOPE, BinlogEvents, ReadAgain
from ingest.events.prepared import PreparedTransaction
from ingest.events.tables import Tables
from ingest.mysql import mysql_schema
from ingest.mysql.mysql_connection import address_of, connected
from ingest.mysql.mysql_foreign_keys import foreign_keys
from ingest.mysql.mysql_snapshot import MySqlChunks
from ingest.records.capture_interfaces import (
    Checkpoint,
    LogDamaged,
    LogReplaced,
    PositionLost,
    ServerTables,
    Stream,
)

HEARTBEAT = 1.0  # seconds between heartbeats of an idle server; each heartbeat becomes a CaughtUp event
BUSY = 0.02  # the same while a snapshot is running, which advances at CaughtUp events
GAP = 0.05  # minimum seconds between commits of single transactions


class MySqlSource:
    """A MySQL or MariaDB source; implements `SourceServer`. Checks the server's settings whenever tables are
    requested."""

    def __init__(self, settings: Source) -> None:
        self._settings = settings
        self._damaged = False  # place after a part of the log that could not be read, see ServerAddress

    def head(self) -> Position:
        """Return the log's current end; its `sequence` is 0. Implements `SourceServer`."""
        with connected(self._settings) as connection:
            return mysql_schema.head(connection, self._settings)

    def seen(self) -> ServerTables:
        """Implements `SourceServer.seen`.

        Raises Fatal or UsageError, with the remedy, if server or tables cannot be captured.
        """
        with connected(self._settings) as connection:
            mysql_schema.check_server(connection, self._settings)
            return mysql_schema.seen(connection, self._settings)

    def holds(self, position: Position) -> bool:
        """Return whether the server's log still contains everything from a position on. Implements `SourceServer`."""
        with connected(self._settings) as connection:
            return mysql_schema.holds(connection, self._settings, position)

    def foreign_keys(self) -> ForeignKeys:
        """Return the foreign keys from or to tables of the captured databases, as they are now."""
        with connected(self._settings) as connection:
            return foreign_keys(connection, self._settings)

    def release(self, position: Position) -> None:
        """Implements `SourceServer.release`.

        Does nothing: the server's settings alone decide how long it retains its log.
        """

    @contextmanager
    def chunks(self) -> Iterator[MySqlChunks]:
        """Return a chunk reader for snapshots, which is closed after the block."""
        reader = MySqlChunks(self._settings, lock=self._settings.snapshot_locking_mode == "minimal")
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        """Implements `SourceServer.stream`.

        Raises PositionLost if the log no longer continues the position, LogReplaced if it is another one, and
        LogDamaged if a part of it cannot be read.
        """
        position = checkpoint.position
        with connected(self._settings) as connection:
            mysql_schema.check_position(connection, self._settings, position)
        address = replace(address_of(self._settings, heartbeat=BUSY if busy else HEARTBEAT), by_place=self._damaged)
        transport, name = MysqlTransport(address), self._settings.name
        gtids = parse_gtid_set(position.gtid_set) if position.gtid_set else None
        options = StreamOptions(flavour=ENVELOPE, schema=tables, tables=tables.captured)
        reader = BinlogReader(
            transport, BinlogPosition(file=position.file, position=position.pos, gtids=gtids), options
        )
        try:
            idle = IdleDetector(transport.idle, 0.0 if busy else GAP, time.monotonic)
            yield BinlogEvents(reader, tables, idle, checkpoint.state, self._read_again(tables))
        except PositionGone as gone:
            lost = PositionLost if isinstance(gone, LogPurged) else LogReplaced
            raise lost(f"source {name}: {gone.message}", gone.hint) from gone
        except (CorruptBinlog, UnsupportedEvent, MissingTableMap, UndecodableValue) as damage:
            self._damaged = True
            raise LogDamaged(f"source {name}: the log cannot be read: {damage.message}", damage.hint) from damage
        finally:
            reader.close()

    def _read_again(self, tables: Tables) -> ReadAgain:
        """Return a function that opens the log at the begin of a prepared transaction, over another connection."""

        @contextmanager
        def opened(transaction: PreparedTransaction, ended: AnyGtidSet | None) -> Iterator[BinlogReader]:
            # another server id, because a server disconnects the older of two readers with one id
            transport = MysqlTransport(
                replace(address_of(self._settings, heartbeat=HEARTBEAT), server_id=0, follow=False)
            )
            identity = GtidSet.parse(transaction.gtid) if isinstance(ended, GtidSet) and transaction.gtid else None
            if identity is not None and isinstance(ended, GtidSet):  # use GTIDs, which are valid also after a fail-over
                (((source, tag), ((number, _),)),) = identity.intervals.items()
                start = BinlogPosition(gtids=ended.without(source, tag, number))
            else:
                start = BinlogPosition(file=transaction.file, position=transaction.pos)
            reader = BinlogReader(
                transport, start, StreamOptions(flavour=ENVELOPE, schema=tables, tables=tables.captured)
            )
            try:
                yield reader
            except UsageError as refused:  # the server does not accept this position
                raise BinlogError(refused.message, refused.hint) from refused
            finally:
                reader.close()

        return opened
