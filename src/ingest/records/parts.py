"""Encode the published part of a huge source transaction for a checkpoint inside it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.model.schema import TableId
from ingest.events.log_events import TransactionBegan


def name_of(began: TransactionBegan) -> str:
    """Return the transaction's unique name: its GTID, or its place in the log."""
    return began.gtid or f"{began.file}:{began.pos}"


def part_of(began: TransactionBegan, total: int, orders: Mapping[TableId, int]) -> dict[str, Any]:
    """Return the published part of a transaction for `Checkpoint.open`: changes in total, and of each table."""
    return {
        "id": name_of(began),
        "total_order": total,
        "orders": [[table.database, table.table, number] for table, number in orders.items()],
    }


def orders_of(part: Mapping[str, Any], source: str) -> dict[TableId, int]:
    """Return the number of published changes of each table."""
    return {TableId(source=source, database=d, table=t): number for d, t, number in part["orders"]}
