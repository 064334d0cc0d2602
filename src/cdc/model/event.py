"""Changes of a source: their positions in its log, and the change of one row."""

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
    """Position in a source's log: the next event to read.

    `gtid_set` contains the transactions that were read completely; `file` and `pos` name the next event. `sequence` is
    the number of the last published row change: a 64-bit counter per source that orders its changes and survives a
    fail-over. `row` counts the published changes of a transaction that has not ended; 0 between transactions.
    """

    file: str
    pos: int
    gtid_set: str
    sequence: int
    row: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceInfo:
    """The envelope's `source` block: Debezium's field names, and `sequence`, which orders all changes of a source.

    `ts_ms` is the time of the commit at the source (milliseconds since 1970, UTC). `row` is the row's index in its
    transaction. `snapshot` is "true" for rows that a snapshot read, "false" for rows from the log. `last_update_only`:
    the row was polled, so earlier versions of it, and its delete, may be missing in the topic. `partial`: when the
    event was published, the topic did not yet contain all rows of the table, because a snapshot was running or none was
    ever taken. So even an update or a delete may be the first event of its row. `exact`: the number of the event's
    exact phase, in which `before` is the image in the row's previous event; 0: none. `inexact_after`: the number of the
    table's last exact phase, which has ended; 0: there was none.
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
    exact: int = 0
    inexact_after: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionInfo:
    """Place of a change in its transaction at the source.

    `total_order` counts all changes of the transaction, `data_collection_order` those of the same table, both from 1.
    """

    id: str
    total_order: int
    data_collection_order: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeEvent:
    """One row change: (c)reated, (u)pdated, (d)eleted, (r)ead by a snapshot; or a (t)runcated table.

    `before` is None for c and r, `after` for d; both for t. Rows map column name → canonical value (`cdc.model.types`).
    An absent column was not logged, which is not the same as NULL. `ts_ms` is when the event was published, in
    milliseconds since 1970.
    """

    op: Op
    before: Row | None
    after: Row | None
    source: SourceInfo
    ts_ms: int
    transaction: TransactionInfo | None = None
