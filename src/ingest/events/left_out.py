"""Tables that are not captured although the topology wants them: why, what helps, what a position tells of it; pure.

A table is left out alone: the rest of its source goes on. Its rows are passed over until the cause is gone; then the
table is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypedDict

from cdc.model.errors import Skippable
from cdc.model.schema import TableId

Kind = tuple[str, str]  # TABLE_TYPE and ENGINE, as information_schema.TABLES shows them
_INSTEAD = "leave it out of `tables:` (under `filter_policy: accept`, list it there without a word)"


class LeftOut(TypedDict):
    """What a position tells of a table that is left out: since when (commit time at its source, or the clock's), how
    many of its rows were passed over since, why, and the remedy."""

    since_ms: int
    rows: int
    why: str
    remedy: str


def left_out_of(state: Mapping[str, Any]) -> dict[str, LeftOut]:
    """The tables that are left out, `database.table`, of a position's state."""
    return {
        name: LeftOut(
            since_ms=found.get("since_ms", 0), rows=found.get("rows", 0), why=found["why"], remedy=found["remedy"]
        )
        for name, found in state.get("left_out", {}).items()
    }


def refused_kind(table: TableId, engine: str, *, sequence: bool) -> Skippable | None:
    """Why the rows of a table of this kind are not captured; None where they are. An engine that nobody told is taken
    for InnoDB."""
    if sequence:
        return Skippable(f"table {table} is a sequence of MariaDB: it has no rows of data", _INSTEAD)
    if engine and engine.lower() != "innodb":
        return Skippable(
            f"table {table} is of engine {engine}; only rows of InnoDB are captured",
            f"ALTER TABLE {table.database}.{table.table} ENGINE = InnoDB, or {_INSTEAD}",
        )
    return None


def absent(table: TableId, kind: Kind | None, user: str = "") -> Skippable:
    """Why a table that the topology lists is not among those that the server shows."""
    if kind is not None and "VIEW" in kind[0].upper():
        return Skippable(
            f"table {table} is a view: the log tells no rows of it",
            "capture the tables that it reads, and make its SELECT a query under `tables:`",
        )
    grantee = f"'{user}'@'%'" if user else "the user of the source"
    return Skippable(
        f"table {table} is not there, or the user of the source may not SELECT from it",
        f"create it, or GRANT SELECT ON {table.database}.* TO {grantee}, or correct `tables:`; it is captured as soon "
        "as it is there",
    )
