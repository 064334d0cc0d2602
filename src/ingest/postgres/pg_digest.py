"""Read digests and rows of tables from a PostgreSQL server, equal to those of `cdc.merkle` over the same rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cdc.merkle.canonical import CoveredColumns
from cdc.merkle.leaves import Grid
from cdc.merkle.tree import Digest
from cdc.model.errors import UsageError
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.ddl.catalog import TableName
from ingest.events.changed import TablesChanged
from ingest.events.log_events import Image, Row
from ingest.events.stand_in import stand_in
from ingest.events.tables import Tables
from ingest.postgres import pg_schema, selects
from ingest.postgres.digest_sql import PgDigestSql
from ingest.postgres.pg_connection import PgConnection, Rows, translated
from ingest.postgres.pg_snapshot import KEYS
from ingest.postgres.relations import TableShown, image_of


class PgDigests:
    """Digests of one table over one connection; the caller begins and ends the transaction.

    `shown` has the value readers of the columns. Raises Retriable if the server is unavailable, or the table was
    altered.
    """

    def __init__(self, connection: PgConnection, source: Source, sql: PgDigestSql, shown: TableShown) -> None:
        self._connection, self._source, self.sql = connection, source, sql
        self._reads = tuple((column.name, shown.reads[column.name]) for column in sql.schema.columns)

    def of_leaves(self, first: int, last: int) -> dict[int, Digest]:
        """Return the digest of each leaf from `first` to `last` that has rows, as the transaction sees them."""
        found = self._query(self.sql.of_leaves(first, last), "compute digests")
        return {int(leaf): _digest(count, bits) for leaf, count, bits in found if leaf is not None}

    def of_range(self, first: int, last: int) -> Digest:
        """Return one digest of all rows in the leaves `first` to `last`."""
        ((count, bits),) = self._query(self.sql.of_range(first, last), "compute a digest")
        return _digest(count, bits)

    def rows(self, first: int, last: int, among: Sequence[int] = ()) -> Iterator[Image]:
        """Yield the rows of the leaves `first` to `last` (or of those in `among`) as images, as a snapshot does."""
        return self._images(self._query(self.sql.rows(first, last, among), "read rows"))

    def keyed(self, keys: Sequence[Row]) -> Iterator[Image]:
        """Yield the rows with these keys as images."""
        for at in range(0, len(keys), KEYS):
            rows = selects.rows_of(self.sql.schema.table_id, partitioned=self.sql.partitioned)
            statement, arguments = selects.select_keys(self.sql.schema, rows, keys[at : at + KEYS])
            yield from self._images(self._query(statement, "read rows", arguments))

    def _query(self, statement: str, doing: str, arguments: Sequence[bytes | None] = ()) -> Rows:
        with translated(self._source, f"{doing} of {self.sql.schema.table_id}"):
            return self._connection.query(statement, arguments)

    def _images(self, rows: Rows) -> Iterator[Image]:
        for row in rows:
            yield stand_in(image_of(self._reads, iter(row)), self.sql.schema, self._source.unrepresentable)


def tables_now(connection: PgConnection, source: Source) -> dict[TableId, tuple[TableSchema, TableShown]]:
    """Return the current schemas and value readers of the captured tables, without tables that cannot be published.

    Raises UsageError for a listed table that does not exist.
    """
    shown, change = _changed_now(connection, source)
    return {
        schema.table_id: (schema, shown[schema.table_id.database, schema.table_id.table]) for schema in change.schemas
    }


def merged_now(
    connection: PgConnection, source: Source
) -> tuple[dict[TableId, TableSchema], Mapping[TableName, TableShown]]:
    """Return the current schemas of the captured tables and of merged tables, and what the server shows of tables."""
    shown, change = _changed_now(connection, source)
    return {schema.table_id: schema for schema in (*change.schemas, *change.merged)}, shown


def _changed_now(connection: PgConnection, source: Source) -> tuple[Mapping[TableName, TableShown], TablesChanged]:
    shown = pg_schema.tables_of(connection, source)
    for table in source.tables:
        if (table.database, table.table) not in shown:
            raise UsageError(*pg_schema.absent(source, table))
    left_out = {
        name: why
        for name, one in shown.items()
        if (
            why := pg_schema.refused(
                source, TableId(source=source.name, database=name[0], table=name[1]), one, connection.version
            )
        )
        is not None
    }
    seen = pg_schema.seen_of(connection, shown, left_out)

    def captured(database: str, table: str) -> bool:
        return source.captures(TableId(source=source.name, database=database, table=table))

    tables = Tables(source.name, source.databases, captured, seen.dialect, rule_of=source.rule_of, merged=source.merged)
    return shown, tables.begin(seen.catalog)


def digests_of(
    connection: PgConnection,
    source: Source,
    schema: TableSchema,
    covered: CoveredColumns,
    grid: Grid,
    shown: TableShown,
) -> PgDigests:
    """Return a reader of a table's digests over a connection. `shown` is from `tables_now`."""
    with translated(source, f"read the columns of {schema.table_id}"):
        oids = connection.texts(
            f"SELECT attname FROM pg_attribute WHERE attrelid = {shown.oid} AND atttypid = 'oid'::regtype"
        )
    cast = (grid.column,) in oids
    return PgDigests(
        connection,
        source,
        PgDigestSql(schema=schema, covered=covered, grid=grid, cast=cast, partitioned=shown.partitioned),
        shown,
    )


def active_sessions(connection: PgConnection, source: Source) -> int:
    """Return the number of sessions, other than Tailorbird's, that are executing a statement."""
    with translated(source, "look at its load"):
        ((count,),) = connection.texts(
            "SELECT count(*) FROM pg_stat_activity WHERE state = 'active' AND backend_type = 'client backend'"
            " AND application_name NOT LIKE 'tailorbird %'"
        )
    return int(count)


def _digest(count: bytes | None, bits: bytes | None) -> Digest:
    if bits is None or not int(count or b"0"):
        return Digest()
    return Digest(int(count or b"0"), int(bits, 2))
