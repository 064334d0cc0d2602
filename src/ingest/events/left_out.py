"""Tables that cannot be captured although the topology names them: why, the remedy, and their entry in a checkpoint.

The rest of the source is captured. Rows of such a table are skipped until the cause is gone; then a snapshot starts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from cdc.model.errors import Skippable
from cdc.model.schema import TableId

Refused = Mapping[tuple[str, str], tuple[str, str]]  # (database, table) → (reason, remedy)
Kind = tuple[str, str]  # TABLE_TYPE and ENGINE, as information_schema.TABLES shows them
_INSTEAD = "leave it out of `tables:` (under `filter_policy: accept`, list it there without options)"


class LeftOutTable(TypedDict):
    """State of a table that is left out.

    `since_ms` is the commit time, at the source, of the first skipped row, or the time when the cause was found. `rows`
    is the number of skipped rows. `why` and `remedy` are as in an error message.
    """

    since_ms: int
    rows: int
    why: str
    remedy: str


def left_out_of(state: Mapping[str, Any]) -> dict[str, LeftOutTable]:
    """Return the tables that are left out, by `database.table`, from a checkpoint's state."""
    return {
        name: LeftOutTable(
            since_ms=found.get("since_ms", 0), rows=found.get("rows", 0), why=found["why"], remedy=found["remedy"]
        )
        for name, found in state.get("left_out", {}).items()
    }


def refused_kind(table: TableId, engine: str, *, sequence: bool) -> Skippable | None:
    """Return the reason why tables of an engine, or sequences, are not captured; None if they are.

    An unknown engine counts as InnoDB.
    """
    if sequence:
        return Skippable(f"table {table} is a sequence of MariaDB: it has no rows of data", _INSTEAD)
    if engine and engine.lower() != "innodb":
        return Skippable(
            f"table {table} is of engine {engine}; only rows of InnoDB are captured",
            f"ALTER TABLE {table.database}.{table.table} ENGINE = InnoDB, or {_INSTEAD}",
        )
    return None


def unnamed(table: TableId, *, supported: bool = True) -> tuple[str, str]:
    """Return why a table with hidden columns is left out while the log does not name its columns, and the remedy.

    `supported`: the server has the variable.
    """
    why = f"table {table} hides columns, but the binary log does not name them (binlog_row_metadata is not FULL)"
    if supported:
        return why, "SET PERSIST binlog_row_metadata = FULL (MariaDB: SET GLOBAL, and the same in my.cnf)"
    return why, "upgrade the server to MySQL 8 or MariaDB 10.5, or hide no columns of this table in the agent's policy"


def absent(table: TableId, kind: Kind | None, user: str = "") -> Skippable:
    """Return the reason why a listed table is not among the server's captured tables. `kind` None: it does not
    exist."""
    if kind is not None and "VIEW" in kind[0].upper():
        return Skippable(
            f"table {table} is a view: the log contains no rows of it",
            "capture the tables that it reads, and make its SELECT a query under `tables:`",
        )
    grantee = f"'{user}'@'%'" if user else "the user of the source"
    return Skippable(
        f"table {table} does not exist, or the source's user may not SELECT from it",
        f"create it, or GRANT SELECT ON {table.database}.* TO {grantee}, or correct `tables:`; capture starts as soon "
        "as it exists",
    )
