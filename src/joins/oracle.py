"""Tables as the sources have them: what the log's events, in the order of their source, leave behind.

With `joins.sql_oracle`, which asks DuckDB the topology's own SELECT over such tables, this is the right answer that
laws and simulations compare with. It shares nothing with the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.event import ChangeEvent
from cdc.schema import TableId
from cdc.types import Canonical

Rows = dict[tuple[Canonical, ...], dict[str, Canonical]]


def tables_after(events: Iterable[ChangeEvent], keys: Mapping[TableId, tuple[str, ...]]) -> dict[TableId, Rows]:
    """Each table's rows by primary key, after events in the order of their source."""
    tables: dict[TableId, Rows] = {table: {} for table in keys}
    for event in events:
        rows, key = tables[event.source.table_id], keys[event.source.table_id]
        if event.op == "t":
            rows.clear()
        if event.before is not None:
            rows.pop(tuple(event.before[name] for name in key), None)
        if event.after is not None:
            rows[tuple(event.after[name] for name in key)] = dict(event.after)
    return tables
