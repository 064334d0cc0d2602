"""Reader of a polled MySQL or MariaDB server. Values are identical to those from its binary log."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from cdc.model.errors import UsageError
from cdc.model.polling import Poll
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.events.log_events import Image
from ingest.events.values import FromText, from_text, image_of, select_expression
from ingest.mysql.mysql_connection import Connection, query, translated
from ingest.mysql.mysql_schema import table_schemas
from ingest.poll.ddl import check_cursor
from ingest.poll.poll_interfaces import Ask, Look, PolledRow, cursor_of, fingerprint, moment_of
from ingest.records.chunks import quoted, select_rows, stored, walkable

_OLDEST = dt.datetime(1000, 1, 1)  # used instead of the zero date
_UTC = "UTC_TIMESTAMP(6)"
# a DATETIME is in the time zone of the session that wrote it: the server's, unless the application sets another
_WALL = f"COALESCE(CONVERT_TZ({_UTC}, '+00:00', @@GLOBAL.time_zone), {_UTC})"


class MySqlReader:
    """Reader over one connection, which the caller closes; implements `poll_interfaces.PollReader`."""

    def __init__(self, connection: Connection, source: Source, poll: Poll) -> None:
        self._connection, self._source, self._poll = connection, source, poll
        self._feed = poll.mode == "feed"
        self._readers: dict[TableSchema, list[tuple[str, FromText]]] = {}

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        """Return the current schemas of the polled tables. Implements `PollReader`."""
        found = table_schemas(self._connection, self._source, known)
        for schema in found.values():
            check_cursor(schema, self._poll, self._source)
        return found

    def look(self, schema: TableSchema) -> Look:
        """Return the server's clock and the table's greatest cursor. Implements `PollReader`."""
        column = schema.column(self._poll.cursor)
        clock_sql = _WALL if column is not None and column.type.kind == "datetime" else _UTC
        with translated(self._source, f"poll {schema.table_id}"):
            ((clock,),) = query(self._connection, f"SELECT {clock_sql}")
            sql = f"SELECT MAX({quoted(self._poll.cursor)}) FROM {_name(schema)}"
            ((newest,),) = query(self._connection, sql)
        return Look(clock=cursor_of(_moment(clock)), newest=None if newest is None else self._cursor(newest))

    def page(self, schema: TableSchema, ask: Ask) -> list[PolledRow]:
        """Return the requested rows in order. Implements `PollReader`."""
        names = [column.name for column in schema.columns]
        columns = ", ".join(select_expression(column, quoted(column.name)) for column in schema.columns)
        cursor, keys = quoted(self._poll.cursor), [quoted(name) for name in schema.primary_key]
        condition, arguments = self._condition(ask, cursor, keys)
        sql = (
            f"SELECT {columns} FROM {_name(schema)} WHERE {condition} ORDER BY {', '.join([cursor, *keys])} "
            f"LIMIT {ask.limit}"
        )
        with translated(self._source, f"poll {schema.table_id}"):
            rows = self._query(sql, arguments)
        readers = self._readers_of(schema)
        at, key_at = names.index(self._poll.cursor), [names.index(name) for name in schema.primary_key]
        return [
            PolledRow(
                cursor=self._cursor(row[at]),
                key=tuple(row[i] for i in key_at),
                fingerprint=fingerprint(row),
                image=image_of(readers, row),
            )
            for row in rows
        ]

    def walk(
        self, schema: TableSchema, after: list[Any] | None, where: str, limit: int
    ) -> tuple[list[Image], list[Any] | None]:
        """Implements `PollReader.walk`. It uses the SELECT of snapshots of captured tables."""
        if not walkable(schema):
            raise UsageError(
                f"the key of {schema.table_id} cannot be read page by page",
                "use integers, decimals, texts or times as the key",
            )
        with translated(self._source, f"read {schema.table_id}"):
            rows = query(self._connection, select_rows(schema, after, None, where, limit))
        width, readers = len(schema.columns), self._readers_of(schema)
        last = [stored(value) for value in rows[-1][width:]] if len(rows) == limit else None
        return [image_of(readers, row[:width]) for row in rows], last

    def backlog(self, schema: TableSchema, start: int | None, limit: int) -> int:
        """Implements `PollReader.backlog`."""
        condition, arguments = self._condition(Ask(start=start, after=None, limit=limit), quoted(self._poll.cursor), [])
        return self._counted(schema, condition, arguments, limit)

    def unassigned(self, schema: TableSchema, limit: int) -> int:
        """Implements `PollReader.unassigned`."""
        return self._counted(schema, f"{quoted(self._poll.cursor)} IS NULL", [], limit)

    def _counted(self, schema: TableSchema, condition: str, arguments: list[object], limit: int) -> int:
        sql = f"SELECT COUNT(*) FROM (SELECT 1 FROM {_name(schema)} WHERE {condition} LIMIT {limit}) counted"
        with translated(self._source, f"count the backlog of {schema.table_id}"):
            ((count,),) = self._query(sql, arguments)
        return int(count)

    def _readers_of(self, schema: TableSchema) -> list[tuple[str, FromText]]:
        return self._readers.setdefault(schema, [(c.name, from_text(c)) for c in schema.columns])

    def _query(self, sql: str, arguments: list[object]) -> list[tuple[Any, ...]]:
        # None, because with arguments PyMySQL would interpret percent signs
        text = sql.replace("%", "%%").replace("\0", "%s") if arguments else sql
        return query(self._connection, text, *arguments)

    def _condition(self, ask: Ask, cursor: str, keys: list[str]) -> tuple[str, list[object]]:
        """Return (SQL condition, its arguments). A NUL byte, which no name can contain, stands for each argument."""
        if ask.start is None:
            return f"{cursor} IS NOT NULL", []
        start = self._argument(ask.start)
        if ask.after is None:
            return f"{cursor} >= \0", [start]
        # (k1, k2) > (a, b) spelled out, because MySQL uses no index for the short form
        either, arguments = [], [start]
        for i, key in enumerate(keys):
            either.append(" AND ".join([*(f"{k} = \0" for k in keys[:i]), f"{key} > \0"]))
            arguments += ask.after[: i + 1]
        return f"{cursor} = \0 AND ({' OR '.join(f'({part})' for part in either)})", arguments

    def _cursor(self, value: Any) -> int:
        return int(value) if self._feed else cursor_of(_moment(value))

    def _argument(self, cursor: int) -> object:
        return cursor if self._feed else moment_of(cursor).isoformat(sep=" ", timespec="microseconds")


def _moment(text: Any) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(str(text))
    except ValueError:  # 0000-00-00
        return _OLDEST


def _name(schema: TableSchema) -> str:
    return f"{quoted(schema.table_id.database)}.{quoted(schema.table_id.table)}"
