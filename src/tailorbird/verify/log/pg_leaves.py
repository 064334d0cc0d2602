"""Read digests and rows from a PostgreSQL source in short transactions with two positions, `low` and `high`.

The snapshot of a transaction contains everything up to `low`, and nothing after `high` (see `log_stage`). A commit
is flushed a moment before other sessions see it, or longer with a synchronous standby. So `low` is the flush
position of a while before the snapshot, and no commit of that time may still wait for a standby. `high` is the end
of the log after the snapshot was taken."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from cdc.merkle.tree import Digest
from cdc.model.errors import Retriable
from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema
from cdc.model.types import Canonical
from cdc.topology.topology import Source
from ingest.events.log_events import Image
from ingest.ledger.ledger import PartitionLedger
from ingest.postgres import pg_schema
from ingest.postgres.messages import lsn_of
from ingest.postgres.pg_connection import PgConnection, connected, translated
from ingest.postgres.pg_digest import PgDigests, active_sessions, digests_of, tables_now
from ingest.postgres.relations import TableShown
from tailorbird.verify.log.load import Load
from tailorbird.verify.log.log_stage import SourceReading
from tailorbird.verify.log.proc_digests import in_parallel
from tailorbird.verify.log.schemas import OTHER_COLUMNS, compared_schema
from tailorbird.verify.log.spans import Span

_SETTLE = 0.2  # seconds until all changes before a log position are visible
_STANDBY = 5.0  # seconds that a commit may wait for a standby
_BEGIN = "BEGIN TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query_start <= '{}'"
ACTIVE = "active_sessions"  # the status variable that `--max-load` supports for this server


class PgLeaves:
    """The near end for the tables of one source (implements `log_stage.NearSource`).

    All connections compute digests of spans in parallel."""

    def __init__(
        self,
        source: Source,
        connections: Sequence[tuple[PgConnection, Load]],
        tables: Mapping[TableId, tuple[TableSchema, TableShown]],
    ) -> None:
        self._source, self._connections, self._tables = source, connections, tables
        self._log = pg_schema.log_of(connections[0][0], source)

    def table(self, partition_ledger: PartitionLedger) -> _Leaves | str:
        """Return the table of a ledger, or the reason why it cannot be compared."""
        known = self._tables.get(partition_ledger.schema.table_id)
        if known is None:
            return "the source has no such table"
        schema, shown = known
        found = compared_schema(partition_ledger, schema)
        if found is None:
            return OTHER_COLUMNS
        first, *others = (
            _Leaves(
                self._source,
                connection,
                digests_of(connection, self._source, *found, partition_ledger.grid, shown),
                load,
                self._log,
            )
            for connection, load in self._connections
        )
        first.others = tuple(others)
        return first


class _Leaves:
    """One table of a source (implements `log_stage.NearTable`)."""

    def __init__(self, source: Source, connection: PgConnection, digests: PgDigests, load: Load, log: str) -> None:
        self._source, self._connection, self._digests, self._load, self._log = source, connection, digests, load, log
        self.others: tuple[_Leaves, ...] = ()

    def wholes(self, spans: Iterable[Span]) -> Iterator[tuple[Span, SourceReading]]:
        """Yield one digest per span, in order. Spans are read in parallel."""
        return in_parallel((self, *self.others), spans, _Leaves._whole)

    def _whole(self, span: Span) -> SourceReading:
        with self._between() as (low, high):
            found = self._digests.of_range(*span)
        return SourceReading(low=low, high=high, whole=found)

    def digests(self, spans: Sequence[Span]) -> SourceReading:
        """Read the digests of the leaves of these spans. Leaves without rows are missing."""
        found: dict[int, Digest] = {}
        with self._between() as (low, high):
            for first, last in spans:
                found |= self._digests.of_leaves(first, last)
        return SourceReading(low=low, high=high, digests=found)

    def rows(self, leaves: Sequence[int]) -> SourceReading:
        """Read the rows of these leaves (key ranges)."""
        images = list[Image]()
        with self._between() as (low, high):
            if self._digests.sql.grid.ranged:
                for leaf in leaves:
                    images += self._digests.rows(leaf, leaf)
            else:
                images += self._digests.rows(leaves[0], leaves[-1], leaves)
        return SourceReading(low=low, high=high, images=images)

    def keyed(self, keys: Sequence[dict[str, Canonical]]) -> SourceReading:
        """Read the rows with these keys."""
        with self._between() as (low, high):
            images = list(self._digests.keyed(keys))
        return SourceReading(low=low, high=high, images=images)

    @contextmanager
    def _between(self) -> Iterator[tuple[Position, Position]]:
        """Context manager for one transaction. Yields `low` and `high`."""
        self._load.wait()
        low = self._begun()
        with translated(self._source, "look at its position"):
            high = self._place("pg_current_wal_insert_lsn()")
        try:
            yield low, high
        finally:
            with translated(self._source, "end a transaction"):
                self._connection.query("ROLLBACK")

    def _begun(self) -> Position:
        """Take a snapshot and return `low`. Raises Retriable if commits keep waiting for a standby."""
        deadline = time.monotonic() + _STANDBY
        while True:
            with translated(self._source, "look at its position"):
                low = self._place("pg_current_wal_flush_lsn()")
                ((then,),) = self._connection.texts("SELECT clock_timestamp()")
                time.sleep(_SETTLE)
                self._connection.query(_BEGIN)
                ((waiting,),) = self._connection.texts(_WAITING.format(then))
                if waiting == "0":
                    return low
                self._connection.query("ROLLBACK")
            if time.monotonic() > deadline:
                raise Retriable(
                    f"source {self._source.name}: commits wait for a synchronous standby and are not visible yet",
                    "check whether a synchronous standby is unavailable (synchronous_standby_names)",
                )

    def _place(self, function: str) -> Position:
        ((lsn,),) = self._connection.texts(f"SELECT {function}")
        return Position(file=self._log, pos=lsn_of(lsn), gtid_set="", sequence=0)


@contextmanager
def leaves_of(
    source: Source,
    limits: Mapping[str, int] | None = None,
    waits: Callable[[str], object] = lambda why: None,
    threads: int = 1,
) -> Iterator[PgLeaves]:
    """Context manager: open the tables of a source over `threads` connections.

    While a status variable exceeds its limit in `limits`, transactions wait, and `waits` receives the reason. Raises
    Retriable while the source is unavailable, UsageError if a table is missing."""

    def load(connection: PgConnection) -> Load:
        def status(name: str) -> int | None:
            return active_sessions(connection, source) if name.lower() in (ACTIVE, "threads_running") else None

        return Load(limits or {}, status, time.sleep, lambda why: waits(f"source {source.name}: {why}"))

    with ExitStack() as opened:
        connections = [opened.enter_context(connected(source)) for _ in range(threads)]
        yield PgLeaves(source, [(one, load(one)) for one in connections], tables_now(connections[0], source))
