"""Cursor column of a polled table: what it must be, and the DDL that adds it with its index."""

from __future__ import annotations

from cdc.model.errors import UsageError
from cdc.model.polling import Poll
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Source
from ingest.poll.feed_ddl import counters, triggers

Dialect = str
DIALECTS = ("mysql", "mariadb", "postgresql", "sqlite")


def check_cursor(schema: TableSchema, poll: Poll, source: Source) -> None:
    """Raise UsageError unless the cursor column exists and is an integer (mode `feed`), or otherwise a DATETIME or
    TIMESTAMP that is NOT NULL."""
    column = schema.column(poll.cursor)
    where = f"table {schema.table_id}"
    if column is None:
        raise UsageError(f"{where} has no column {poll.cursor}", remedy(source, schema.table_id, poll))
    kind = column.type.kind
    if poll.mode == "feed":
        if kind not in ("int8", "int16", "int32", "int64", "uint64"):
            raise UsageError(f"{where}: {poll.cursor} is {column.column_type}", "a feed needs an integer column")
        return
    if kind not in ("datetime", "timestamp"):
        raise UsageError(
            f"{where}: {poll.cursor} is {column.column_type}", "poll by a timestamp, or set mode: feed for a number"
        )
    if column.nullable:
        raise UsageError(
            f"{where}: {poll.cursor} may be NULL, and such rows would never be captured",
            f"declare {poll.cursor} NOT NULL",
        )


def dialect_of(source: Source) -> Dialect:
    """Return the SQL dialect of a source: its type, or the scheme of its URL."""
    return source.type if source.type != "sql" else source.url.partition(":")[0].partition("+")[0]


def remedy(source: Source, table: TableId, poll: Poll) -> str:
    """Return one line for an error message that says how to add the cursor column to a table."""
    if dialect_of(source) not in DIALECTS:
        return f"add a column {poll.cursor} that every INSERT and UPDATE sets, and an index on it"
    return f"run `tailorbird poll ddl`: {' '.join(statements(dialect_of(source), table, poll)[0].split())}"


def statements(dialect: Dialect, table: TableId, poll: Poll) -> list[str]:
    """Return the statements, without semicolons, that add cursor column and index; for a feed also the trigger and the
    counters of `tailorbird poll assign`.

    Raises UsageError for a dialect for which no DDL is known.
    """
    if dialect not in DIALECTS:
        raise UsageError(
            f"no DDL is known for {dialect}",
            f"set {poll.cursor} in every INSERT and UPDATE of {table}, and index it; known: {', '.join(DIALECTS)}",
        )
    made = [_mysql(table, poll)] if dialect in ("mysql", "mariadb") else _others(dialect, table, poll)
    if poll.mode != "feed":
        return made
    return [*made, *triggers(dialect, table, poll.cursor), *counters(dialect, table)]


def _mysql(table: TableId, poll: Poll) -> str:
    column, index = _ticked(poll.cursor), _ticked(f"idx__{poll.cursor}")
    head = f"ALTER TABLE {_ticked(table.database)}.{_ticked(table.table)}\n"
    if poll.mode == "feed":
        return f"{head}    ADD COLUMN {column} BIGINT NULL,\n    ADD UNIQUE INDEX {index} ({column})"
    return (
        f"{head}    ADD COLUMN {column} TIMESTAMP(3)\n        NOT NULL\n        DEFAULT CURRENT_TIMESTAMP(3)\n"
        f"        ON UPDATE CURRENT_TIMESTAMP(3),\n    ADD INDEX {index} ({column})"
    )


def _others(dialect: Dialect, table: TableId, poll: Poll) -> list[str]:
    column, name = _quoted(poll.cursor), f"{_quoted(table.database)}.{_quoted(table.table)}"
    index = _quoted(f"idx__{table.table}__{poll.cursor}")
    touch, own = f"touch__{table.table}__{poll.cursor}", _quoted(table.table)
    trigger = _quoted(touch)
    if poll.mode == "feed":
        return [
            f"ALTER TABLE {name} ADD COLUMN {column} BIGINT",
            _index("CREATE UNIQUE INDEX", dialect, table, index, column),
        ]
    if dialect == "postgresql":
        function = f"{_quoted(table.database)}.{trigger}"
        return [
            f"ALTER TABLE {name} ADD COLUMN {column} timestamptz(6) NOT NULL DEFAULT clock_timestamp()",
            _index("CREATE INDEX", dialect, table, index, column),
            f"CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS\n"
            f"    $$ BEGIN NEW.{column} := clock_timestamp(); RETURN NEW; END $$",
            f"CREATE TRIGGER {trigger} BEFORE UPDATE ON {name}\n    FOR EACH ROW EXECUTE FUNCTION {function}()",
        ]
    now = "strftime('%Y-%m-%d %H:%M:%f000', 'now')"
    # SQLite accepts only constant defaults for new columns, so use triggers, and a date for existing rows
    return [
        f"ALTER TABLE {name} ADD COLUMN {column} DATETIME NOT NULL DEFAULT '1970-01-01 00:00:00.000000'",
        _index("CREATE INDEX", dialect, table, index, column),
        *(
            f"CREATE TRIGGER {_quoted(table.database)}.{_quoted(f'{touch}__{what.lower()}')} AFTER {what} ON {own}\n"
            f"    BEGIN UPDATE {own} SET {column} = {now} WHERE rowid = NEW.rowid; END"
            for what in ("INSERT", "UPDATE")
        ),
    ]


def _index(create: str, dialect: Dialect, table: TableId, index: str, column: str) -> str:
    if dialect == "sqlite":  # SQLite expects the schema before the index's name
        return f"{create} {_quoted(table.database)}.{index} ON {_quoted(table.table)} ({column})"
    return f"{create} {index} ON {_quoted(table.database)}.{_quoted(table.table)} ({column})"


def _ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
