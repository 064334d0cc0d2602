"""Say in a verdict that changes are marked as exact, although `before` is not the last image of their row."""

from __future__ import annotations

from ingest.ledger.ledger import PartitionLedger


def broken_reported(ledger: PartitionLedger, count: int, partition: int, offset: int) -> str:
    """Return a text for a table's verdict: the number of such changes, the newest record, the effect and the remedy."""
    return (
        f"{count} changes are marked as exact, but `before` is not the last image of the row (the newest is record "
        f"{ledger.topic}/{partition}/{offset}): groups of this table may be wrong until `tailorbird snapshot` has read "
        f"it again; please report this fault of the capture"
    )
