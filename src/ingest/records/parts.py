"""Encode, for a checkpoint, which part of an unfinished large transaction has been published."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.model.schema import TableId
from ingest.events.log_events import TransactionBegan


def name_of(began: TransactionBegan) -> str:
    """Return the unique name of a transaction: its GTID, or its begin in the log as `file:pos`."""
    return began.gtid or f"{began.file}:{began.pos}"


def part_of(began: TransactionBegan, total: int, orders: Mapping[TableId, int]) -> dict[str, Any]:
    """Return `Checkpoint.open`: the transaction's name, its number of published changes, and the numbers per table."""
    return {
        "id": name_of(began),
        "total_order": total,
        "orders": [[table.database, table.table, number] for table, number in orders.items()],
    }


def orders_of(part: Mapping[str, Any], source: str) -> dict[TableId, int]:
    """Return the number of published changes of each table, from the result of `part_of`."""
    return {TableId(source=source, database=d, table=t): number for d, t, number in part["orders"]}
