"""A PostgreSQL server as a source: its end, tables, snapshot and log, each on a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import Gauge

from cdc.topology.topology import Source
from cdc.words.errors import Retriable
from cdc.words.event import Position
from cdc.words.schema import TableId
from ingest.capture.groups import Lull
from ingest.facts.foreign_keys import ForeignKeys
from ingest.facts.tables import Tables
from ingest.postgres import pg_schema, pg_slot
from ingest.postgres.pg_connection import connected
from ingest.postgres.pg_snapshot import PgChunks, Streamed
from ingest.postgres.pg_stream import PgFeed
from ingest.postgres.pgoutput import PgFacts
from ingest.records.seams import Checkpoint, Seen, Stream

KEPT = Gauge("tailorbird_slot_kept_bytes", "Bytes of its log that the server keeps for a slot", ["source"])
HEARTBEAT = 1.0  # seconds between questions for an idle server's place: how often CaughtUp is repeated
BUSY = 0.02  # the same while a snapshot waits for its turns
GAP = 0.05  # seconds between commits of transactions that come in close order


class PgSource:
    """Implements `seams.SourceServer`; makes publication and slot where they are missing."""

    def __init__(self, settings: Source, topology: str) -> None:
        self._settings, self._names = settings, pg_slot.names_of(topology, settings)
        self._streamed = Streamed()
        self._feed: PgFeed | None = None

    def head(self) -> Position:
        """See `seams.SourceServer`. Who begins here has a slot from then on; the first chunk of each table waits until
        what was committed before can be seen.
        """
        with connected(self._settings) as connection:
            pg_slot.have_slot(connection, self._settings, self._names)
            return pg_schema.end_of_log(connection, self._settings)

    def seen(self) -> Seen:
        """See `seams.SourceServer`; UsageError, with the remedy, when server or tables cannot be captured. What is
        captured is published from then on.
        """
        source = self._settings
        with connected(source) as connection:
            pg_schema.check_server(connection, source)
            tables = pg_schema.tables_of(connection, source)
            wanted = [
                name for name in tables
                if source.captures(TableId(source=source.name, database=name[0], table=name[1]))
            ]  # fmt: skip
            pg_slot.have_publication(connection, source, self._names, wanted)
            return pg_schema.seen_of(connection, tables)

    def holds(self, position: Position) -> bool:
        """See `seams.SourceServer`: nothing before the place that was confirmed last."""
        with connected(self._settings, replication=True) as connection:
            return pg_slot.holds(connection, self._settings, self._names, position)

    def foreign_keys(self) -> ForeignKeys:
        """None: the server logs what they change as any other change."""
        return ForeignKeys()

    def release(self, position: Position) -> None:
        """See `seams.SourceServer`: the slot lets go what lies before."""
        if self._feed is not None:
            self._feed.confirm(position.pos)

    @contextmanager
    def chunks(self) -> Iterator[PgChunks]:
        """The reader of snapshots' chunks."""
        reader = PgChunks(self._settings, self._streamed)
        try:
            yield reader
        finally:
            reader.close()

    @contextmanager
    def stream(self, checkpoint: Checkpoint, tables: Tables, *, busy: bool) -> Iterator[Stream]:
        """See `seams.SourceServer`; PositionLost when the slot does not continue the position."""
        source, names, position = self._settings, self._names, checkpoint.position
        with connected(source, replication=True) as log, connected(source) as beside:
            pg_slot.check_position(log, source, names, position)
            types = pg_schema.types_of(beside, source)

            def look() -> None:
                slot = pg_slot.slot_of(beside, source, names)
                KEPT.labels(source.name).set(0 if slot is None else slot.kept)
                if fresh := pg_slot.unpublished(beside, source, names):
                    raise Retriable(f"source {source.name}: {fresh[0]} was made anew; the session begins anew")

            file = pg_schema.log_of(beside, source)
            feed = PgFeed(log, source, names, position.pos, heartbeat=BUSY if busy else HEARTBEAT, look=look)
            feed.begin(lambda: pg_slot.displace(beside, source, names))
            self._feed = feed
            try:
                yield PgFacts(
                    feed,
                    tables,
                    types,
                    lambda oid: pg_schema.table_by_oid(beside, source, oid, types),
                    checkpoint,
                    log=file,
                    idle=Lull(feed.nothing_within, 0.0 if busy else GAP, time.monotonic),
                    streamed=self._streamed.add,
                )
            finally:
                self._feed = None
