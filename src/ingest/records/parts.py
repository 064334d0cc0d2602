"""What a checkpoint inside a huge source transaction remembers of the part that was published; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdc.model.schema import TableId
from ingest.events.log_events import TransactionBegan


def name_of(began: TransactionBegan) -> str:
    """What tells a transaction from all others: its GTID, or its place in the log."""
    return began.gtid or f"{began.file}:{began.pos}"


def part_of(began: TransactionBegan, total: int, orders: Mapping[TableId, int]) -> dict[str, Any]:
    """The published part of a transaction, as `Checkpoint.open` keeps it: changes in total, and of each table."""
    return {
        "id": name_of(began),
        "total_order": total,
        "orders": [[table.database, table.table, number] for table, number in orders.items()],
    }


def orders_of(part: Mapping[str, Any], source: str) -> dict[TableId, int]:
    """How many changes of each table were published."""
    return {TableId(source=source, database=d, table=t): number for d, t, number in part["orders"]}
