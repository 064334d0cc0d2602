"""Plan the steps for joins: which continue, which need a rebuild, and why."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import get_args

from cdc.model.errors import TopologyError, UsageError
from cdc.model.naming import TopicRouting, hbase_table, upsert_topic
from cdc.stored.layout import Layout
from cdc.topology.topology import Table, Topology
from joins.kernel.program import ENGINE
from joins.query.plan import Plan
from joins.select.compiler import compile_plan
from joins.select.parser import tables_of
from joins.stores.evolution import differences, evolved
from tailorbird.deploy.plan.change import JOINED, Change, seconds_for
from tailorbird.deploy.plan.seen import SeenState, SeenTopology
from tailorbird.provision.plan import MakeTable, Refuse

_MEANWHILE = "its rows are replaced one by one; until the first complete cut, queries see old and new rows together"


def join_changes(topology: Topology, seen: SeenTopology) -> Iterator[Change]:
    """Yield one step for each table, in the order of the file."""
    refused = {step.name for step in seen.steps if isinstance(step, Refuse)}
    for table in topology.tables.values():
        if hbase_table(topology.name, table.name) not in refused:
            yield _join(topology, table, seen)


def _join(topology: Topology, table: Table, seen: SeenTopology) -> Change:
    state = seen.states.get(table.name)
    reads = tables_of(topology, table)
    if lacking := sorted(str(one) for one in reads - seen.schemas.keys()):
        return _uncompiled(topology, table, seen, lacking)
    try:
        newest = plan = compile_plan(topology, table, seen.schemas)
    except TopologyError as error:  # the other tables continue without it
        return Change(action="refuse", kind="join", name=table.name, why=error.message, by="correct its query")
    if state is not None:
        plan = plan.in_format(state.format)
    stored = seen.layouts.get(table.name)
    try:
        layout = evolved(stored, plan.layout(1), table.schema_change_behavior)
    except UsageError as error:
        return Change(action="refuse", kind="join", name=table.name, why=error.message, by=error.hint)
    if state is None:
        why = "it starts at the beginning of the log"
        if stored is not None:
            why = "this machine has no state of it, so it is rebuilt"
        return _reads(Change(action="join", kind="join", name=table.name, why=why, by="run"), topology, plan, seen)
    if (cause := _why_again(topology, table, plan, state, seen)) is not None:
        reported = f"{differences(stored, layout)}; {cause}" if stored is not None and layout is not stored else cause
        by = f"tailorbird run {topology.file} --rebuild {table.name}"
        again = Change(action="rebuild", kind="join", name=table.name, why=reported, by=by, meanwhile=_meanwhile(table))
        if plan.fingerprint() == state.fingerprint and _is_lost(topology, table, seen):
            reindex = f"indexes have the former rows until `tailorbird index reindex {topology.file}` after the rebuild"
            again = replace(again, lost=True, meanwhile=reindex if table.sink == "hbase" else again.meanwhile)
        return _reads(again, topology, plan, seen)
    if not state.complete:
        why = "it is running, and has not completed its first cut yet"
        return _reads(Change(action="join", kind="join", name=table.name, why=why, by="run"), topology, plan, seen)
    why = "its state matches the file's query"
    if plan.state_format != newest.state_format:
        rebuilt = f"`tailorbird run {topology.file} --rebuild {table.name}`"
        why += f"; it has format {plan.state_format} of an earlier version, and would be smaller after {rebuilt}"
    return Change(action="keep", kind="join", name=table.name, why=why)


def _uncompiled(topology: Topology, table: Table, seen: SeenTopology, lacking: list[str]) -> Change:
    """Return the step for a table whose query cannot be compiled yet, because source schemas are missing
    (`lacking`)."""
    state, topics = seen.states.get(table.name), _topics(topology, table)
    if state is not None and topics != state.topics:
        why = _former_topics(topology, table, state) or "its query reads other tables than its state"
        why += f"; first {', '.join(lacking)} must be captured"
        by = f"tailorbird run {topology.file} --rebuild {table.name}"
        return Change(action="rebuild", kind="join", name=table.name, why=why, by=by, meanwhile=_meanwhile(table))
    why = f"it starts when capture has published the columns of {', '.join(lacking)}"
    if state is not None:
        why = f"the columns of {', '.join(lacking)} are not in Kafka, so a change of its query cannot be detected"
    return Change(action="join", kind="join", name=table.name, why=why, by="run")


def _why_again(topology: Topology, table: Table, plan: Plan, state: SeenState, seen: SeenTopology) -> str | None:
    """Return the reason why a join must be rebuilt instead of resuming from its state. None if it can resume."""
    if plan.fingerprint() != state.fingerprint:
        if former := _former_topics(topology, table, state):
            return former
        others = sorted(name for name in topology.tables if name != table.name and _names(table, name))
        through = f", or a table that it reads ({', '.join(others)})," if others else ""
        other = state.format not in (None, plan.state_format)
        version = f", or by another version (format {state.format}, not {plan.state_format})" if other else ""
        return f"its state was built for another SELECT{through} or for other columns{version}"
    if table.state_partitions not in (None, state.partitions):
        return f"state_partitions was {state.partitions} and is {table.state_partitions}"
    if state.engine not in ("", ENGINE):
        return f"its state was built by the engine {state.engine}, which no longer exists"
    if _is_lost(topology, table, seen):
        name = upsert_topic(topology.name, table.name)
        what = f"topic {name} does not exist"
        if table.sink != "kafka":
            what = f"HBase has no table {hbase_table(topology.name, table.name)}"
        return f"{what}, and with its state the join would write only new changes"
    return None


def _is_lost(topology: Topology, table: Table, seen: SeenTopology) -> bool:
    """Return whether the store of a table that has a state does not have the table."""
    if table.sink == "kafka":
        return upsert_topic(topology.name, table.name) not in seen.partitions
    name = hbase_table(topology.name, table.name)
    return any(isinstance(step, MakeTable) and step.spec.name == name for step in seen.steps)


def _former_topics(topology: Topology, table: Table, state: SeenState) -> str:
    """Return the reason for a rebuild if `log.topics` has changed since the state was built. Otherwise empty."""
    for topics in get_args(TopicRouting):
        routing = replace(topology.routing, topics=topics)
        if topics != topology.log.topics and state.topics == {routing.topic_of(t) for t in tables_of(topology, table)}:
            return f"log.topics was {topics} when its state was built"
    return ""


def _names(table: Table, other: str) -> bool:
    """Return whether the text of a query mentions another joined table. Used only for messages."""
    words = table.query.replace(",", " ").replace("(", " ").replace(")", " ").split()
    return other in words


def _topics(topology: Topology, table: Table) -> frozenset[str]:
    return frozenset(topology.routing.topic_of(one) for one in tables_of(topology, table))


def _meanwhile(table: Table) -> str:
    if table.sink == "kafka":
        return "until the first complete cut, readers of its topic see old and new rows together"
    if table.sink in ("postgres", "iceberg"):
        name = "view" if table.sink == "postgres" else "table"
        return f"until the first complete cut, readers of its {name} see the former rows"
    return _MEANWHILE


def _reads(change: Change, topology: Topology, plan: Plan, seen: SeenTopology) -> Change:
    """Return the step with the numbers of records and rows, and the estimated time."""
    known = [seen.records[topic] for topic in plan.topics if topic in seen.records]
    records = sum(known) if len(known) == len(plan.topics) else None
    state = seen.states.get(change.name)
    rate = state.rate if state is not None and state.rate else JOINED
    rows = seen.rows.get(hbase_table(topology.name, change.name))
    return replace(change, records=records, rows=rows, seconds=seconds_for(records, rate))


def layout_after(topology: Topology, table: Table, seen: SeenTopology) -> Layout | None:
    """Return the layout that the table will have after the change, or None if it is not known yet."""
    if tables_of(topology, table) - seen.schemas.keys():
        return seen.layouts.get(table.name)
    try:
        wanted = compile_plan(topology, table, seen.schemas).layout(1)
        return evolved(seen.layouts.get(table.name), wanted, table.schema_change_behavior)
    except (UsageError, TopologyError):
        return seen.layouts.get(table.name)
