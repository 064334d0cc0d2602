"""What runs and a topology's file → the ordered steps between them. Pure.

In the order in which they are done: what stands against all of it; what `apply` makes; what captures read; what joins
do; what becomes of indexes; what stays although nothing names it.
"""

from __future__ import annotations

from collections.abc import Iterator

from cdc.model.naming import change_topic, control_tables, control_topics, hbase_table, upsert_topic
from cdc.topology.topology import Topology
from tailorbird.deploy.plan.change import INDEXED, Change, seconds_for
from tailorbird.deploy.plan.index_changes import index_changes
from tailorbird.deploy.plan.join_changes import join_changes
from tailorbird.deploy.plan.seen import RowCount, SeenTopology
from tailorbird.provision.apply import outcome_of
from tailorbird.provision.plan import Backfill, Keep, MakePeer, Refuse


def changes(topology: Topology, seen: SeenTopology) -> list[Change]:
    """The steps; a query that does not fit the columns that capture tells is refused among them."""
    found = [*_provisioned(topology, seen), *_sources(topology, seen)]
    joins = list(join_changes(topology, seen))
    found += [*joins, *index_changes(topology, seen, {one.name for one in joins if one.action == "rebuild"})]
    for dashboard in topology.dashboards.values():
        why = f"nothing of it is stored: its page shows what the file says of index {dashboard.index} when it starts"
        found.append(Change(action="keep", kind="dashboard", name=dashboard.name, why=why))
    found += _left(topology, seen)
    # nothing is done before it is settled
    return sorted(found, key=lambda one: one.action != "refuse")


def _provisioned(topology: Topology, seen: SeenTopology) -> Iterator[Change]:
    made = {step.spec.id for step in seen.steps if isinstance(step, MakePeer)}
    for step in seen.steps:
        if isinstance(step, Refuse):
            why, remedy = step.error.message, step.error.hint
            yield Change(action="refuse", kind=step.kind, name=step.name, why=why, by=remedy)
            continue
        if isinstance(step, Backfill):
            yield _fill(topology, seen, step, new=step.peer in made)
            continue
        outcome = outcome_of(step)
        if outcome is None:
            continue
        match outcome.done:
            case "made":
                yield Change(action="make", kind=outcome.kind, name=outcome.name, why=outcome.note, by="apply")
            case "changed":
                yield Change(action="change", kind=outcome.kind, name=outcome.name, why=outcome.note, by="apply")
            case "kept":
                yield Change(action="keep", kind=outcome.kind, name=outcome.name, why=outcome.note)


def _fill(topology: Topology, seen: SeenTopology, step: Backfill, *, new: bool) -> Change:
    foreign = topology.foreign_tables.get(step.index.table)
    table = foreign.table if foreign else hbase_table(topology.name, step.index.table)
    rows = seen.rows.get(table)
    why = "it is new over a table with rows" if new else "it was not filled to its end"
    return Change(
        action="fill",
        kind="index",
        name=step.index.name,
        why=f"{why}: they are scanned",
        by="apply",
        rows=rows,
        seconds=seconds_for(rows.rows if rows else None, INDEXED),
        meanwhile="queries find what is filled so far",
    )


def _sources(topology: Topology, seen: SeenTopology) -> Iterator[Change]:
    for source in topology.sources.values():
        listed = {change_topic(topology.name, table): table for table in source.tables}
        for topic in listed:
            if seen.partitions.get(topic, topology.log.partitions) != topology.log.partitions:
                why = f"it has {seen.partitions[topic]} partitions, the file says {topology.log.partitions}"
                yield Change(
                    action="refuse",
                    kind="topic",
                    name=topic,
                    why=f"{why}: a topic keeps its partitions for ever, and its capture does not start",
                    by="set log.partitions back, or give the topology another name",
                )
        if source.name not in seen.captured:
            why = "its capture begins, and reads the rows that are there first"
            if source.snapshot_mode == "never":
                why = "its capture begins at the end of its log; rows that are there are not read"
            yield Change(action="read", kind="source", name=source.name, why=why, by="run")
            continue
        new = [table for topic, table in listed.items() if topic not in seen.partitions]
        commanded = source.name in seen.fleet
        for table in new:
            why = "the file lists it now: its rows are read when the capture starts again"
            if commanded:
                why = "the file lists it, and the fleet, which captures its source, has not been told"
            yield Change(
                action="read",
                kind="source",
                name=str(table),
                why=why,
                by=f"tailorbird fleet sync start {source.name} {table.table}" if commanded else "run",
                meanwhile="the source's other tables go on",
            )
        if not new:
            why = "its capture goes on where it was" + (", by an agent of the fleet" if commanded else "")
            yield Change(action="keep", kind="source", name=source.name, why=why)


def _left(topology: Topology, seen: SeenTopology) -> Iterator[Change]:
    """What the file does not name any more."""
    tables = {hbase_table(topology.name, one.name) for one in topology.tables.values() if one.sink == "hbase"}
    foreign = {one.table for one in topology.foreign_tables.values()}
    for name in sorted(seen.tables - tables - foreign - set(control_tables(topology.name))):
        why = "no table of the file: nobody writes it"
        yield Change(action="leave", kind="table", name=name, why=why, by=f"in HBase's shell: drop '{name}'")
    for name in sorted(seen.peers - _own_peers(seen)):
        why = "no index of the file has it, and HBase keeps its logs for it"
        yield Change(action="leave", kind="peer", name=name, why=why, by=f"in HBase's shell: remove_peer '{name}'")
    for name in sorted(seen.states.keys() - topology.tables.keys()):
        why = "no table of the file: its state stays on this machine"
        yield Change(action="leave", kind="join", name=name, why=why)
    known = {*control_topics(topology.name)}
    known |= {change_topic(topology.name, table) for one in topology.sources.values() for table in one.tables}
    known |= {upsert_topic(topology.name, name) for name, table in topology.tables.items() if table.sink == "kafka"}
    accepting = {one.name for one in topology.sources.values() if one.filter_policy == "accept"}
    open_ended = tuple(f"{topology.name}.{name}." for name in accepting | seen.fleet)
    own = {topic for topic in seen.partitions if topic.startswith(f"{topology.name}.")}
    for topic in sorted(topic for topic in own - known if not (open_ended and topic.startswith(open_ended))):
        why = "nothing of the file writes it"
        records = seen.records.get(topic)
        yield Change(action="leave", kind="topic", name=topic, why=why, rows=RowCount(rows=records or 0))


def _own_peers(seen: SeenTopology) -> set[str]:
    """The peers of the file's indexes, as they are or will be."""
    kept = {step.name for step in seen.steps if isinstance(step, Keep | Refuse) and step.kind == "peer"}
    return kept | {step.spec.id for step in seen.steps if isinstance(step, MakePeer)}
