"""Rebuild the contents of source tables from their change events, for tests.

`joins.oracle.sql_oracle` then runs the query over them in DuckDB. The result is what tests expect of the engine,
with which it shares no code."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.model.event import ChangeEvent
from cdc.model.schema import TableId
from cdc.model.types import Canonical

Rows = dict[tuple[Canonical, ...], dict[str, Canonical]]


def tables_after(events: Iterable[ChangeEvent], keys: Mapping[TableId, tuple[str, ...]]) -> dict[TableId, Rows]:
    """Return the rows of each table by primary key, after the given events, which are in the order of their source.

    An event that a table was emptied (op `t`) keeps rows that a snapshot has read since."""
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
