"""Plan the ordered steps from the running system to a topology's file.

The order is: refusals, objects that `apply` creates, reads of captures, joins, indexes, and objects that are no longer
in the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from cdc.model.naming import Routing, TopicRouting, control_tables, control_topics, hbase_table, upsert_topic
from cdc.model.schema import TableId
from cdc.topology.copies import declared_tables
from cdc.topology.topology import Topology
from tailorbird.deploy.plan.change import INDEXED, Change, seconds_for
from tailorbird.deploy.plan.index_changes import index_changes
from tailorbird.deploy.plan.join_changes import join_changes
from tailorbird.deploy.plan.seen import RowCount, SeenTopology
from tailorbird.provision.apply import outcome_of
from tailorbird.provision.plan import Backfill, Keep, MakePeer, Refuse


def changes(topology: Topology, seen: SeenTopology) -> list[Change]:
    """Return all steps in order. A query that does not fit the published columns gives a `refuse` step."""
    found = [*_provisioned(topology, seen), *_sources(topology, seen)]
    joins = list(join_changes(topology, seen))
    found += [*joins, *index_changes(topology, seen, {one.name for one in joins if one.action == "rebuild"})]
    for dashboard in topology.dashboards.values():
        why = f"it has no stored state; its page shows index {dashboard.index} as the file configures it at the start"
        if dashboard.name not in topology.pages:
            why = f"it has no stored state; programs search index {dashboard.index}, since pages read Solr only"
        found.append(Change(action="keep", kind="dashboard", name=dashboard.name, why=why))
    found += _left(topology, seen)
    # nothing is done before it is resolved
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
    why = "it is new, over a table with rows" if new else "an earlier fill did not finish"
    return Change(
        action="fill",
        kind="index",
        name=step.index.name,
        why=f"{why}: the table is scanned",
        by="apply",
        rows=rows,
        seconds=seconds_for(rows.rows if rows else None, INDEXED),
        meanwhile="queries find only the rows filled so far",
    )


def _sources(topology: Topology, seen: SeenTopology) -> Iterator[Change]:
    for source in topology.sources.values():
        routing = topology.routing
        for topic in dict.fromkeys(map(routing.topic_of, declared_tables(source))):
            if seen.partitions.get(topic, topology.log.partitions) != topology.log.partitions:
                why = f"it has {seen.partitions[topic]} partitions, the file says {topology.log.partitions}"
                yield Change(
                    action="refuse",
                    kind="topic",
                    name=topic,
                    why=f"{why}: the number of partitions cannot change, and its capture does not start",
                    by="set log.partitions back, or give the topology another name",
                )
        if source.name not in seen.captured:
            why = "its capture starts with a snapshot of the existing rows"
            if source.snapshot_mode == "never":
                why = "its capture starts at the end of the log; existing rows are not read"
            yield Change(action="read", kind="source", name=source.name, why=why, by="run")
            continue
        new = [table for table in declared_tables(source) if routing.topic_of(table) not in seen.partitions]
        commanded = source.name in seen.fleet
        for table in new:
            why = "it is new in the file: its rows are read when the capture restarts"
            if former := _former_topic(topology, table, seen):
                why = (
                    f"log.topics was {former.topics} when its rows were read: they are read again, into topic "
                    f"{routing.topic_of(table)}, when the capture restarts"
                )
            elif commanded:
                why = "it is new in the file, and the fleet, which captures its source, is not configured for it"
            yield Change(
                action="read",
                kind="source",
                name=str(table),
                why=why,
                by=f"tailorbird fleet sync start {source.name} {table.table}" if commanded else "run",
                meanwhile="the source's other tables continue",
            )
        if not new:
            why = "its capture resumes" + (", by an agent of the fleet" if commanded else "")
            yield Change(action="keep", kind="source", name=source.name, why=why)


def _former_topic(topology: Topology, table: TableId, seen: SeenTopology) -> Routing | None:
    """Return the routing under which a table's former topic exists. None if there is none."""
    former = (replace(topology.routing, topics=topics) for topics in get_args(TopicRouting))
    return next((one for one in former if one.topic_of(table) in seen.partitions), None)


def _left(topology: Topology, seen: SeenTopology) -> Iterator[Change]:
    """Yield `leave` steps for objects that the running system has but the file does not."""
    tables = {hbase_table(topology.name, one.name) for one in topology.tables.values() if one.sink == "hbase"}
    foreign = {one.table for one in topology.foreign_tables.values()}
    for name in sorted(seen.tables - tables - foreign - set(control_tables(topology.name))):
        why = "not in the file: no process writes it"
        yield Change(action="leave", kind="table", name=name, why=why, by=f"in HBase's shell: drop '{name}'")
    for name in sorted(seen.peers - _own_peers(seen)):
        why = "not used by any index of the file, and HBase keeps its logs for it"
        yield Change(action="leave", kind="peer", name=name, why=why, by=f"in HBase's shell: remove_peer '{name}'")
    for name in sorted(seen.states.keys() - topology.tables.keys()):
        why = "not in the file: its state remains on this machine"
        yield Change(action="leave", kind="join", name=name, why=why)
    known = {*control_topics(topology.name)}
    known |= {topology.routing.topic_of(t) for one in topology.sources.values() for t in declared_tables(one)}
    known |= {upsert_topic(topology.name, name) for name, table in topology.tables.items() if table.sink == "kafka"}
    accepting = {one.name for one in topology.sources.values() if one.filter_policy == "accept"}
    open_ended = tuple(f"{topology.name}.{name}." for name in accepting | seen.fleet)
    own = {topic for topic in seen.partitions if topic.startswith(f"{topology.name}.")}
    for topic in sorted(topic for topic in own - known if not (open_ended and topic.startswith(open_ended))):
        why = "not in the file: no process writes it"
        records = seen.records.get(topic)
        yield Change(action="leave", kind="topic", name=topic, why=why, rows=RowCount(rows=records or 0))


def _own_peers(seen: SeenTopology) -> set[str]:
    """Return the names of replication peers that indexes of the file use now or will use."""
    kept = {step.name for step in seen.steps if isinstance(step, Keep | Refuse) and step.kind == "peer"}
    return kept | {step.spec.id for step in seen.steps if isinstance(step, MakePeer)}
