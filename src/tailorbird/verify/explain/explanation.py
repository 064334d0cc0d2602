"""Explain where each cell of a stored row comes from, by the events that its trace names.

A recreated topic has other records at the same offsets. So an event is accepted only if it fits the stored row: its
key must match the row key, or the foreign key in the event above it. Missing events are reported, never guessed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cdc.model.types import Canonical, LogicalType
from cdc.stored.traces import GroupCount, Origin
from joins.evaluate.casting import single
from joins.inspection.origins import Input, Lineage, lineages
from joins.query.nodes import Node, PlanSource
from joins.query.plan import Plan

State = Literal["found", "gone", "other"]
OTHER = "it belongs to another row: the topic may have been recreated"


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedEvent:
    """A Kafka record that a trace names, for the table `alias` of the query (node number `node`).

    `state` is `found`, `gone` (the topic no longer has it) or `other` (it is a record of another row); `why`
    explains it. `source` is the envelope's `source` block, `key` the row's key. `schema_version` is the version of
    the table's schema at that time, if known. `values` are the columns that the query uses, as far as the record has
    them."""

    node: int
    alias: str
    table: str
    topic: str
    partition: int
    offset: int
    state: State = "found"
    why: str = ""
    op: str = ""
    key: Mapping[str, Canonical] | None = None
    source: Mapping[str, Any] | None = None
    schema_version: int | None = None
    values: Mapping[str, Canonical] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TracedRow:
    """A stored row with the `timestamp` (ms) of its cells. `trace` is None if it was stored without one.

    `layout_id` and `batch` are those in its cells.
    """

    row_key: bytes
    timestamp: int
    values: Mapping[str, Canonical]
    layout_id: int
    batch: int
    trace: tuple[Origin | GroupCount, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCell:
    """One cell: its expression in the query, and the events (by node number) that its value comes from.

    `event_values` are the values in these events, by alias and column. `agrees` says whether the event contains the
    cell's value. It is None if that cannot be compared: the value is computed or grouped, or the event was not found.
    """

    column: str
    value: Canonical
    expression: str
    events: tuple[int, ...]
    event_values: Mapping[str, Canonical]
    agrees: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The origin of a row. `groups` gives, by group number, the number of rows in the group when the row was
    written.

    `unknown` is the reason why the row cannot be explained. It is empty if it can."""

    table: str
    row: TracedRow
    events: tuple[TracedEvent, ...]
    cells: tuple[ExplainedCell, ...]
    groups: Mapping[int, int]
    unknown: str = ""

    @property
    def batch_timestamp(self) -> int:
        """Return the timestamp of the batch that wrote the row."""
        return self.row.timestamp - 1

    @property
    def fence(self) -> int:
        """Return the version (fence) of the row's Solr document."""
        return 2 * self.row.timestamp

    @property
    def differs(self) -> bool:
        """Return whether some event contradicts its cell."""
        return any(cell.agrees is False for cell in self.cells)

    @property
    def reported(self) -> bool:
        """Return whether all events were found."""
        return not self.unknown and all(event.state == "found" for event in self.events)


def explained(
    plan: Plan, row: TracedRow, events: Sequence[TracedEvent], columns: Sequence[str] = (), *, unknown: str = ""
) -> Explanation:
    """Explain the cells of a row, or only those of `columns`. `events` are the events that its trace names."""
    numbered = {event.node: event for event in events}
    wanted = [one for one in lineages(plan) if one.column in row.values]
    for number, event in _checked(plan, numbered, row, wanted):
        numbered[number] = event
    cells = tuple(_cell(one, row, numbered) for one in wanted if not columns or one.column in columns)
    shown = {number for cell in cells for number in cell.events} if columns else set(numbered)
    counted = {one.group: one.rows for one in row.trace or () if isinstance(one, GroupCount)}
    return Explanation(
        table=plan.sink.table,
        row=row,
        events=tuple(event for number, event in sorted(numbered.items()) if number in shown),
        cells=cells,
        groups=counted,
        unknown=unknown,
    )


def _cell(lineage: Lineage, row: TracedRow, events: Mapping[int, TracedEvent]) -> ExplainedCell:
    value, inputs = row.values[lineage.column], [one for one in lineage.inputs if one.node in events]
    found = [one for one in inputs if _is_found(events, one)]
    event_values = {f"{events[one.node].alias}.{one.column}": _event_value(events, one) for one in found}
    agrees = None
    if len(inputs) == 1 and inputs[0].plain and not inputs[0].grouped and event_values:
        agrees = _same(_event_value(events, inputs[0]), value, lineage.type)
    return ExplainedCell(
        column=lineage.column,
        value=value,
        expression=lineage.expression,
        events=tuple(dict.fromkeys(one.node for one in inputs)),
        event_values=event_values,
        agrees=agrees,
    )


def _same(event: Canonical, stored: Canonical, type_: LogicalType) -> bool:
    """Return whether an event contains a stored value. A FLOAT is stored as its four bytes."""
    if type_.kind == "float32" and isinstance(event, int | float):
        return single(event) == stored
    return event == stored


def _is_found(events: Mapping[int, TracedEvent], one: Input) -> bool:
    event = events[one.node]
    return event.state == "found" and one.column in (event.values or {})


def _event_value(events: Mapping[int, TracedEvent], one: Input) -> Canonical:
    return (events[one.node].values or {}).get(one.column)


def _checked(
    plan: Plan, events: Mapping[int, TracedEvent], row: TracedRow, lineage: Sequence[Lineage]
) -> Iterator[tuple[int, TracedEvent]]:
    """Yield the events that belong to another row, by node number, marked as such."""
    others: set[int] = set()
    for one in lineage:
        if one.column in plan.sink.row_key:
            cell = _cell(one, row, events)
            others |= {*cell.events} if cell.agrees is False else set()
    for fragment in plan.fragments:
        if isinstance(fragment.root, Node):
            others |= set(_strangers(fragment.root, plan.first_node(fragment), events))
    for number in others:
        yield number, replace(events[number], state="other", why=OTHER)


def _strangers(node: Node, number: int, events: Mapping[int, TracedEvent]) -> Iterator[int]:
    """Yield the nodes below `node` whose event is not the row that the event above it refers to.

    A column that one of the two records lacks, since it was added to the table later, cannot be compared."""
    below = number + 1
    for lookup in node.lookups:
        own, theirs = (_values(events.get(at)) for at in (number, below))
        if own is not None and theirs is not None and isinstance(node.source, PlanSource):
            pairs = zip(lookup.columns, lookup.child.id_columns, strict=not lookup.constants)
            named = ((node.columns[above], lookup.child.columns[of_id]) for above, of_id in pairs)
            if any(a in own and b in theirs and own[a] != theirs[b] for a, b in named):
                yield below
        yield from _strangers(lookup.child, below, events)
        below += sum(1 for _ in lookup.child.walk())


def _values(event: TracedEvent | None) -> Mapping[str, Canonical] | None:
    return None if event is None or event.state != "found" else event.values
