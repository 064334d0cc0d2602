"""Facts about a source's changes: where they stood in its log, and what one row went through."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cdc.model.schema import TableId
from cdc.model.types import Canonical

Op = Literal["c", "u", "d", "r", "t"]
Row = Mapping[str, Canonical]


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """The next thing to read in a source's log.

    `gtid_set` holds what has been read completely; `file` and `pos` name the next event. `sequence` is the number of
    the last row change published: a 64-bit counter per source that orders its changes and survives fail-over.
    """

    file: str
    pos: int
    gtid_set: str
    sequence: int
    row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceInfo:
    """The envelope's `source` block; Debezium's field names, and `sequence`, which orders all changes of a source.

    `ts_ms` is the commit's time at the source (milliseconds since 1970, UTC); `row` the row's index in its
    transaction; `snapshot` "true" for rows that were read, "false" for rows that were logged.
    `last_update_only`: the row was polled, so versions before this one, and deletes, may never have been told.
    `partial`: the log did not hold the history of the whole table when this was published (a snapshot was under way, or
    none was ever taken), so it may be the first that is told of its row, whatever its op says.
    """

    table_id: TableId
    ts_ms: int
    server_id: int
    gtid: str | None
    file: str
    pos: int
    row: int
    sequence: int
    snapshot: Literal["true", "false"] = "false"
    connector: str = "mysql"
    last_update_only: bool = False
    partial: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """Where a change stood in its source transaction; both orders count from 1."""

    id: str
    total_order: int
    data_collection_order: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """One row change: (c)reated, (u)pdated, (d)eleted, (r)ead by a snapshot; or a (t)runcated table.

    `before` is None for c and r, `after` for d; both for t. Rows map column name → canonical value (`cdc.model.types`);
    a column that is absent was not logged, which is not the same as NULL. `ts_ms` is when the event was published.
    """

    op: Op
    before: Row | None
    after: Row | None
    source: SourceInfo
    ts_ms: int
    transaction: TransactionInfo | None = None
