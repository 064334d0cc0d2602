"""What becomes of the joins: which go on, which must begin anew, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from cdc.model.errors import TopologyError, UsageError
from cdc.model.naming import change_topic, hbase_table, upsert_topic
from cdc.stored.layout import Layout
from cdc.topology.topology import Table, Topology
from joins.query.plan import Plan
from joins.select.compiler import compile_plan
from joins.select.parser import tables_of
from joins.stores.evolution import differences, evolved
from tailorbird.deploy.plan.change import JOINED, Change, seconds_for
from tailorbird.deploy.plan.seen import SeenState, SeenTopology
from tailorbird.provision.plan import MakeTable, Refuse

_MEANWHILE = "its rows are replaced one by one: until its first complete cut queries see old and new ones together"


def join_changes(topology: Topology, seen: SeenTopology) -> Iterator[Change]:
    """One step of each table of the file, in the file's order."""
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
        plan = compile_plan(topology, table, seen.schemas)
    except TopologyError as error:  # the others go on without it
        return Change(action="refuse", kind="join", name=table.name, why=error.message, by="correct its query")
    stored = seen.layouts.get(table.name)
    try:
        layout = evolved(stored, plan.layout(1), table.schema_change_behavior)
    except UsageError as error:
        return Change(action="refuse", kind="join", name=table.name, why=error.message, by=error.hint)
    if state is None:
        why = "it begins at the log's beginning"
        if stored is not None:
            why = "this machine has no state of it, so it begins anew"
        return _reads(Change(action="join", kind="join", name=table.name, why=why, by="run"), topology, plan, seen)
    if (cause := _why_again(topology, table, plan, state, seen)) is not None:
        reported = f"{differences(stored, layout)}; {cause}" if stored is not None and layout is not stored else cause
        by = f"tailorbird run {topology.file} --rebuild {table.name}"
        again = Change(action="rebuild", kind="join", name=table.name, why=reported, by=by, meanwhile=_meanwhile(table))
        return _reads(again, topology, plan, seen)
    if not state.complete:
        why = "it goes on, and has not come to its first complete cut yet"
        return _reads(Change(action="join", kind="join", name=table.name, why=why, by="run"), topology, plan, seen)
    return Change(action="keep", kind="join", name=table.name, why="its state is of the file's query")


def _uncompiled(topology: Topology, table: Table, seen: SeenTopology, lacking: list[str]) -> Change:
    """A table whose columns nobody can know yet."""
    state, topics = seen.states.get(table.name), _topics(topology, table)
    if state is not None and topics != state.topics:
        why = f"its query reads other tables than its state; first {', '.join(lacking)} must be captured"
        by = f"tailorbird run {topology.file} --rebuild {table.name}"
        return Change(action="rebuild", kind="join", name=table.name, why=why, by=by, meanwhile=_meanwhile(table))
    why = f"it begins when capture has told the columns of {', '.join(lacking)}"
    if state is not None:
        why = f"Kafka does not tell the columns of {', '.join(lacking)}: whether its query is another one is not known"
    return Change(action="join", kind="join", name=table.name, why=why, by="run")


def _why_again(topology: Topology, table: Table, plan: Plan, state: SeenState, seen: SeenTopology) -> str | None:
    """Why a join can not go on with its state; None where it can."""
    if plan.fingerprint() != state.fingerprint:
        others = sorted(name for name in topology.tables if name != table.name and _names(table, name))
        through = f", or a table that it reads ({', '.join(others)})," if others else ""
        return f"its SELECT{through} or a column that it uses is not what its state was made for"
    if table.state_partitions not in (None, state.partitions):
        return f"state_partitions was {state.partitions} and is {table.state_partitions}"
    if state.engine not in ("", table.engine):
        return f"engine was {state.engine} and is {table.engine}"
    name = hbase_table(topology.name, table.name)
    if table.sink == "kafka":
        topic = upsert_topic(topology.name, table.name)
        if topic not in seen.partitions:
            return f"there is no topic {topic}, and its state would only write what changes from now on"
    elif any(isinstance(step, MakeTable) and step.spec.name == name for step in seen.steps):
        return f"HBase has no table {name}, and its state would only write what changes from now on"
    return None


def _names(table: Table, other: str) -> bool:
    """Whether a query names another table of the topology: told to people alone."""
    words = table.query.replace(",", " ").replace("(", " ").replace(")", " ").split()
    return other in words


def _topics(topology: Topology, table: Table) -> frozenset[str]:
    return frozenset(change_topic(topology.name, one) for one in tables_of(topology, table))


def _meanwhile(table: Table) -> str:
    if table.sink == "kafka":
        return "readers of its topic see old and new rows together until its first complete cut: a topic has no alias"
    return _MEANWHILE


def _reads(change: Change, topology: Topology, plan: Plan, seen: SeenTopology) -> Change:
    """With what it reads and writes, and how long that takes."""
    known = [seen.records[topic] for topic in plan.topics if topic in seen.records]
    records = sum(known) if len(known) == len(plan.topics) else None
    state = seen.states.get(change.name)
    rate = state.rate if state is not None and state.rate else JOINED
    rows = seen.rows.get(hbase_table(topology.name, change.name))
    return replace(change, records=records, rows=rows, seconds=seconds_for(records, rate))


def layout_after(topology: Topology, table: Table, seen: SeenTopology) -> Layout | None:
    """The layout that a table's rows will have; None where it can not be known yet."""
    if tables_of(topology, table) - seen.schemas.keys():
        return seen.layouts.get(table.name)
    try:
        wanted = compile_plan(topology, table, seen.schemas).layout(1)
        return evolved(seen.layouts.get(table.name), wanted, table.schema_change_behavior)
    except (UsageError, TopologyError):
        return seen.layouts.get(table.name)
