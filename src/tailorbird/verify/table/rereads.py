"""Find the source rows that must be read again, so that the join writes certain rows of its table again.

A join writes a row whenever it receives an event of the row of the root table, even if the result is unchanged. The
capture publishes every row that it reads again. So no special message is needed. This
repairs errors in the topic, too, and outdated join state.

Some steps suppress a repeated row: groups, ROW_NUMBER(), many-to-many joins, and the `latest` step. Tables with
these steps need a rebuild."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc.model.schema import TableId, TableSchema
from cdc.model.types import Canonical
from ingest.records.chunks import walkable, where_keys
from joins.query.nodes import Node, PlanSource
from joins.query.plan import Fragment, Plan
from tailorbird.verify.table.table_stage import Row

MOST_KEYS = 1000  # keys of a table to read again; for more, the whole table is read


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReread:
    """Rows of a captured table to read again: those that satisfy the SQL condition `where` (empty: all rows)."""

    table: TableId
    where: str


WhereKeys = Callable[[TableSchema, Iterable[dict[str, Canonical]]], str]


def rereads(
    plan: Plan,
    schemas: Mapping[TableId, TableSchema],
    rows: Sequence[Row],
    where_of: Callable[[str], WhereKeys] = lambda source: where_keys,
) -> tuple[TableReread, ...]:
    """Return the source rows to read again for some `rows` of the result. Empty if that would have no effect.

    `rows` have at least the columns of the row key. `where_of` returns, for a source, the function that builds the
    SQL condition."""
    roots = _roots(plan, plan.last)
    if roots is None:
        return ()
    if len(roots) > 1:  # the row key does not identify the root
        return tuple(TableReread(table=one.table_id, where="") for one in dict.fromkeys(map(_source, roots)))
    (root,) = roots
    source = _source(root)
    if len(rows) > MOST_KEYS or not walkable(schema := schemas[source.table_id]) or root is not plan.last.root:
        return (TableReread(table=source.table_id, where=""),)
    # the key of the root is part of the row key, as the compiler has proved
    names = [root.columns[index] for index in root.id_columns]
    found = (dict(zip(names, (row[column] for column in plan.sink.row_key), strict=True)) for row in rows)
    keys = [key for key in found if None not in key.values()]  # a primary key contains no NULL
    return (TableReread(table=source.table_id, where=where_of(source.table_id.source)(schema, keys)),) if keys else ()


def _roots(plan: Plan, fragment: Fragment) -> list[Node] | None:
    """Return the root nodes whose every event makes the fragment emit a row. None if a step suppresses repeated
    rows."""
    root = fragment.root
    if fragment.group is not None or not isinstance(root, Node):
        return None
    if isinstance(root.source, PlanSource):
        return None if root.source.needs_latest else [root]
    if root.source.change_detector is not None:
        return None
    found = [_roots(plan, plan.fragments[number]) for number in root.source.fragments]
    return None if None in found else list(_flat(found))


def _flat(found: Sequence[list[Node] | None]) -> Iterator[Node]:
    for some in found:
        yield from some or ()


def _source(root: Node) -> PlanSource:
    assert isinstance(root.source, PlanSource)
    return root.source
