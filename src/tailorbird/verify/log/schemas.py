"""Determine the columns of a source table that can be compared with the log."""

from __future__ import annotations

from cdc.merkle.canonical import CoveredColumns, covered
from cdc.model.schema import TableSchema
from ingest.ledger.ledger import PartitionLedger

OTHER_COLUMNS = "its columns at the source differ from those in the log"


def compared_schema(
    partition_ledger: PartitionLedger, schema: TableSchema
) -> tuple[TableSchema, CoveredColumns] | None:
    """Return the schema without masked columns, and the columns that its digests cover.

    `schema` is the current one at the source. None if the digests of the ledger cover other columns."""
    masked = [name for name, why in partition_ledger.covered.left_out if name not in dict(covered(schema).left_out)]
    what = covered(schema, masked)
    if (what.key, [(f.name, f.kind, f.digits) for f in what.forms]) != (
        partition_ledger.covered.key, [(f.name, f.kind, f.digits) for f in partition_ledger.covered.forms]
    ):  # fmt: skip
        return None
    seen = tuple(column for column in schema.columns if column.name not in masked)
    shown = TableSchema(
        table_id=schema.table_id, version=schema.version, columns=seen, primary_key=schema.primary_key
    )  # fmt: skip
    return shown, what
