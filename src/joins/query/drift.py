"""A table's schemas, one after the other → what its log can hold, and what has become of the columns that a plan uses.

Records are told in the schema of their moment. A column that came later had a default then, which all rows took without
being told again; one that went is still in the records of before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical
from joins.query.convert import Unfit, fit_of
from joins.query.nodes import PlanSource
from joins.query.plan import Plan


def remembering(versions: Sequence[TableSchema]) -> TableSchema:
    """The newest of a table's schemas, oldest first, with the columns that it has no more.

    A column's default is the one with which it came: the rows of before took that.
    """
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
    """What a column reads as in rows of before it was added; None where it went, or nobody knows."""
    column = next((one for one in schema.columns if one.name == name), None)
    if column is None or not column.default_known:
        return None
    try:
        return fit_of(column.type)(column.default)  # its type may be another than when it came
    except Unfit:
        return None


def drifts(plan: Plan, schemas: Mapping[TableId, TableSchema]) -> list[str]:
    """What the newest schemas, as far as they are known, say of used columns that a person should know."""
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
            remedy = "its changes are dead letters until it is there again"
            found.append(f"{source.table_id} has no column {name} any more, which is part of its key: {remedy}")
        elif column is None:
            remedy = "; `tailorbird snapshot` of the table mends rows that move meanwhile"
            text = f"{source.table_id} has no column {name} any more: it reads as NULL"
            found.append(text + (remedy if name in _joining(plan, source) else ""))
        elif column.type != type_:
            remedy = "what does not convert is a dead letter; `--rebuild` takes the new type"
            found.append(f"{source.table_id}.{name} was {type_} and is {column.type}: {remedy}")
    return found + _renamed(source, schema, now)


def _renamed(source: PlanSource, schema: TableSchema, now: Mapping[str, Column]) -> list[str]:
    """Used columns that stand where another of their type stood: only the source knows if it was that one."""
    found, names = [], [column.name for column in schema.columns]
    for before, former in schema.former:
        at = names.index(before) + 1 if before in names else 0
        name = names[at] if at < len(names) else ""
        if name in source.columns and former.name not in source.columns and now[name].column_type == former.column_type:
            what = (
                f"{source.table_id}.{name} stands where {former.name} stood: what was told before reads as its default"
            )
            found.append(f"{what}; if it was renamed, `tailorbird snapshot` of the table tells its rows again")
    return found


def _joining(plan: Plan, source: PlanSource) -> set[str]:
    nodes = [node for node in plan.nodes() if node.source == source]
    return {node.columns[i] for node in nodes for lookup in node.lookups for i in lookup.columns}
