"""Decide which tables must be re-read because their rows changed without log entries.

Rows arrive by a rename or a partition. ALTER TABLE rewrites values (`ingest.ddl.rewrites`). A table gets another
primary key, and readers hold its rows under the old one. A statement that could not be parsed may have done any of
this. The tables are re-read, and a marker ends the rows that the server no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.model.schema import TableId, TableSchema
from ingest.events.log_events import TableDescribed
from ingest.events.tables import Tables, TablesChanged


def rekeyed(before: Mapping[TableId, TableSchema], change: TablesChanged) -> set[TableId]:
    """Return the tables whose key changed."""
    return {
        schema.table_id
        for schema in change.schemas
        if (known := before.get(schema.table_id)) is not None and known.primary_key != schema.primary_key
    }


def by_statement(tables: Tables, before: Mapping[TableId, TableSchema], change: TablesChanged) -> set[TableId]:
    """Return the tables that a statement requires to be re-read. `before`: the schemas published before it."""
    refilled = {e.to if e.kind == "rename" else (e.database, e.table) for e in change.effects
                if e.kind in ("rename", "partition")}  # fmt: skip
    arrived = {tables.id_of(name) for name in refilled if name and tables.captured(*name)}
    return {*arrived, *change.rewritten, *rekeyed(before, change)}


def doubted(tables: Tables, event: TableDescribed) -> bool:
    """Return whether a statement that could not be parsed named the table that is now described."""
    return (event.table.database, event.table.table) in tables.catalog.unknown
