"""Tables that cannot be captured although the topology names them: why, the remedy, and their entry in a checkpoint.

The rest of the source is captured. Rows of such a table are skipped until the cause is gone; then a snapshot starts.
A table in quarantine has an entry, too: its rows are kept as raw events until its columns are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NotRequired, TypedDict

from cdc.model.errors import Skippable
from cdc.model.naming import distinguished, escaped_table
from cdc.model.schema import TableId

Refused = Mapping[tuple[str, str], tuple[str, str]]  # (database, table) → (reason, remedy)
Kind = tuple[str, str]  # TABLE_TYPE and ENGINE, as information_schema.TABLES shows them
_LONGEST_PAUSE = 600.0  # seconds between attempts to read a table that cannot be read
_INSTEAD = "leave it out of `tables:` (under `filter_policy: accept`, list it there without options)"


class LeftOutTable(TypedDict):
    """State of a table that is left out.

    `since_ms` is the commit time, at the source, of the first skipped row, or the time when the cause was found. `rows`
    is the number of skipped rows. `why` and `remedy` are as in an error message. `ended`: the rows that were published
    before have ended, because the table does not fit into its merged table.
    """

    since_ms: int
    rows: int
    why: str
    remedy: str
    ended: NotRequired[bool]  # false in states of older versions


def left_out_of(state: Mapping[str, Any]) -> dict[str, LeftOutTable]:
    """Return the tables that are left out, by `database.table`, from a checkpoint's state."""
    return {
        name: LeftOutTable(
            since_ms=found.get("since_ms", 0),
            rows=found.get("rows", 0),
            why=found["why"],
            remedy=found["remedy"],
            ended=found.get("ended", False),
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


class QuarantinedTable(TypedDict):
    """State of a table in quarantine.

    `sequence` is the sequence number of its first quarantined event, `since_ms` that event's commit time at the source.
    `events` is the number of quarantined events, `why` the reason why the last one could not be decoded.
    """

    sequence: int
    events: int
    since_ms: int
    why: str


def quarantined_tables(state: Mapping[str, Any]) -> dict[str, QuarantinedTable]:
    """Return the tables in quarantine, by `database.table`, from a checkpoint's state.

    In states of older versions only the sequence number is known.
    """
    return {
        name: QuarantinedTable(sequence=found, events=0, since_ms=0, why="") if isinstance(found, int) else found
        for name, found in state.get("kept", {}).items()
    }


class SkippedTables:
    """The tables of a source that are left out, and those of which that has to be decided again.

    `passed`: tables that are left out, by `database.table`; `reported`: those already logged.
    """

    def __init__(self) -> None:
        self.passed, self.reported = dict[str, LeftOutTable](), set[str]()
        self._unread, self._pause, self._again = dict[TableId, Skippable](), 0.0, 0.0
        self._undecided: set[TableId] | None = None  # None: all tables

    def skip(self, table: TableId, why: Skippable, rows: int, ms: int) -> None:
        """Count skipped rows of a table that is left out. `ms` is their commit time at the source."""
        held = self.passed.get(table.name)
        since, before = (held["since_ms"], held["rows"]) if held else (ms, 0)
        self.passed[table.name] = LeftOutTable(since_ms=since, rows=before + rows, why=why.message, remedy=why.hint)
        if held and held.get("ended"):
            self.passed[table.name]["ended"] = True
        if held is None:
            self.decide_again((table,))

    @property
    def unsettled(self) -> bool:
        """Return whether the set of tables that are left out may have changed."""
        return self._undecided is None or bool(self._undecided)

    def take_undecided(self) -> frozenset[TableId] | None:
        """Return the tables of which it has to be decided again whether they are left out; None: all tables."""
        found, self._undecided = self._undecided, set()
        return None if found is None else frozenset(found)

    def decide_again(self, tables: Iterable[TableId] | None) -> None:
        """Have the decision made again for these tables; None: for all."""
        if tables is None:
            self._undecided = None
        elif self._undecided is not None:
            self._undecided.update(tables)

    def cannot_read(self, tables: Mapping[TableId, Skippable], now: float, ask: float) -> None:
        """Leave out tables that a snapshot could not read. They are retried after a pause that grows each time."""
        self._unread |= tables
        self._pause = min(max(6 * ask, 2 * self._pause), _LONGEST_PAUSE)
        self._again = now + self._pause
        self.decide_again(tables)

    def try_again(self, now: float) -> None:
        """Stop leaving out tables that could not be read, if their pause is over."""
        if self._unread and now >= self._again:
            self.decide_again(self._unread)
            self._unread.clear()


class TopicNames:
    """Tables by the name of their topic as Kafka distinguishes it: without the difference between `.` and `_`."""

    def __init__(self) -> None:
        self._tables: dict[str, set[TableId]] = {}

    def add(self, table: TableId) -> None:
        """Add a table."""
        self._tables.setdefault(_topic(table), set()).add(table)

    def remove(self, table: TableId) -> None:
        """Remove a table."""
        self._tables.get(_topic(table), set()).discard(table)

    def others(self, table: TableId) -> set[TableId]:
        """Return the other tables whose topics Kafka cannot distinguish from that of a table."""
        return self._tables.get(_topic(table), set()) - {table}


def _topic(table: TableId) -> str:
    return distinguished(escaped_table(table))
