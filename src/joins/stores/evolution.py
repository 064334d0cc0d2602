"""Choose the stored layout of a table after the columns of its query have changed, by `schema_change_behavior`.

evolve      the new columns are stored: they may be added, dropped and change type (a rebuild rewrites all rows)
lenient     columns may be added; a dropped column stays and is NULL; a change of type is refused
exception   every change is refused"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cdc.model.errors import UsageError
from cdc.stored.layout import Layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.runtime.records import ROW_PUT, Message, Record, RowPut, record_of, trace_of, ts_of, values_of

_REMEDY = "set `schema_change_behavior: evolve`, or give the table another name"


def evolved(stored: Layout | None, wanted: Layout, behavior: SchemaChangeBehavior) -> Layout:
    """Return the layout to write: one with the stored id if no stored row changes, otherwise one with the next id.

    Raises UsageError, naming the columns, if the behavior does not allow the change."""
    if stored is None:
        return replace(wanted, id=1)
    if stored.same_shape(wanted):
        members = {column.name: column.members for column in wanted.columns}
        columns = tuple(replace(column, members=members[column.name]) for column in stored.columns)
        # properties that only an index needs change no stored row
        return stored if columns == stored.columns else replace(stored, columns=columns)
    table = f"{wanted.topology}:{wanted.table}"
    if behavior == "exception":
        raise UsageError(f"the columns of {table} would change: {differences(stored, wanted)}", _REMEDY)
    if behavior == "evolve":
        return replace(wanted, id=stored.id + 1)
    types = {column.name: column.type for column in stored.columns}
    changed = [c for c in wanted.columns if c.name in types and types[c.name] != c.type]
    if changed or not stored.same_keys(wanted):
        raise UsageError(f"{table} can not be changed leniently: {differences(stored, wanted)}", _REMEDY)
    names = {column.name for column in wanted.columns}
    columns = (*wanted.columns, *(column for column in stored.columns if column.name not in names))
    kept = replace(wanted, id=stored.id + 1, columns=columns)
    return stored if stored.same_shape(kept) else kept


def differences(stored: Layout, wanted: Layout) -> str:
    """Describe the differences between two layouts for an error message."""
    old, new = ({c.name: str(c.type) for c in layout.columns} for layout in (stored, wanted))
    found = [f"{name} {type_} is added" for name, type_ in new.items() if name not in old]
    found += [f"{name} {type_} is dropped" for name, type_ in old.items() if name not in new]
    found += [f"{name} was {old[name]} and is {new[name]}" for name in new if name in old and old[name] != new[name]]
    if stored.row_key != wanted.row_key:
        found.append(f"row_key was {', '.join(stored.row_key)} and is {', '.join(wanted.row_key)}")
    was, now = stored.nullable_key, wanted.nullable_key
    found += [f"{name} of the row key may be NULL" for name in now if name not in was and name in stored.row_key]
    found += [
        f"{name} of the row key may no longer be NULL" for name in was if name not in now and name in wanted.row_key
    ]
    if stored.salt_buckets != wanted.salt_buckets:
        found.append(f"salt_buckets was {stored.salt_buckets} and is {wanted.salt_buckets}")
    return "; ".join(found) or "the order of its columns"


def places(layout: Layout, outputs: dict[str, int]) -> list[int | None]:
    """Return, for each column of the layout, the index of its value in the query's result, or None if it has none."""
    return [outputs.get(column.name) for column in layout.columns]


def fitted(message: Message, places: Sequence[int | None]) -> Record:
    """Decode a message for the sink, in the order of the layout's columns. Columns that the query lacks are NULL."""
    if None not in places or message.op != ROW_PUT:
        return record_of(message, [place for place in places if place is not None])
    values = values_of(message.p)
    shown = [None if place is None else values[place] for place in places]
    return RowPut(shown, ts_of(message.p), trace_of(message.p)[2:])
