"""Plan the steps for existing indexes.

Rows that a join rewrites are indexed by the live feed. If other documents must change, the index needs a reindex."""

from __future__ import annotations

from collections.abc import Iterator

from cdc.model.naming import hbase_table
from cdc.stored.layout import Layout
from cdc.topology.topology import Index, Topology, engine_name
from indexer.index.mapping import fields_of
from tailorbird.deploy.plan.change import INDEXED, Change, seconds_for
from tailorbird.deploy.plan.join_changes import layout_after
from tailorbird.deploy.plan.seen import RowCount, SeenCollection, SeenTopology
from tailorbird.provision.plan import Backfill


def index_changes(topology: Topology, seen: SeenTopology, rebuilt: set[str]) -> Iterator[Change]:
    """Yield the steps for indexes over joined tables. `rebuilt` are the tables whose joins restart from the log."""
    filled = {step.index.name for step in seen.steps if isinstance(step, Backfill)}
    for index in topology.indexes.values():
        if index.table not in topology.tables or index.name in filled:
            continue
        collection = seen.collections.get(index.name)
        follows = index.table in rebuilt
        rows = seen.rows.get(hbase_table(topology.name, index.table))
        if follows:
            yield Change(
                action="follow",
                kind="index",
                name=index.name,
                why=f"rows that the join of {index.table} rewrites are indexed live",
                by="run",
                rows=rows,
            )
        if collection is None or not collection.rows:
            continue
        layout = layout_after(topology, topology.tables[index.table], seen)
        if layout is not None and (why := _why_reindex(index, layout, collection, follows=follows)):
            yield _reindex(topology, index, why, collection)


def _reindex(topology: Topology, index: Index, why: str, collection: SeenCollection) -> Change:
    return Change(
        action="reindex",
        kind="index",
        name=index.name,
        why=why,
        by=f"tailorbird index reindex {topology.file} --index {index.name}",
        rows=RowCount(rows=collection.rows),
        seconds=seconds_for(collection.rows, INDEXED),
        meanwhile="the existing collection serves and is updated until the swap",
    )


def _why_reindex(index: Index, layout: Layout, collection: SeenCollection, *, follows: bool) -> str:
    """Return the reason why an index needs a reindex, or an empty text if it needs none.

    `follows`: the live feed will rewrite all documents anyway."""
    if index.shards != collection.shards:
        return f"its collection has {_shards(collection.shards)}, the topology {_shards(index.shards)}"
    wanted = fields_of(layout, index.search)
    known = collection.fields
    of_another_type = sorted(
        one.name for one in wanted if one.name in known and known[one.name] != (one.type, one.many)
    )
    if of_another_type:
        return f"{engine_name(index)} cannot change the type of an existing field: {', '.join(of_another_type)}"
    # a column without a field is in no document yet, so it cannot lack its additional fields
    lacking = sorted({one.name for one in wanted if one.name not in known and one.type == "words"})
    if lacking and not follows:
        return f"its documents lack fields that `search` needs: {', '.join(lacking)}"
    return ""


def _shards(number: int) -> str:
    return f"{number} shard{'s' if number > 1 else ''}"
