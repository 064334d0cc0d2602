"""DDL for the numbers of a feed: a counter per table, and a trigger that takes the number of a changed row away."""

from __future__ import annotations

from cdc.model.schema import TableId

COUNTERS = "tailorbird_feeds"  # a table in the schema of the polled tables: the last number of each
NAME, LAST = "name", "last"


def counters(dialect: str, table: TableId) -> list[str]:
    """Return the statements that create the table of counters."""
    database, own = _quoted(dialect, table.database), _quoted(dialect, COUNTERS)
    columns = f"{_quoted(dialect, NAME)} VARCHAR(128) PRIMARY KEY, {_quoted(dialect, LAST)} BIGINT NOT NULL"
    return [f"CREATE TABLE IF NOT EXISTS {database}.{own} ({columns})"]


def triggers(dialect: str, table: TableId, cursor: str) -> list[str]:
    """Return the statements that create the trigger of a table. A change that sets the number itself keeps it."""
    column, name = _quoted(dialect, cursor), _quoted(dialect, f"feed__{table.table}__{cursor}")
    database, own = _quoted(dialect, table.database), _quoted(dialect, table.table)
    if dialect in ("mysql", "mariadb"):
        return [
            f"CREATE TRIGGER {database}.{name} BEFORE UPDATE ON {database}.{own} FOR EACH ROW\n"
            f"    SET NEW.{column} = IF(NEW.{column} <=> OLD.{column}, NULL, NEW.{column})"
        ]
    if dialect == "postgresql":
        return [
            f"CREATE FUNCTION {database}.{name}() RETURNS trigger LANGUAGE plpgsql AS\n"
            f"    $$ BEGIN NEW.{column} := NULL; RETURN NEW; END $$",
            f"CREATE TRIGGER {name} BEFORE UPDATE ON {database}.{own} FOR EACH ROW\n"
            f"    WHEN (NEW.{column} IS NOT DISTINCT FROM OLD.{column}) EXECUTE FUNCTION {database}.{name}()",
        ]
    return [
        f"CREATE TRIGGER {database}.{name} AFTER UPDATE ON {own} WHEN NEW.{column} IS OLD.{column}\n"
        f"    BEGIN UPDATE {own} SET {column} = NULL WHERE rowid = NEW.rowid; END"
    ]


def _quoted(dialect: str, name: str) -> str:
    mark = "`" if dialect in ("mysql", "mariadb") else '"'
    return mark + name.replace(mark, 2 * mark) + mark
