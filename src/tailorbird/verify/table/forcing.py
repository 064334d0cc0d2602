"""Which rows of the sources must be read again so that the join writes some rows of its table anew. Pure.

A join writes a row whenever the row of its root is told, whatever it wrote before; nothing else makes it write a row
that did not change. The capture tells what it reads again, so no message of another kind is needed, both engines obey,
and what is wrong in the log, or hidden in the join's state by a move that the log did not tell, is mended on the way.
Steps that tell only what changed suppress it (groups, first rows of groups, pairs, and the order that is made where
delivery is at least once): their rows need a rebuild.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from cdc.model.schema import TableId, TableSchema
from cdc.model.types import Canonical
from ingest.records.chunks import walkable, where_keys
from joins.query.nodes import Node, PlanSource
from joins.query.plan import Fragment, Plan
from tailorbird.verify.table.table_stage import Row

MOST_KEYS = 1000  # of a table, read again by their keys; for more the table is read whole


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAgain:
    """A captured table of which some rows are read again, those for which `where` holds (SQL; empty: all)."""

    table: TableId
    where: str


WhereKeys = Callable[[TableSchema, Iterable[dict[str, Canonical]]], str]


def rereads(
    plan: Plan,
    schemas: Mapping[TableId, TableSchema],
    rows: Sequence[Row],
    where_of: Callable[[str], WhereKeys] = lambda source: where_keys,
) -> tuple[ReadAgain, ...]:
    """What has rows of the result told anew, each given by the columns of its row key at least; empty where no reading
    does. `where_of`: how the server of a source is asked for the rows of some keys.
    """
    roots = _roots(plan, plan.last)
    if roots is None:
        return ()
    if len(roots) > 1:  # a row's name does not tell of which
        return tuple(ReadAgain(table=one.table_id, where="") for one in dict.fromkeys(map(_source, roots)))
    (root,) = roots
    source = _source(root)
    if len(rows) > MOST_KEYS or not walkable(schema := schemas[source.table_id]) or root is not plan.last.root:
        return (ReadAgain(table=source.table_id, where=""),)
    # the key of the root is part of the row key, which is proved
    names = [root.columns[index] for index in root.id_columns]
    found = (dict(zip(names, (row[column] for column in plan.sink.row_key), strict=True)) for row in rows)
    keys = [key for key in found if None not in key.values()]  # none of ours has NULL in it
    return (ReadAgain(table=source.table_id, where=where_of(source.table_id.source)(schema, keys)),) if keys else ()


def _roots(plan: Plan, fragment: Fragment) -> list[Node] | None:
    """The nodes whose rows are the rows of a fragment, told as often as theirs are; None where a step is in between
    that tells only what changed.
    """
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
