"""Assign the numbers of a feed: the rows without a number get the next ones, after the commit of their transaction.

A reader of a feed continues after the greatest number that it has read. So a number must become visible only after all
smaller ones, and never be used twice, also if its row was changed or deleted since. One row per table in the table of
counters has the last number. Whoever assigns updates it first, and so waits until another process has committed.
"""

from __future__ import annotations

from collections.abc import Mapping

import sqlalchemy as sa
from sqlalchemy import exc

from cdc.model.errors import UsageError
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.poll.feed_ddl import COUNTERS, LAST, NAME, counters
from ingest.poll.sql_reader import translated


class FeedAssigner:
    """Assigns the numbers of one table over one connection, which the caller closes. Its login must be allowed to
    UPDATE the table and its counter."""

    def __init__(self, connection: sa.Connection, source: Source, table: TableId, cursor: str) -> None:
        self._connection, self._source, self._name = connection, source, table
        with translated(source, f"read the columns of {table}"):
            self._table = self._reflected(table.table, "correct `database:` (the schema) or `tables:`")
            create = counters(connection.dialect.name, table)[0].replace("IF NOT EXISTS ", "")
            self._counters = self._reflected(COUNTERS, f"tailorbird poll ddl, or: {create}")
        self._key = list(self._table.primary_key.columns)
        if cursor not in self._table.c or not self._key:
            raise UsageError(f"table {table} has no column {cursor}, or no primary key", "tailorbird poll ddl")
        self._cursor = self._table.c[cursor]
        self._own = self._counters.c[NAME] == table.table

    def assign(self, limit: int) -> int:
        """Assign numbers to at most `limit` rows, in one transaction. Returns how many rows got one.

        Rows that other transactions hold are left for the next time, where the database can skip them.
        """
        last, columns = self._counters.c[LAST], [column.label(f"k{i}") for i, column in enumerate(self._key)]
        waiting = sa.select(*columns).where(self._cursor.is_(None)).limit(limit).with_for_update(skip_locked=True)
        same = sa.and_(*(column == sa.bindparam(f"k{i}") for i, column in enumerate(self._key)))
        numbered = (
            sa.update(self._table).where(same, self._cursor.is_(None)).values({self._cursor.name: sa.bindparam("n")})
        )
        with translated(self._source, f"assign numbers to {self._name}"), self._connection.begin():
            # the first statement locks the counter
            held = self._connection.execute(sa.update(self._counters).where(self._own).values({LAST: last + 0}))
            if held.rowcount == 0:
                self._begin()
            number = int(self._connection.execute(sa.select(last).where(self._own)).scalar_one())
            rows = [dict(row) for row in self._connection.execute(waiting).mappings()]
            if not rows:
                return 0
            given = [{**row, "n": number + place} for place, row in enumerate(rows, 1)]
            self._connection.execute(numbered, given)
            self._connection.execute(sa.update(self._counters).where(self._own).values({LAST: number + len(rows)}))
            return len(rows)

    def waiting(self, limit: int) -> int:
        """Return how many rows have no number, counted up to `limit`."""
        found = sa.select(sa.literal(1)).where(self._cursor.is_(None)).select_from(self._table).limit(limit)
        with translated(self._source, f"count rows of {self._name}"), self._connection.begin():
            return int(self._connection.execute(sa.select(sa.func.count()).select_from(found.subquery())).scalar_one())

    def _begin(self) -> None:
        """Create the counter of the table. It begins at the greatest number that the application has assigned."""
        greatest = self._connection.execute(sa.select(sa.func.max(self._cursor))).scalar_one()
        values: Mapping[str, object] = {NAME: self._name.table, LAST: int(greatest or 0)}
        self._connection.execute(sa.insert(self._counters).values(values))

    def _reflected(self, name: str, remedy: str) -> sa.Table:
        try:
            return sa.Table(name, sa.MetaData(), schema=self._name.database or None, autoload_with=self._connection)
        except exc.NoSuchTableError as error:
            raise UsageError(f"source {self._source.name}: no table {self._name.database}.{name}", remedy) from error
        finally:
            self._connection.rollback()
