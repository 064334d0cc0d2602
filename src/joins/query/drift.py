"""Compare the successive schemas of a table with a plan: which values can old records have, and what changed?

Each record has the schema of its time. When a column is added with a default, all rows get the default without new
records. When a column is dropped, older records still contain it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical
from joins.query.convert import Unfit, fit_of
from joins.query.nodes import PlanSource
from joins.query.plan import Plan


def remembering(versions: Sequence[TableSchema]) -> TableSchema:
    """Return the newest schema of a table, extended by the columns that were dropped. `versions` is oldest first.

    A column's default is the one of the ALTER TABLE that added the column, because older rows got that value."""
    newest = versions[-1]
    known = {column.name for column in newest.columns}
    former: list[tuple[str, Column]] = []
    for schema in reversed(versions[:-1]):
        before = ""
        for column in schema.columns:
            if column.name not in known:
                known.add(column.name)
                former.append((before, replace(column, nullable=True)))
            before = column.name
    columns = tuple(_as_it_came(column, versions) for column in newest.columns)
    return replace(newest, columns=columns, former=tuple(former))


def _as_it_came(column: Column, versions: Sequence[TableSchema]) -> Column:
    first = column
    for schema in reversed(versions):
        found = next((one for one in schema.columns if one.name == column.name), None)
        if found is None:
            return replace(column, default=first.default, default_known=first.default_known)
        first = found
    return column


def default_of(schema: TableSchema, name: str) -> Canonical:
    """Return the value that a column has in rows older than the column.

    None if the column was dropped, or its default is unknown or does not fit its present type."""
    column = next((one for one in schema.columns if one.name == name), None)
    if column is None or not column.default_known:
        return None
    try:
        return fit_of(column.type)(column.default)  # its type may have changed since
    except Unfit:
        return None


def drifts(plan: Plan, schemas: Mapping[TableId, TableSchema]) -> list[str]:
    """Return warnings about columns that a plan uses but that have changed since, by the newest known schemas."""
    return [
        one
        for source in plan.sources
        if (schema := schemas.get(source.table_id)) is not None
        for one in _drifts(plan, source, schema)
    ]


def _drifts(plan: Plan, source: PlanSource, schema: TableSchema) -> list[str]:
    found, now = [], {column.name: column for column in schema.columns}
    for name, type_ in zip(source.columns, source.types, strict=True):
        column = now.get(name)
        if column is None and name in source.key:
            remedy = "its changes are dead letters until the column exists again"
            found.append(f"{source.table_id} has no column {name} any more, which is part of its key: {remedy}")
        elif column is None:
            remedy = "; `tailorbird snapshot` of the table repairs rows that move in the meantime"
            text = f"{source.table_id} has no column {name} any more: it reads as NULL"
            found.append(text + (remedy if name in _joining(plan, source) else ""))
        elif column.type != type_:
            remedy = "values that do not convert are dead letters; `--rebuild` adopts the new type"
            found.append(f"{source.table_id}.{name} was {type_} and is {column.type}: {remedy}")
    return found + _renamed(source, schema, now)


def _renamed(source: PlanSource, schema: TableSchema, now: Mapping[str, Column]) -> list[str]:
    """Return warnings about used columns that may be another column renamed.

    A column of the same type vanished at that time, so only the source knows whether it was renamed."""
    found, names = [], [column.name for column in schema.columns]
    for before, former in schema.former:
        at = names.index(before) + 1 if before in names else 0
        name = names[at] if at < len(names) else ""
        if name in source.columns and former.name not in source.columns and now[name].column_type == former.column_type:
            what = f"{source.table_id}.{name} replaced {former.name}: in older records it reads as its default"
            found.append(f"{what}; if it was renamed, `tailorbird snapshot` of the table publishes its rows again")
    return found


def _joining(plan: Plan, source: PlanSource) -> set[str]:
    nodes = [node for node in plan.nodes() if node.source == source]
    return {node.columns[i] for node in nodes for lookup in node.lookups for i in lookup.columns}
