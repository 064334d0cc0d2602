"""Log events of a source in commit order. Sources yield them; `ingest.records.transactions` turns them into records.

A transaction is one TransactionBegan, any number of other events, and one TransactionEnded; or one TransactionLogged
that stands for all of these. CaughtUp comes between transactions, whenever no more events are waiting. A transaction
that the stream breaks off has no TransactionEnded: its events are discarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from cdc.model.schema import Column, TableId
from cdc.model.types import Canonical
from ingest.ddl.catalog import TableDefinition

Row = dict[str, Canonical]


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedImage:
    """A row image with a value that has no canonical form, such as the date 0000-00-00, or an image of no valid row.

    `values` are its columns. Those in `columns` have the server's text instead of a canonical value; `columns` maps
    each to the reason. Then the source's `unrepresentable` setting decides what is published (`ingest.records.images`).
    `why` is set if the whole row is refused, and empty otherwise. `raw`: `values` are content of the stream that is not
    parsed, under names that are no columns.
    """

    values: dict[str, Any]
    why: str = ""
    columns: dict[str, str] = field(default_factory=dict)
    raw: bool = False

    @property
    def reason(self) -> str:
        """Return the reason for the refusal, with the names of the columns, for people."""
        return self.why or "; ".join(f"column {name}: {why}" for name, why in self.columns.items())


Image = Row | RefusedImage
Operation = Literal["insert", "update", "delete"]
NotLoggedReason = Literal["statement", "incident", "xa", "rollback"]


class TransactionBegan(NamedTuple):
    """Begin of a source transaction at `file` and `pos`.

    `gtid` is empty without GTIDs. `commit_us` is the commit time at the source (microseconds since 1970, UTC).
    """

    gtid: str
    commit_us: int
    server_id: int
    file: str
    pos: int


class StatementLogged(NamedTuple):
    """An SQL statement that may change whole tables, with its default `database`.

    `session` identifies the connection, which owns temporary tables. `sql_mode` is the bit mask of the SQL mode.
    """

    database: str
    sql: str
    session: int
    sql_mode: int


class TableDescribed(NamedTuple):
    """Columns and primary key (empty: none) of the rows that follow, according to the log itself or an operator."""

    table: TableId
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


class TableAltered(NamedTuple):
    """The definition of a table from here on, as its server describes it. For sources whose log contains no DDL."""

    table: TableId
    definition: TableDefinition


class TableEmptied(NamedTuple):
    """A TRUNCATE of a table that the log contains as an event.

    It counts as one row of its transaction, which may be published in parts.
    """

    table: TableId
    file: str
    pos: int


class RowsLogged(NamedTuple):
    """Rows of one table that one event of the log changed: images, or (before, after) pairs for an update.

    `before` is None if it was not logged. A delete's image may have only the key columns. `plain`: no image is refused.
    `file` and `pos` are where the event begins.
    """

    table: TableId
    operation: Operation
    rows: Sequence[Any]
    plain: bool
    file: str
    pos: int


class RowsQuarantined(NamedTuple):
    """An event whose rows cannot be decoded yet. `event` and `table_map` are its raw bytes and those of its TABLE_MAP.

    `server` is the version of the server that sent them. `why` is the reason. `file` and `pos` are where the event
    begins.
    """

    table: TableId
    why: str
    server: str
    table_map: bytes
    event: bytes
    file: str
    pos: int


class RowsPartial(NamedTuple):
    """Rows of one table whose images lack columns, in the form of RowsLogged. Images have key columns and changed
    columns."""

    table: TableId
    operation: Operation
    rows: Sequence[Any]
    file: str
    pos: int


class RowsNotLogged(NamedTuple):
    """Rows of some tables have changed, but the log does not contain the changes.

    `tables` are (database, table) in lower case; None means any table. `why` is one of four. `statement`: the log
    contains only the text of a DML statement. `incident`: the log has a gap. `xa`: the rows of a prepared XA
    transaction are no longer in the log. `rollback`: a partly published transaction was rolled back. `sql` is the
    statement, or says what happened and where.
    """

    tables: tuple[tuple[str, str], ...] | None
    sql: str
    why: NotLoggedReason = "statement"


class TableInvalidated(NamedTuple):
    """The rows of one table differ from those in the log, for the reason `why`: the table must be re-read."""

    table: TableId
    why: str


class TransactionEnded(NamedTuple):
    """Commit of a source transaction. `file` and `pos` are where the next event begins."""

    file: str
    pos: int


class TransactionLogged(NamedTuple):
    """A whole transaction with only one rows event; it stands for its three events."""

    began: TransactionBegan
    rows: RowsLogged
    ended: TransactionEnded


class CaughtUp(NamedTuple):
    """No more events are waiting, so what was read may be committed at once. Repeated while the source is idle."""


CAUGHT_UP = CaughtUp()
LogEvent = (
    TransactionBegan
    | StatementLogged
    | TableDescribed
    | TableAltered
    | TableEmptied
    | RowsLogged
    | RowsQuarantined
    | RowsPartial
    | RowsNotLogged
    | TableInvalidated
    | TransactionEnded
    | TransactionLogged
    | CaughtUp
)


def one_by_one(log_event: LogEvent) -> tuple[LogEvent, ...]:
    """Return the three events of a TransactionLogged; every other event alone."""
    return log_event if isinstance(log_event, TransactionLogged) else (log_event,)
