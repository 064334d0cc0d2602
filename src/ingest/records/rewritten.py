"""Decide which tables must be re-read because their rows changed without events in the log.

There are four causes. A rename or an exchanged partition brings rows. ALTER TABLE rewrites values
(`ingest.ddl.rewrites`). A changed primary key leaves rows under old keys in the topic. A statement that could not be
parsed may have done any of this. At the end of the re-read, a marker removes the rows that the server does not have.
"""

from __future__ import annotations

from collections.abc import Mapping

from cdc.model.schema import TableId, TableSchema
from ingest.events.changed import TablesChanged
from ingest.events.log_events import TableDescribed
from ingest.events.tables import Tables


def rekeyed(before: Mapping[TableId, TableSchema], change: TablesChanged) -> set[TableId]:
    """Return the tables whose primary key differs between `before` and the schema change."""
    return {
        schema.table_id
        for schema in change.schemas
        if (known := before.get(schema.table_id)) is not None and known.primary_key != schema.primary_key
    }


def by_statement(tables: Tables, before: Mapping[TableId, TableSchema], change: TablesChanged) -> set[TableId]:
    """Return the tables that must be re-read after a statement. `before` are the schemas published before the
    statement."""
    refilled = {e.to if e.kind == "rename" else (e.database, e.table) for e in change.effects
                if e.kind in ("rename", "partition")}  # fmt: skip
    arrived = {tables.id_of(name) for name in refilled if name and tables.captured(*name)}
    return {*arrived, *change.rewritten, *rekeyed(before, change)}


def doubted(tables: Tables, event: TableDescribed) -> bool:
    """Return whether the described table was unknown because it was part of a statement that could not be parsed."""
    return (event.table.database, event.table.table) in tables.catalog.unknown
