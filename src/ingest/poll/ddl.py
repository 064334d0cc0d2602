"""The column that a table is polled by: what it must be, and the DDL that adds it with its index; pure."""

from __future__ import annotations

from cdc.model.errors import UsageError
from cdc.model.schema import TableId, TableSchema
from cdc.topology.topology import Poll, Source

Dialect = str
DIALECTS = ("mysql", "mariadb", "postgresql", "sqlite")


def check_cursor(schema: TableSchema, poll: Poll, source: Source) -> None:
    """UsageError unless the table has the column that it is polled by, of the right kind."""
    column = schema.column(poll.cursor)
    where = f"table {schema.table_id}"
    if column is None:
        raise UsageError(f"{where} has no column {poll.cursor}", remedy(source, schema.table_id, poll))
    kind = column.type.kind
    if poll.mode == "feed":
        if kind not in ("int8", "int16", "int32", "int64", "uint64"):
            raise UsageError(f"{where}: {poll.cursor} is {column.column_type}", "a feed is polled by a whole number")
        return
    if kind not in ("datetime", "timestamp"):
        raise UsageError(
            f"{where}: {poll.cursor} is {column.column_type}", "poll by a timestamp, or say mode: feed for a number"
        )
    if column.nullable:
        raise UsageError(
            f"{where}: {poll.cursor} may be NULL, and rows without it would never be seen",
            f"declare {poll.cursor} NOT NULL",
        )


def dialect_of(source: Source) -> Dialect:
    """The SQL dialect that a source speaks: its type, or what its URL begins with."""
    return source.type if source.type != "sql" else source.url.partition(":")[0].partition("+")[0]


def remedy(source: Source, table: TableId, poll: Poll) -> str:
    """One line that says how a table gets the column."""
    if dialect_of(source) not in DIALECTS:
        return f"add a column {poll.cursor} that every INSERT and UPDATE sets, and an index on it"
    return f"tailorbird poll ddl prints it: {' '.join(statements(dialect_of(source), table, poll)[0].split())}"


def statements(dialect: Dialect, table: TableId, poll: Poll) -> list[str]:
    """Statements, without semicolons, that add column and index; UsageError for a dialect without a recipe."""
    if dialect not in DIALECTS:
        raise UsageError(
            f"no recipe for {dialect}",
            f"have every INSERT and UPDATE of {table} set {poll.cursor}, and index it; known: {', '.join(DIALECTS)}",
        )
    if dialect in ("mysql", "mariadb"):
        return [_mysql(table, poll)]
    return _others(dialect, table, poll)


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
    # SQLite adds no column whose default is not constant: hence the triggers, and the date that old rows get
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
    if dialect == "sqlite":  # the schema stands before the index's name there
        return f"{create} {_quoted(table.database)}.{index} ON {_quoted(table.table)} ({column})"
    return f"{create} {index} ON {_quoted(table.database)}.{_quoted(table.table)} ({column})"


def _ticked(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
