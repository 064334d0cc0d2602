"""Assign the numbers of a feed: the rows without a number get the next ones, after the commit of their transaction.

A reader of a feed continues after the greatest number that it has read. So a number must become visible only after all
smaller ones, and never be used twice, also if its row was changed or deleted since. One row per table in the table of
counters has the last number. A process that assigns numbers updates this row first, and so waits until another process
has committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import sqlalchemy as sa
from sqlalchemy import exc

from cdc.model.errors import Retriable, UsageError
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from ingest.poll.feed_ddl import COUNTERS, LAST, NAME, counters
from ingest.poll.sql_reader import translated


class FeedAssigner:
    """Assigns the numbers of one table over one connection, which the caller closes. Its login must be allowed to
    UPDATE the table and its counter."""

    def __init__(
        self, connection: sa.Connection, source: Source, table: TableId, cursor: str, *, first: int = 0
    ) -> None:  # fmt: skip
        self._connection, self._source, self._name, self._first = connection, source, table, first
        with translated(source, f"read the columns of {table}"):
            self._table = self._reflected(table.table, "correct `database:` (the schema) or `tables:`")
            create = counters(connection.dialect.name, table)[0].replace("IF NOT EXISTS ", "")
            self._counters = self._reflected(COUNTERS, f"tailorbird poll ddl, or: {create}")
        self._key = list(self._table.primary_key.columns)
        if cursor not in self._table.c or not self._key:
            raise UsageError(f"table {table} has no column {cursor}, or no primary key", "tailorbird poll ddl")
        self._cursor = self._table.c[cursor]
        self._own = self._counters.c[NAME] == table.table
        self._mark = "p"  # begin of parameters, whose names must not be those of columns
        while any(str(column.name).lower().startswith(self._mark) for column in self._table.columns):
            self._mark += "p"

    def assign(self, limit: int) -> int:
        """Assign numbers to at most `limit` rows, in one transaction. Returns how many rows got one.

        Rows that other transactions hold are left for the next time, where the database can skip them. Raises Retriable
        if another process has created the counter at the same time, or has used a number.
        """
        last, marks = self._counters.c[LAST], [f"{self._mark}k{i}" for i in range(len(self._key))]
        columns = [column.label(mark) for mark, column in zip(marks, self._key, strict=True)]
        waiting = sa.select(*columns).where(self._cursor.is_(None)).limit(limit).with_for_update(skip_locked=True)
        same = sa.and_(*(column == sa.bindparam(mark) for mark, column in zip(marks, self._key, strict=True)))
        given = f"{self._mark}n"
        numbered = (
            sa.update(self._table).where(same, self._cursor.is_(None)).values({self._cursor.name: sa.bindparam(given)})
        )
        with translated(self._source, f"assign numbers to {self._name}"), self._once(), self._connection.begin():
            # the first statement locks the counter
            held = self._connection.execute(sa.update(self._counters).where(self._own).values({LAST: last + 0}))
            greatest = int(self._connection.execute(sa.select(sa.func.max(self._cursor))).scalar_one() or 0)
            if held.rowcount == 0:
                self._begin(greatest)
            number = int(self._connection.execute(sa.select(last).where(self._own)).scalar_one())
            number = max(number, greatest, self._first - 1)  # the application may have assigned a greater one
            rows = [dict(row) for row in self._connection.execute(waiting).mappings()]
            if rows:
                self._connection.execute(numbered, [{**row, given: number + at} for at, row in enumerate(rows, 1)])
            self._connection.execute(sa.update(self._counters).where(self._own).values({LAST: number + len(rows)}))
            return len(rows)

    def waiting(self, limit: int) -> int:
        """Return how many rows have no number, counted up to `limit`."""
        found = sa.select(sa.literal(1)).where(self._cursor.is_(None)).select_from(self._table).limit(limit)
        with translated(self._source, f"count rows of {self._name}"), self._connection.begin():
            return int(self._connection.execute(sa.select(sa.func.count()).select_from(found.subquery())).scalar_one())

    @contextmanager
    def _once(self) -> Iterator[None]:
        """Turn a conflict of keys into Retriable."""
        try:
            yield
        except exc.IntegrityError as error:
            what = f"source {self._source.name}: another process assigns numbers to {self._name}"
            raise Retriable(what) from error

    def _begin(self, greatest: int) -> None:
        """Create the counter of the table. Raises UsageError if the table has numbers and the first new one is not
        given: rows with greater numbers may have been changed or deleted, after a reader has read them."""
        if greatest and not self._first:
            what = f"source {self._source.name}: {self._name} has numbers up to {greatest}, but no counter"
            raise UsageError(what, "`--table` and `--first N`, a number above all that were ever assigned")
        values: Mapping[str, object] = {NAME: self._name.table, LAST: greatest}
        self._connection.execute(sa.insert(self._counters).values(values))

    def _reflected(self, name: str, remedy: str) -> sa.Table:
        try:
            return sa.Table(name, sa.MetaData(), schema=self._name.database or None, autoload_with=self._connection)
        except exc.NoSuchTableError as error:
            raise UsageError(f"source {self._source.name}: no table {self._name.database}.{name}", remedy) from error
        finally:
            self._connection.rollback()
