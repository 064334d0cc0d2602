"""Which tables must be read again because their rows became others without the log's telling; pure.

Rows arrive by a rename or a partition. ALTER TABLE rewrites values (`ingest.ddl.rewrites`). A table gets another
primary key, and readers keep its rows under the old one. A statement that nobody understood may have done any of it.
The tables are read again, and a marker ends the rows that the server no longer shows.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.model.schema import TableId, TableSchema
from ingest.events.log_events import TableDescribed
from ingest.events.tables import Tables, TablesChanged


def rekeyed(before: Mapping[TableId, TableSchema], change: TablesChanged) -> set[TableId]:
    """The tables that have another key than before."""
    return {
        schema.table_id
        for schema in change.schemas
        if (known := before.get(schema.table_id)) is not None and known.primary_key != schema.primary_key
    }


def by_statement(tables: Tables, before: Mapping[TableId, TableSchema], change: TablesChanged) -> set[TableId]:
    """The tables that a statement asks to read again; `before` are the schemas that were published before it."""
    refilled = {e.to if e.kind == "rename" else (e.database, e.table) for e in change.effects
                if e.kind in ("rename", "partition")}  # fmt: skip
    arrived = {tables.id_of(name) for name in refilled if name and tables.captured(*name)}
    return {*arrived, *change.rewritten, *rekeyed(before, change)}


def doubted(tables: Tables, event: TableDescribed) -> bool:
    """Whether a statement that nobody understood named the table, which is about to be described."""
    return (event.table.database, event.table.table) in tables.catalog.unknown
