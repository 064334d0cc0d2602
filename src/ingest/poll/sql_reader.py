"""Poll any database that SQLAlchemy supports."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa
import structlog
from sqlalchemy import exc

from cdc.model.errors import Fatal, Retriable, TailorbirdError, UsageError
from cdc.model.filters import TableRule, shape_of
from cdc.model.polling import Poll
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical
from cdc.topology.topology import Source
from ingest.events.log_events import Image, RefusedImage
from ingest.poll.ddl import check_cursor
from ingest.poll.poll_interfaces import Ask, Look, PolledRow, cursor_of, fingerprint, moment_of
from ingest.poll.sql_keys import after_key, key_of, stored_key, unwalkable
from ingest.poll.sql_types import column_type, is_zoned, not_a_cursor, reader_of

_log = structlog.get_logger()
# Queries for the server's clock, by dialect. Others use CURRENT_TIMESTAMP, perhaps in whole seconds (`window.SLACK`).
_CLOCKS = {
    "sqlite": "SELECT strftime('%Y-%m-%d %H:%M:%f', 'now')",
    "mssql": "SELECT SYSDATETIME()",
    "mssql, zoned": "SELECT SYSDATETIMEOFFSET()",
}


@contextmanager
def connected(source: Source, isolation: str | None = "AUTOCOMMIT") -> Iterator[sa.Connection]:
    """Connect for the block. `isolation` None: with transactions, at the database's default level.

    Raises UsageError for a wrong URL or a missing driver, Retriable if the database is unavailable.
    """
    try:
        level: dict[str, Any] = {} if isolation is None else {"isolation_level": isolation}
        engine = sa.create_engine(source.url, **level)
    except ImportError as error:
        raise UsageError(f"source {source.name}: {error}", "install the driver that the URL names") from error
    except (exc.ArgumentError, ValueError, TypeError):  # their texts contain parts of the URL, also of its password
        hint = "correct `url:`, and write @ : / in the password as %40 %3A %2F"
        raise UsageError(f"source {source.name}: its URL cannot be parsed", hint) from None
    try:
        with translated(source, "connect"):
            connection = engine.connect()
        try:
            yield connection
        finally:
            connection.close()
    finally:
        engine.dispose()


@contextmanager
def sql_reader(source: Source, poll: Poll) -> Iterator[SqlReader]:
    """Open a reader for the block, and close its connection. Raises the errors of `connected`."""
    with connected(source) as connection:
        yield SqlReader(connection, source, poll)


class SqlReader:
    """Reader of any database over SQLAlchemy; implements `poll_interfaces.PollReader`."""

    def __init__(self, connection: sa.Connection, source: Source, poll: Poll) -> None:
        self._connection, self._source, self._poll = connection, source, poll
        self._feed = poll.mode == "feed"
        self._tables: dict[TableId, sa.Table] = {}

    def schemas(self, known: Mapping[TableId, TableSchema]) -> Mapping[TableId, TableSchema]:
        """Return the current schemas of the polled tables. Raises UsageError if a table does not exist or is not
        visible. Implements `PollReader`."""
        found = {}
        for table in self._source.tables:
            with translated(self._source, f"read the columns of {table}"):
                try:
                    described = sa.Table(
                        table.table, sa.MetaData(), schema=table.database or None, autoload_with=self._connection
                    )
                except exc.NoSuchTableError as error:
                    raise UsageError(
                        f"source {self._source.name}: no table {table.database}.{table.table}",
                        "correct `database:` (the schema) or `tables:`, or GRANT SELECT",
                    ) from error
            self._tables[table] = described
            found[table] = self._schema(table, described, known.get(table))
        return found

    def look(self, schema: TableSchema) -> Look:
        """Return the server's clock and the table's greatest cursor. Implements `PollReader`."""
        cursor = self._cursor_column(schema)
        with translated(self._source, f"poll {schema.table_id}"):
            clock = self._connection.execute(self._clock(cursor)).scalar_one()
            newest = self._connection.execute(sa.select(sa.func.max(cursor))).scalar_one()
        at = dt.datetime.fromisoformat(clock) if isinstance(clock, str) else clock
        return Look(clock=cursor_of(at), newest=None if newest is None else self._cursor(newest))

    def page(self, schema: TableSchema, ask: Ask) -> list[PolledRow]:
        """Return the requested rows in order. Implements `PollReader`."""
        table, cursor = self._tables[schema.table_id], self._cursor_column(schema)
        keys = [table.c[name] for name in schema.primary_key]
        statement = sa.select(*(table.c[column.name] for column in schema.columns))
        statement = statement.where(self._condition(ask, cursor, keys)).order_by(cursor, *keys).limit(ask.limit)
        with translated(self._source, f"poll {schema.table_id}"):
            rows = [tuple(row) for row in self._connection.execute(statement)]
        names = [column.name for column in schema.columns]
        at, key_at = names.index(self._poll.cursor), [names.index(name) for name in schema.primary_key]
        readers = [(column.name, reader_of(column)) for column in schema.columns]
        marked = self._fingerprints(schema)
        return [
            PolledRow(
                cursor=self._cursor(row[at]),
                key=tuple(row[i] for i in key_at),
                fingerprint=marked(row, image),
                image=image,
            )
            for row, image in ((row, _image(readers, row)) for row in rows)
        ]

    def _fingerprints(self, schema: TableSchema) -> Callable[[tuple[Any, ...], Image], bytes]:
        """Return the function that hashes a row.

        With a policy of the host, masked columns are masked before: hashes are part of the checkpoint, and a short
        value could be guessed from one.
        """
        rule = self._source.rules.get(schema.table_id)
        shape = None if rule is None or self._source.permitted is None or not rule.masks else shape_of(rule)
        if shape is None:
            return lambda row, image: fingerprint(row)

        def masked(row: tuple[Any, ...], image: Image) -> bytes:
            values = dict(image.values if isinstance(image, RefusedImage) else image)
            shape(values)
            return fingerprint(tuple(values.items()))

        return masked

    def walk(
        self, schema: TableSchema, after: list[Any] | None, where: str, limit: int
    ) -> tuple[list[Image], list[Any] | None]:
        """Implements `PollReader.walk`."""
        table, dialect = self._tables[schema.table_id], self._connection.dialect.name
        keys = [table.c[name] for name in schema.primary_key]
        if why := unwalkable(keys, dialect):
            raise UsageError(f"the key of {schema.table_id} cannot be read page by page: {why}", "poll a view of it")
        statement = sa.select(*(table.c[column.name] for column in schema.columns))
        if where and self._source.conditions is not None:  # it is part of a checkpoint, which may come from a gateway
            where = self._source.conditions(schema.table_id, where, self._server_names(schema))
        if where:  # not `sa.text`, which treats a colon as a parameter
            statement = statement.where(sa.literal_column(f"({where})"))
        if after is not None:
            statement = statement.where(after_key(keys, key_of(after), dialect))
        with translated(self._source, f"read {schema.table_id}"):
            rows = [tuple(row) for row in self._connection.execute(statement.order_by(*keys).limit(limit))]
        names = [column.name for column in schema.columns]
        readers = [(column.name, reader_of(column)) for column in schema.columns]
        last = stored_key(rows[-1][names.index(name)] for name in schema.primary_key) if len(rows) == limit else None
        return [_image(readers, row) for row in rows], last

    def _server_names(self, schema: TableSchema) -> Mapping[str, str]:
        """Return the server's name of each column that leaves the host. Oracle's are in capitals."""
        dialect = self._connection.dialect
        return {
            column.name: str(dialect.denormalize_name(column.name)) if dialect.requires_name_normalize else column.name
            for column in schema.columns
        }

    def backlog(self, schema: TableSchema, start: int | None, limit: int) -> int:
        """Implements `PollReader.backlog`."""
        cursor = self._cursor_column(schema)
        return self._counted(schema, self._condition(Ask(start=start, after=None, limit=limit), cursor, []), limit)

    def unassigned(self, schema: TableSchema, limit: int) -> int:
        """Implements `PollReader.unassigned`."""
        return self._counted(schema, self._cursor_column(schema).is_(None), limit)

    def _counted(self, schema: TableSchema, condition: sa.ColumnElement[bool], limit: int) -> int:
        waiting = sa.select(sa.literal(1)).where(condition).select_from(self._tables[schema.table_id]).limit(limit)
        with translated(self._source, f"count the backlog of {schema.table_id}"):
            counted = sa.select(sa.func.count()).select_from(waiting.subquery())
            return int(self._connection.execute(counted).scalar_one())

    def _schema(self, table: TableId, described: sa.Table, known: TableSchema | None) -> TableSchema:
        key = tuple(str(column.name) for column in described.primary_key.columns)
        if not key:
            raise UsageError(f"table {table} has no primary key", "add one, or leave it out of `tables:`")
        rule = self._source.rules.get(table, TableRule(exact_case=True))
        if needed := {name for name in (*key, self._poll.cursor) if rule.leaves_out(name)}:
            raise UsageError(f"table {table}: {', '.join(needed)} cannot be ignored", "keys and cursors are required")
        if self._source.permitted is not None and (needed := {name for name in key if rule.hides(name)}):
            # the checkpoint contains keys
            raise UsageError(f"table {table}: {min(needed)} is part of its key", "neither ignore nor mask it")
        shown = [column for column in described.columns if not rule.leaves_out(str(column.name))]
        left_out = tuple((str(c.name), str(c.type)) for c in shown if column_type(c.type) is None)
        if shut := {*key, self._poll.cursor} & {name for name, _ in left_out}:
            raise UsageError(
                f"table {table}: column {min(shut)} has the unsupported type {dict(left_out)[min(shut)]}",
                "poll a view or table with another key and cursor, or leave the table out of `tables:`",
            )
        columns = tuple(found for column in shown if (found := _column(column)) is not None)
        if known is not None and (known.columns, known.primary_key, known.left_out) == (columns, key, left_out):
            return known
        schema = TableSchema(
            table_id=table,
            version=known.version + 1 if known else 1,
            columns=columns,
            primary_key=key,
            left_out=left_out,
        )
        check_cursor(schema, self._poll, self._source)
        cursor, dialect = described.c[self._poll.cursor].type, self._connection.dialect.name
        if not self._feed and (why := not_a_cursor(cursor, dialect)):
            hint = "declare it DATETIME2(6) or DATETIMEOFFSET(6), or poll a view that casts it"
            raise UsageError(f"table {table}: {self._poll.cursor} cannot be the cursor: {why}", hint)
        return schema

    def _clock(self, cursor: sa.Column[Any]) -> sa.Executable:
        zoned, name = is_zoned(cursor.type), self._connection.dialect.name
        if name in _CLOCKS:
            return sa.text(_CLOCKS.get(f"{name}, zoned", _CLOCKS[name]) if zoned else _CLOCKS[name])
        return sa.select(sa.func.current_timestamp() if zoned or self._feed else sa.func.localtimestamp())

    def _condition(self, ask: Ask, cursor: sa.Column[Any], keys: list[sa.Column[Any]]) -> sa.ColumnElement[bool]:
        if ask.start is None:
            return cursor.is_not(None)
        start = self._argument(ask.start, cursor)
        if ask.after is None:
            return cursor >= start
        return sa.and_(cursor == start, after_key(keys, ask.after, self._connection.dialect.name))

    def _argument(self, cursor: int, column: sa.Column[Any]) -> object:
        if self._feed:
            return cursor
        moment = moment_of(cursor)
        return moment.replace(tzinfo=dt.UTC) if is_zoned(column.type) else moment

    def _cursor(self, value: Any) -> int:
        return int(value) if self._feed else cursor_of(value)

    def _cursor_column(self, schema: TableSchema) -> sa.Column[Any]:
        return self._tables[schema.table_id].c[self._poll.cursor]


def _column(column: sa.Column[Any]) -> Column | None:
    kind = column_type(column.type)
    return None if kind is None else Column(name=str(column.name), column_type=kind, nullable=bool(column.nullable))


def _image(readers: list[tuple[str, Callable[[Any], Canonical]]], row: tuple[Any, ...]) -> Image:
    values: dict[str, Canonical] = {}
    refused: dict[str, str] = {}
    for (name, read), value in zip(readers, row, strict=True):
        if value is None:
            values[name] = None
            continue
        try:
            values[name] = read(value)
        except (ValueError, TypeError, ArithmeticError) as error:
            values[name] = str(value)
            refused[name] = f"{type(error).__name__}: {error}"
    return RefusedImage(values=values, columns=refused) if refused else values


@contextmanager
def translated(source: Source, doing: str) -> Iterator[None]:
    """Turn SQLAlchemy's errors into those of `cdc.model.errors`. Messages never contain the URL, which may have a
    password. With a policy of the host they name only the kind of error: a driver's text may contain values."""

    def why(error: BaseException) -> str:
        text = str(getattr(error, "orig", None) or error) or type(error).__name__
        if source.permitted is None:
            return text
        _log.warning("the database refused a query", source=source.name, doing=doing, why=text)
        return f"{type(getattr(error, 'orig', None) or error).__name__}: see the log of the agent"

    try:
        yield
    except TailorbirdError:
        raise
    except OSError as error:  # some drivers do not wrap errors of their socket
        raise Retriable(f"source {source.name}: {doing}: {why(error)}") from error
    # a ProgrammingError: a table or column was dropped after its schema was read
    except (exc.OperationalError, exc.InterfaceError, exc.TimeoutError, exc.ProgrammingError) as error:
        raise Retriable(f"source {source.name}: {doing}: {why(error)}") from error
    except exc.SQLAlchemyError as error:
        raise Fatal(f"source {source.name}: {doing}: {why(error)}") from error
    except (ValueError, TypeError) as error:  # the driver cannot read a value, so the whole page is missing
        hint = "correct the value at the source, or poll a view without that column"
        raise Fatal(f"source {source.name}: {doing}: {why(error)}", hint) from error
