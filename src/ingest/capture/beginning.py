"""End the catching-up of a capture that began before its first start (`tailorbird capture --from`).

Until its stream reaches the end of the server's log, such a capture knows only the columns that the log states. At the
end it takes the server's definitions of all tables, and reads by a snapshot what the log did not contain.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from cdc.model.schema import TableId
from ingest.ddl.catalog import Catalog, TableName
from ingest.events.log_events import TableAltered
from ingest.events.tables import Tables
from ingest.records.capture_interfaces import FROM


def postponed(state: Mapping[str, Any]) -> frozenset[TableName]:
    """Return the tables in a checkpoint's state whose rows are skipped until the end of the log."""
    return frozenset((database, table) for database, table in state.get(FROM, {}).get("later", ()))


def definitions(tables: Tables, shown: Catalog) -> Iterator[TableAltered]:
    """Yield the server's definition of every captured table."""
    for name in sorted(shown.tables):
        if tables.captured(*name):
            yield TableAltered(tables.id_of(name), shown.tables[name])


def unread(
    begun: Mapping[str, Any], tables: Tables, unknown: Collection[TableName], kept: Collection[TableId]
) -> list[TableId]:
    """Return the tables to read by a snapshot: all, or without snapshots those whose rows could not be decoded."""
    late = {(str(database), str(table)) for database, table in begun["later"]} | set(unknown)
    known = [tables.id_of(name) for name in sorted(tables.catalog.tables) if tables.captured(*name)]
    return [t for t in known if begun["snapshot"] or (t.database, t.table) in late or t in kept]
