"""Rebuild the sources' tables from the log's events, in the order of their source.

`joins.oracle.sql_oracle` runs the topology's SELECT over such tables in DuckDB. The result is what property tests and
simulations expect. It shares no code with the engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.model.event import ChangeEvent
from cdc.model.schema import TableId
from cdc.model.types import Canonical

Rows = dict[tuple[Canonical, ...], dict[str, Canonical]]


def tables_after(events: Iterable[ChangeEvent], keys: Mapping[TableId, tuple[str, ...]]) -> dict[TableId, Rows]:
    """Return each table's rows by primary key, after events in the order of their source.

    A marker that a table was emptied (op `t`) keeps the rows that a snapshot has seen since.
    """
    tables: dict[TableId, Rows] = {table: {} for table in keys}
    seen: dict[TableId, dict[tuple[Canonical, ...], int]] = {table: {} for table in keys}
    for event in events:
        rows, key = tables[event.source.table_id], keys[event.source.table_id]
        if event.op == "t":
            younger = seen[event.source.table_id]
            for row in [row for row in rows if younger[row] < event.source.sequence]:
                del rows[row]
        if event.before is not None:
            rows.pop(tuple(event.before[name] for name in key), None)
        if event.after is not None:
            row = tuple(event.after[name] for name in key)
            rows[row], seen[event.source.table_id][row] = dict(event.after), event.source.sequence
    return tables
