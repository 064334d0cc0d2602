"""The right answer, computed naively: final tables from the log, then the SELECT as nested loops would do it.

Used by laws only. It shares the plan's description with the engine and none of its steps.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from cdc.event import ChangeEvent
from cdc.schema import TableId
from cdc.types import Canonical
from joins.plan import Plan

Rows = dict[tuple[Canonical, ...], dict[str, Canonical]]


def tables_after(events: Iterable[ChangeEvent], keys: Mapping[TableId, tuple[str, ...]]) -> dict[TableId, Rows]:
    """Each table's rows by primary key, after events in the order of their source."""
    tables: dict[TableId, Rows] = {table: {} for table in keys}
    for event in events:
        rows, key = tables[event.source.table_id], keys[event.source.table_id]
        if event.before is not None:
            rows.pop(tuple(event.before[name] for name in key), None)
        if event.after is not None:
            rows[tuple(event.after[name] for name in key)] = dict(event.after)
    return tables


def answer(plan: Plan, tables: Mapping[TableId, Rows]) -> dict[tuple[Canonical, ...], dict[str, Canonical]]:
    """The SELECT over tables: row key → columns of the result."""
    result = {}
    for fact in tables[plan.assemble.fact.source.table_id].values():
        found: list[dict[str, Canonical] | None] = []
        for join in plan.joins:
            wanted = fact[join.fact_column]
            dimension = tables[join.dimension.source.table_id].values()
            name = join.dimension.key[0]
            matches = [row for row in dimension if wanted is not None and row[name] == wanted]
            found.append(matches[0] if matches else None)
        row: dict[str, Canonical] = {}
        for output in plan.assemble.outputs:
            column = output.origin.rpartition(".")[2]
            origin = fact if output.hop is None else found[output.hop]
            row[output.name] = None if origin is None else origin[column]
        result[tuple(row[name] for name in plan.sink.row_key)] = row
    return result
