"""What a source's log tells, in commit order: the facts that a source yields and `transactions` turns into records.

A source yields, per transaction, one TransactionBegan, any number of SchemaChanged and RowsLogged, and one
TransactionEnded; CaughtUp stands between facts wherever nothing more is waiting at the moment. A transaction that is
cut off (a lost connection) never gets its TransactionEnded: whoever reads the facts drops what belongs to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc.event import Row
from cdc.schema import TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """A row image that has no canonical form, such as one with the date 0000-00-00.

    `values` are its columns as far as they can be shown, `why` names the column and the reason. It is quarantined:
    downstream the row counts as absent until it gets an image that can be told.
    """

    values: Mapping[str, object]
    why: str


Image = Row | Refused
Change = tuple[Image | None, Image | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionBegan:
    """A source transaction; `commit_us` is its commit time at the source, in microseconds since 1970 (UTC)."""

    gtid: str
    commit_us: int
    server_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChanged:
    """From here on a table's rows have this schema, whose version is one more than the version before."""

    schema: TableSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsLogged:
    """Rows of one table that one event changed: (before, after) images, None where the row did not exist.

    `file` and `pos` are where the event begins in the source's log.
    """

    schema: TableSchema
    changes: tuple[Change, ...]
    file: str
    pos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnded:
    """The transaction is committed at the source; `file` and `pos` name the event behind it."""

    file: str
    pos: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaughtUp:
    """Nothing more is waiting: what has been read may be committed at once. Repeated while the source is idle."""


Fact = TransactionBegan | SchemaChanged | RowsLogged | TransactionEnded | CaughtUp
