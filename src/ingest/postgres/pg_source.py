"""A PostgreSQL server as a source: end of the log, tables, snapshots and stream, each over its own connection."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from cdc.model.errors import UsageError
from cdc.model.event import Position
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.capture.groups import IdleDetector
from ingest.ddl.catalog import TableName
from ingest.events.foreign_keys import ForeignKeys
from ingest.events.tables import Tables
from ingest.postgres import pg_publication, pg_schema, pg_slot
from ingest.postgres.pg_connection import connected
from ingest.postgres.pg_snapshot import PgChunks, StreamedTransactions
from ingest.postgres.pg_stream import PgFeed
from ingest.postgres.pg_watch import PgWatch
from ingest.postgres.pgoutput import WATCHED, PgEvents
from ingest.records.capture_interfaces import Checkpoint, ServerTables, Stream

KEPT = Gauge("tailorbird_slot_kept_bytes", "Bytes of its log that the server keeps for a slot", ["source"])
ALARM = Gauge("tailorbird_slot_alarm_bytes", "`alarm_slot` of the source: more is an alarm", ["source"])
HEARTBEAT = 1.0  # seconds between status queries to an idle server; each answer becomes a CaughtUp event
KEPT_EVERY = 5.0  # seconds between queries for the size of the retained log
BUSY = 0.02  # the same as `HEARTBEAT` while a snapshot is running, which advances at CaughtUp events
GAP = 0.05  # minimum seconds between commits of single transactions


class PgSource:
    """A PostgreSQL source; implements `SourceServer`. Creates its publication and slot if they do not exist."""

    def __init__(self, settings: Source, topology: str) -> None:
        self._settings, self._names = settings, pg_slot.names_of(topology, settings)
        ALARM.labels(settings.name).set(settings.alarm_slot)
        self._streamed = StreamedTransactions()
        self._feed: PgFeed | None = None
        self._left_out: frozenset[TableName] = frozenset()

    def head(self) -> Position:
        """Implements `SourceServer.head`.

        Also creates the slot. A table's first chunk waits until all transactions have ended that had written and were
        running when it was requested (`pg_snapshot`).
        """
        with connected(self._settings) as connection:
            pg_slot.have_slot(connection, self._settings, self._names)
            return pg_schema.end_of_log(connection, self._settings)

    def seen(self) -> ServerTables:
        """Implements `SourceServer.seen`, and publishes the captured tables, except those whose application that would
        harm.

        Raises UsageError, with the remedy, if the server cannot be captured, or a listed table at a first start.
        """
        source = self._settings
        with connected(source) as connection:
            pg_schema.check_server(connection, source)
            publication = pg_publication.publication_of(connection, source, self._names)
            tables = pg_schema.tables_of(connection, source)
            wanted = {name: one for name, one in tables.items() if source.captures(self._id(name))}
            refused = pg_publication.refusals(connection, source, wanted, publication)
            missing = {
                (table.database, table.table): pg_schema.absent(source, table)
                for table in source.tables if (table.database, table.table) not in tables
            }  # fmt: skip
            # nothing is captured yet: the user must decide. A lost slot leaves its publication
            if not publication.number and pg_slot.slot_of(connection, source, self._names) is None:
                listed = {(table.database, table.table) for table in source.tables}
                for name, why in (missing | refused).items():
                    if name in listed:
                        raise UsageError(why.why, why.remedy)
            kept = {name: one for name, one in wanted.items() if name not in refused}
            pg_publication.have_publication(connection, source, self._names, publication, kept, refused)
            self._left_out = frozenset(refused)
            return pg_schema.seen_of(connection, tables, refused)

    def _id(self, name: TableName) -> TableId:
        return TableId(source=self._settings.name, database=name[0], table=name[1])

    def holds(self, position: Position) -> bool:
        """Implements `SourceServer.holds`. Returns False for positions before the last confirmed one."""
        with connected(self._settings, replication=True) as connection:
            return pg_slot.holds(connection, self._settings, self._names, position)

    def foreign_keys(self) -> ForeignKeys:
        """Return no foreign keys: the server logs cascaded changes like all others."""
        return ForeignKeys()

    def release(self, position: Position) -> None:
        """Implements `SourceServer.release`: the slot then releases the log before the position."""
        if self._feed is not None:
            self._feed.confirm(position.pos)

    @contextmanager
    def chunks(self) -> Iterator[PgChunks]:
        """Return a chunk reader for snapshots, which is closed after the block."""
        reader = PgChunks(self._settings, self._streamed)
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        """Implements `SourceServer.stream`. Raises PositionLost if the slot does not continue at the position."""
        source, names, position = self._settings, self._names, checkpoint.position
        with connected(source, replication=True) as log, connected(source) as beside:
            pg_slot.check_position(log, source, names, position)
            types = pg_schema.types_of(beside, source)

            known = checkpoint.state.get(WATCHED, {})
            watch = PgWatch(beside, source, names, tables, known, self._left_out.__contains__)
            watch.look()
            kept_next = 0.0

            def look() -> None:
                nonlocal kept_next
                if time.monotonic() >= kept_next:
                    kept_next = time.monotonic() + KEPT_EVERY
                    slot = pg_slot.slot_of(beside, source, names)
                    KEPT.labels(source.name).set(0 if slot is None else slot.kept)
                watch.look()

            file = pg_schema.log_of(beside, source)
            feed = PgFeed(log, source, names, position.pos, heartbeat=BUSY if busy else HEARTBEAT, look=look)
            feed.begin(lambda: pg_slot.displace(beside, source, names))
            self._feed = feed
            try:
                yield PgEvents(
                    feed,
                    tables,
                    types,
                    lambda oid: pg_schema.table_by_oid(beside, source, oid, types),
                    checkpoint,
                    log=file,
                    idle=IdleDetector(feed.nothing_within, 0.0 if busy else GAP, time.monotonic),
                    streamed=self._streamed.add,
                    watch=watch,
                    left_out=self._left_out,
                    full=source.replica_identity == "full",
                )
            finally:
                self._feed = None
