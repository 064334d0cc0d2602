"""Log events of a source in commit order: sources yield them, and `transactions` turns them into records.

Per transaction, a source yields one TransactionBegan, any number of the others, and one TransactionEnded; or one
TransactionLogged for all of these. CaughtUp is yielded between transactions whenever no more events are waiting. An
interrupted transaction (a lost connection) never gets its TransactionEnded: the reader drops its events.
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
    """A row image with a value that has no canonical form, such as the date 0000-00-00, or an invalid row.

    `values` are its columns in canonical form; those in `columns` cannot be represented, and are as the server prints
    them. `columns` maps each of these to the reason. `why` is the reason if the row as a whole is refused. It is empty
    if only columns are: then the source's `unrepresentable` setting decides (`ingest.records.images`).
    """

    values: dict[str, Any]
    why: str = ""
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Return the reason for the refusal, with the names of the columns."""
        return self.why or "; ".join(f"column {name}: {why}" for name, why in self.columns.items())


Image = Row | RefusedImage
Operation = Literal["insert", "update", "delete"]
NotLoggedReason = Literal["statement", "incident", "xa", "rollback"]


class TransactionBegan(NamedTuple):
    """A source transaction. `gtid` is empty without GTIDs; `commit_us` is its commit time at the source (UTC)."""

    gtid: str
    commit_us: int
    server_id: int
    file: str
    pos: int


class StatementLogged(NamedTuple):
    """A statement that may change whole tables. `session` owns temporary tables; `sql_mode` is the mode's bits."""

    database: str
    sql: str
    session: int
    sql_mode: int


class TableDescribed(NamedTuple):
    """Columns that the log itself states for the rows that follow, and the primary key (empty: none)."""

    table: TableId
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


class TableAltered(NamedTuple):
    """A table's definition from here on, as its server reports it; used if statements are not logged."""

    table: TableId
    definition: TableDefinition


class TableEmptied(NamedTuple):
    """All rows of a table were deleted.

    It counts as a row of its transaction, part of which may have been published.
    """

    table: TableId
    file: str
    pos: int


class RowsLogged(NamedTuple):
    """Rows of one table that one event changed: images, or (before, after) pairs for an update.

    An update's `before` is None if it was not logged; a delete's image may be the key alone. `plain`: no image is
    refused. `file` and `pos` are the event's start in the source's log.
    """

    table: TableId
    operation: Operation
    rows: Sequence[Any]
    plain: bool
    file: str
    pos: int


class RowsQuarantined(NamedTuple):
    """Rows that cannot be decoded (yet): the event and its TABLE_MAP as the `server` (a version) sent them."""

    table: TableId
    why: str
    server: str
    table_map: bytes
    event: bytes
    file: str
    pos: int


class RowsPartial(NamedTuple):
    """Rows of one table whose images lack columns, in the form of RowsLogged: they hold the keys and what was set."""

    table: TableId
    operation: Operation
    rows: Sequence[Any]
    file: str
    pos: int


class RowsNotLogged(NamedTuple):
    """Changed rows that the log does not contain. `tables` are (database, table) in lower case; None means any table.

    `why`: a `statement` was logged as text; the log has a gap (`incident`); the rows of a prepared `xa` transaction are
    no longer in the log; a partly published transaction was undone (`rollback`). `sql` is the statement, or what
    happened and where.
    """

    tables: tuple[tuple[str, str], ...] | None
    sql: str
    why: NotLoggedReason = "statement"


class TableInvalidated(NamedTuple):
    """The rows of one table differ from what the log contains, for the given reason: the table must be re-read."""

    table: TableId
    why: str


class TransactionEnded(NamedTuple):
    """The transaction is committed at the source. `file` and `pos` are the place of the event after it."""

    file: str
    pos: int


class TransactionLogged(NamedTuple):
    """A whole transaction with one rows event; equivalent to its three events."""

    began: TransactionBegan
    rows: RowsLogged
    ended: TransactionEnded


class CaughtUp(NamedTuple):
    """No more events are waiting: what has been read may be committed at once. Repeated while the source is idle."""


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
    """Return the log events that an event consists of."""
    return log_event if isinstance(log_event, TransactionLogged) else (log_event,)
