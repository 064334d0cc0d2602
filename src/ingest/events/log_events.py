"""What a source's log tells, in commit order: the facts that a source yields and `transactions` turns into records.

A source yields, per transaction, one TransactionBegan, any number of the others, and one TransactionEnded, or one
TransactionLogged for all of these; CaughtUp stands between transactions wherever nothing more is waiting at the
moment. A transaction that is cut off (a lost connection) never gets its TransactionEnded: whoever reads the facts drops
what belongs to it.
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
    """A row image of which a value has no canonical form, such as the date 0000-00-00, or which is no row at all.

    `values` are its columns in canonical form; those of `columns`, which cannot be represented, as the server prints
    them. `columns` maps each of these to the reason. `why` is the reason where the row as a whole is refused, and empty
    where only columns are: then the source's `unrepresentable` decides (`ingest.records.images`).
    """

    values: dict[str, Any]
    why: str = ""
    columns: dict[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """Why the row is refused, with the names of the columns."""
        return self.why or "; ".join(f"column {name}: {why}" for name, why in self.columns.items())


Image = Row | RefusedImage
Operation = Literal["insert", "update", "delete"]
NotLoggedReason = Literal["statement", "incident", "xa", "rollback"]


class TransactionBegan(NamedTuple):
    """A source transaction; `gtid` is empty where it has none, `commit_us` its commit time at the source (UTC)."""

    gtid: str
    commit_us: int
    server_id: int
    file: str
    pos: int


class StatementLogged(NamedTuple):
    """A statement that may change tables as a whole; `session` owns temporary tables, `sql_mode` its bits."""

    database: str
    sql: str
    session: int
    sql_mode: int


class TableDescribed(NamedTuple):
    """The columns that the log itself states for the rows that follow, and the primary key (empty: none)."""

    table: TableId
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]


class TableAltered(NamedTuple):
    """The table is this from here on, as its server tells it: where statements are not logged."""

    table: TableId
    definition: TableDefinition


class TableEmptied(NamedTuple):
    """All rows of a table are gone; it counts as a row of its transaction, of which a part may have been published."""

    table: TableId
    file: str
    pos: int


class RowsLogged(NamedTuple):
    """Rows of one table that one event changed: images, or (before, after) pairs for an update.

    A `before` of an update that is None was not logged, and that of a delete may be the key alone. `plain` says that
    none of them is refused. `file` and `pos` are where the event begins in the source's log.
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
    """Rows of one table whose images lack columns, in the shape of RowsLogged: they tell the keys, and what was set."""

    table: TableId
    operation: Operation
    rows: Sequence[Any]
    file: str
    pos: int


class RowsNotLogged(NamedTuple):
    """Rows that changed and that the log does not show; `tables` are (database, table) in lower case, None: any table.

    `why`: a `statement` was logged as text; the log has a gap (`incident`); the rows of a prepared `xa` transaction are
    not in the log any more; a transaction that was published in part is undone (`rollback`). `sql` is the statement, or
    what happened and where.
    """

    tables: tuple[tuple[str, str], ...] | None
    sql: str
    why: NotLoggedReason = "statement"


class TableInvalidated(NamedTuple):
    """Rows of one table read otherwise than the log tells, for the reason given: the table is to be read again."""

    table: TableId
    why: str


class TransactionEnded(NamedTuple):
    """The transaction is committed at the source; `file` and `pos` name the event behind it."""

    file: str
    pos: int


class TransactionLogged(NamedTuple):
    """A whole transaction of one event of rows; the same as its three facts one by one."""

    began: TransactionBegan
    rows: RowsLogged
    ended: TransactionEnded


class CaughtUp(NamedTuple):
    """Nothing more is waiting: what has been read may be committed at once. Repeated while the source is idle."""


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
    """The facts that a fact stands for."""
    return log_event if isinstance(log_event, TransactionLogged) else (log_event,)
