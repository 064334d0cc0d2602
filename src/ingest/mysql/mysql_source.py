"""A MySQL or MariaDB server as a source: its end, tables, snapshot and log, each on a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from cdc.topology.topology import Source
from cdc.words.event import Position
from ingest.binlog import BinlogPosition, BinlogReader, StreamOptions
from ingest.binlog.format.errors import PositionGone
from ingest.binlog.format.gtid import parse_gtid_set
from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.binlog.transports.uri import ServerAddress
from ingest.capture.groups import Lull
from ingest.facts.foreign_keys import ForeignKeys
from ingest.facts.logged import ENVELOPE, LoggedFacts
from ingest.facts.tables import Tables
from ingest.mysql import mysql_schema
from ingest.mysql.mysql_connection import connected, ssl_of
from ingest.mysql.mysql_foreign_keys import foreign_keys
from ingest.mysql.mysql_snapshot import MySqlChunks
from ingest.records.seams import Checkpoint, PositionLost, Seen, Stream

HEARTBEAT = 1.0  # seconds between signs of life of an idle server: how often CaughtUp is repeated
BUSY = 0.02  # the same while a snapshot waits for its turns
GAP = 0.05  # seconds between commits of transactions that come in close order


class MySqlSource:
    """Implements `seams.Source`; checks the server's settings whenever it is asked for tables."""

    def __init__(self, settings: Source) -> None:
        self._settings = settings

    def head(self) -> Position:
        """See `seams.Source`."""
        with connected(self._settings) as connection:
            return mysql_schema.head(connection, self._settings)

    def seen(self) -> Seen:
        """See `seams.Source`; Fatal or UsageError, with the remedy, when server or tables cannot be captured."""
        with connected(self._settings) as connection:
            mysql_schema.check_server(connection, self._settings)
            return mysql_schema.seen(connection, self._settings)

    def holds(self, position: Position) -> bool:
        """See `seams.Source`."""
        with connected(self._settings) as connection:
            return mysql_schema.holds(connection, self._settings, position)

    def foreign_keys(self) -> ForeignKeys:
        """See `seams.Source`."""
        with connected(self._settings) as connection:
            return foreign_keys(connection, self._settings)

    def release(self, position: Position) -> None:
        """See `seams.Source`: the server keeps its log as long as it is told to, whoever reads it."""

    @contextmanager
    def chunks(self) -> Iterator[MySqlChunks]:
        """The reader of snapshots' chunks."""
        reader = MySqlChunks(self._settings, lock=self._settings.snapshot_locking_mode == "minimal")
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        """See `seams.Source`; Fatal when the log no longer continues the position."""
        position = checkpoint.position
        with connected(self._settings) as connection:
            mysql_schema.check_position(connection, self._settings, position)
        transport = MysqlTransport(self._address(BUSY if busy else HEARTBEAT))
        gtids = parse_gtid_set(position.gtid_set) if position.gtid_set else None
        options = StreamOptions(flavour=ENVELOPE, schema=tables, tables=tables.captured)
        reader = BinlogReader(
            transport, BinlogPosition(file=position.file, position=position.pos, gtids=gtids), options
        )
        try:
            yield LoggedFacts(reader, tables, Lull(transport.idle, 0.0 if busy else GAP, time.monotonic))
        except PositionGone as gone:
            raise PositionLost(f"source {self._settings.name}: {gone.message}", gone.hint) from gone
        finally:
            reader.close()

    def _address(self, heartbeat: float) -> ServerAddress:
        source = self._settings
        return ServerAddress(
            host=source.hostname,
            port=source.port,
            user=source.username,
            password=source.password,
            server_id=source.server_id,
            ssl=ssl_of(source),
            heartbeat=heartbeat,
            reconnect=False,
        )
