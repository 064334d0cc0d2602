"""Read digests and rows from a MySQL or MariaDB source in short transactions with two positions, `low` and `high`.

The snapshot of a transaction contains everything up to `low`, and nothing after `high` (see `log_stage`). MySQL does
not report the position of a snapshot. So `low` is the set of executed GTIDs before the transaction begins. `high` is
the set after the reads, including GTIDs of sessions that are just committing. MariaDB reports the exact position of
a snapshot. Without GTIDs, a position in the binary log is written before its changes are visible. So the transaction
begins a moment after `low` is read."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from cdc.merkle.tree import Digest
from cdc.model.errors import Retriable
from cdc.model.event import Position
from cdc.model.schema import TableId, TableSchema
from cdc.model.types import Canonical
from cdc.topology.topology import Source
from ingest.binlog.format.gtid import GtidSet
from ingest.events.log_events import Image
from ingest.ledger.ledger import PartitionLedger
from ingest.mysql import mysql_schema
from ingest.mysql.mysql_connection import Connection, connected, query, translated
from ingest.mysql.mysql_digest import DigestSql, digest_sql, keyed_rows, leaf_digests, leaf_rows, range_digest
from tailorbird.verify.log.load import Load
from tailorbird.verify.log.log_stage import SourceReading
from tailorbird.verify.log.proc_digests import in_parallel
from tailorbird.verify.log.schemas import OTHER_COLUMNS, compared_schema
from tailorbird.verify.log.spans import Span

_SETTLE = 0.2  # seconds until all changes before a log position are visible
_OWNED = 5.0  # seconds that a session may own a GTID without committing or releasing it
_LONGEST = 3600.0


class MySqlLeaves:
    """The near end for the tables of one source (implements `log_stage.NearSource`).

    All connections compute digests of spans in parallel, which takes most of the time. Other reads use one
    connection."""

    def __init__(
        self, source: Source, connections: Sequence[tuple[Connection, Load]], schemas: dict[TableId, TableSchema]
    ) -> None:
        self._source, self._connections, self._schemas = source, connections, schemas
        self._connection = connection = connections[0][0]
        with translated(source, "set up a comparison"):
            for one, _ in connections:
                query(one, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            version = str(query(connection, "SELECT VERSION()")[0][0])
            self._maria = "mariadb" in version.lower()
            self._gtids = not self._maria and str(query(connection, "SELECT @@GLOBAL.gtid_mode")[0][0]) == "ON"

    def table(self, partition_ledger: PartitionLedger) -> _Leaves | str:
        """Return the table of a ledger, or the reason why it cannot be compared."""
        schema = self._schemas.get(partition_ledger.schema.table_id)
        if schema is None:
            return "the source has no such table"
        found = compared_schema(partition_ledger, schema)
        if found is None:
            return OTHER_COLUMNS
        sql = digest_sql(
            self._connection, *found, partition_ledger.grid, stands_in=self._source.unrepresentable != "dead_letter"
        )
        first, *others = (
            _Leaves(self._source, connection, sql, load, maria=self._maria, gtids=self._gtids)
            for connection, load in self._connections
        )
        first.others = tuple(others)
        return first


class _Leaves:
    """One table of a source (implements `log_stage.NearTable`)."""

    def __init__(
        self, source: Source, connection: Connection, sql: DigestSql, load: Load, *, maria: bool, gtids: bool
    ) -> None:
        self._source, self._connection, self._sql, self._load = source, connection, sql, load
        self._maria, self._gtids = maria, gtids
        self.others: tuple[_Leaves, ...] = ()

    def wholes(self, spans: Iterable[Span]) -> Iterator[tuple[Span, SourceReading]]:
        """Yield one digest per span, in order. Spans are read in parallel."""
        return in_parallel((self, *self.others), spans, _Leaves._whole)

    def _whole(self, span: Span) -> SourceReading:
        with self._between() as (low, high):
            found = range_digest(self._connection, self._source, self._sql, *span)
        return SourceReading(low=low, high=high[0], whole=found)

    def digests(self, spans: Sequence[Span]) -> SourceReading:
        """Read the digests of the leaves of these spans. Leaves without rows are missing."""
        found: dict[int, Digest] = {}
        with self._between() as (low, high):
            for first, last in spans:
                found |= leaf_digests(self._connection, self._source, self._sql, first, last)
        return SourceReading(low=low, high=high[0], digests=found)

    def rows(self, leaves: Sequence[int]) -> SourceReading:
        """Read the rows of these leaves (key ranges)."""
        images = list[Image]()
        with self._between() as (low, high):
            if self._sql.grid.ranged:
                for leaf in leaves:
                    images += leaf_rows(self._connection, self._source, self._sql, leaf, leaf)
            else:
                images += leaf_rows(self._connection, self._source, self._sql, leaves[0], leaves[-1], leaves)
        return SourceReading(low=low, high=high[0], images=images)

    def keyed(self, keys: Sequence[dict[str, Canonical]]) -> SourceReading:
        """Read the rows with these keys."""
        with self._between() as (low, high):
            images = list(keyed_rows(self._connection, self._source, self._sql, keys))
        return SourceReading(low=low, high=high[0], images=images)

    @contextmanager
    def _between(self) -> Iterator[tuple[Position, list[Position]]]:
        """Context manager for one transaction. Yields `low`, and a list that has `high` once the transaction has
        ended."""
        connection, high = self._connection, list[Position]()
        self._load.wait()
        with translated(self._source, "look at its position"):
            low = self._executed()
            if not (self._gtids or self._maria):
                time.sleep(_SETTLE)
            query(connection, "START TRANSACTION WITH CONSISTENT SNAPSHOT")
            if self._maria:
                low = self._shown()
        try:
            yield low, high
        finally:
            with translated(self._source, "end a transaction"):
                query(connection, "COMMIT")
        with translated(self._source, "look at its position"):
            high.append(low if self._maria else self._settled() if self._gtids else self._executed())

    def _executed(self) -> Position:
        if not self._gtids:
            return mysql_schema.head(self._connection, self._source)
        executed = str(query(self._connection, "SELECT @@GLOBAL.gtid_executed")[0][0]).replace("\n", "")
        return Position(file="", pos=0, gtid_set=executed, sequence=0)

    def _shown(self) -> Position:
        """Return the position of MariaDB's snapshot."""
        status = dict(query(self._connection, "SHOW STATUS LIKE 'binlog_snapshot_%'"))
        file, pos = str(status["Binlog_snapshot_file"]), int(status["Binlog_snapshot_position"])
        gtids = str(query(self._connection, "SELECT BINLOG_GTID_POS(%s, %s)", file, pos)[0][0] or "")
        return Position(file=file, pos=pos, gtid_set=gtids, sequence=0)

    def _settled(self) -> Position:
        """Return the set of executed GTIDs, once all GTIDs that sessions own now are executed or released."""
        deadline = time.monotonic() + _OWNED
        waiting: GtidSet | None = None
        while True:
            owned = self._owned()  # read before the executed set, so a committing GTID is in one of the two
            executed = self._executed()
            done = GtidSet.parse(executed.gtid_set)
            first = waiting is None
            waiting = GtidSet(
                {
                    source: spans
                    for source, spans in (owned if waiting is None else waiting).intervals.items()
                    if not done.covers(GtidSet({source: spans})) and (first or source in owned.intervals)
                }
            )
            if not waiting:
                return executed
            if time.monotonic() > deadline:
                raise Retriable(f"source {self._source.name}: {waiting} is owned, and neither committed nor released")
            time.sleep(0.002)

    def _owned(self) -> GtidSet:
        text = str(query(self._connection, "SELECT @@GLOBAL.gtid_owned")[0][0] or "")
        return GtidSet.parse(re.sub(r"#\d+", "", text))


@contextmanager
def leaves_of(
    source: Source,
    limits: Mapping[str, int] | None = None,
    waits: Callable[[str], object] = lambda why: None,
    threads: int = 1,
) -> Iterator[MySqlLeaves]:
    """Context manager: open the tables of a source over `threads` connections.

    While a status variable exceeds its limit in `limits`, transactions wait, and `waits` receives the reason. Raises
    Retriable while the source is unavailable."""

    def load(connection: Connection) -> Load:
        def status(name: str) -> int | None:
            with translated(source, "look at its load"):
                found = query(connection, "SHOW GLOBAL STATUS LIKE %s", name.replace("_", "\\_"))
            return int(found[0][1]) if found and str(found[0][1]).isdigit() else None

        return Load(limits or {}, status, time.sleep, lambda why: waits(f"source {source.name}: {why}"))

    with ExitStack() as opened:
        connections = [opened.enter_context(connected(source, read_timeout=_LONGEST)) for _ in range(threads)]
        schemas = mysql_schema.captured_schemas(connections[0], source)
        yield MySqlLeaves(source, [(one, load(one)) for one in connections], schemas)
