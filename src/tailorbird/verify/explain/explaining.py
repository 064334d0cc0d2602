"""A stored row and the events that its trace names → where each of its cells comes from.

An event is believed only where it fits: its row must be the one that the stored row shows, by the row key and by the
foreign keys that lead from one event's row to another's. A topic that was made anew has other records at the same
offsets. Whatever lacks is said, nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from cdc.model.types import Canonical
from cdc.stored.traces import Counted, Origin
from joins.query.nodes import Node, PlanSource
from joins.query.plan import Plan
from tailorbird.verify.explain.lineage import Input, Lineage, lineages

State = Literal["found", "gone", "other"]
OTHER = "it is of another row: the topic may have been made anew"


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """A record that a trace names: `found`; `gone`, the log does not hold it any more; `other`, it is not what was
    read. `why` says it in words.

    `source` is the envelope's block of that name, `key` the row's; `schema_version` of the table as it was then, None
    where it is not known. `values`: of the columns that the query uses those that it has.
    """

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
    """A row as HBase has it: `timestamp` (ms) of its cells, and what its trace says, None where it has none."""

    row_key: bytes
    timestamp: int
    values: Mapping[str, Canonical]
    layout_id: int
    batch: int
    trace: tuple[Origin | Counted, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedCell:
    """A cell: what the query says of it, the events (nodes) that its value comes from, and what they say.

    `agrees`: whether the event has the very value; None where that can not be compared (it was computed, or is a
    group's, or its event was not found).
    """

    column: str
    value: Canonical
    expression: str
    events: tuple[int, ...]
    said: Mapping[str, Canonical]
    agrees: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where a row comes from. `groups`: of each group behind it, how many rows it had when the row was written.

    `unknown`: why it could not be told, in words; empty where it was.
    """

    table: str
    row: TracedRow
    events: tuple[Witness, ...]
    cells: tuple[ExplainedCell, ...]
    groups: Mapping[int, int]
    unknown: str = ""

    @property
    def batch_timestamp(self) -> int:
        """The stamp of the batch that wrote it."""
        return self.row.timestamp - 1

    @property
    def fence(self) -> int:
        """The fence of its document."""
        return 2 * self.row.timestamp

    @property
    def differs(self) -> bool:
        """Whether an event was found that does not say what a cell does."""
        return any(cell.agrees is False for cell in self.cells)

    @property
    def reported(self) -> bool:
        """Whether all that it comes from was found."""
        return not self.unknown and all(event.state == "found" for event in self.events)


def explained(
    plan: Plan, row: TracedRow, events: Sequence[Witness], columns: Sequence[str] = (), *, unknown: str = ""
) -> Explanation:
    """Where a row's cells come from, only those of `columns` if there are any. `events`: those of its trace."""
    numbered = {event.node: event for event in events}
    wanted = [one for one in lineages(plan) if one.column in row.values]
    for number, event in _checked(plan, numbered, row, wanted):
        numbered[number] = event
    cells = tuple(_cell(one, row, numbered) for one in wanted if not columns or one.column in columns)
    shown = {number for cell in cells for number in cell.events} if columns else set(numbered)
    counted = {one.group: one.rows for one in row.trace or () if isinstance(one, Counted)}
    return Explanation(
        table=plan.sink.table,
        row=row,
        events=tuple(event for number, event in sorted(numbered.items()) if number in shown),
        cells=cells,
        groups=counted,
        unknown=unknown,
    )


def _cell(lineage: Lineage, row: TracedRow, events: Mapping[int, Witness]) -> ExplainedCell:
    value, inputs = row.values[lineage.column], [one for one in lineage.inputs if one.node in events]
    said = {f"{events[one.node].alias}.{one.column}": _said(events, one) for one in inputs if _is_found(events, one)}
    agrees = None
    if len(inputs) == 1 and inputs[0].plain and not inputs[0].grouped and said:
        agrees = _said(events, inputs[0]) == value
    return ExplainedCell(
        column=lineage.column,
        value=value,
        expression=lineage.expression,
        events=tuple(dict.fromkeys(one.node for one in inputs)),
        said=said,
        agrees=agrees,
    )


def _is_found(events: Mapping[int, Witness], one: Input) -> bool:
    event = events[one.node]
    return event.state == "found" and one.column in (event.values or {})


def _said(events: Mapping[int, Witness], one: Input) -> Canonical:
    return (events[one.node].values or {}).get(one.column)


def _checked(
    plan: Plan, events: Mapping[int, Witness], row: TracedRow, lineage: Sequence[Lineage]
) -> Iterator[tuple[int, Witness]]:
    """The events that are of other rows than the stored one shows."""
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


def _strangers(node: Node, number: int, events: Mapping[int, Witness]) -> Iterator[int]:
    """The nodes below whose event is not of the row that the event above names."""
    below = number + 1
    for lookup in node.lookups:
        own, theirs = (_values(events.get(at)) for at in (number, below))
        if own is not None and theirs is not None and isinstance(node.source, PlanSource):
            pairs = zip(lookup.columns, lookup.child.id_columns, strict=not lookup.constants)
            if any(own.get(node.columns[o]) != theirs.get(lookup.child.columns[t]) for o, t in pairs):
                yield below
        yield from _strangers(lookup.child, below, events)
        below += sum(1 for _ in lookup.child.walk())


def _values(event: Witness | None) -> Mapping[str, Canonical] | None:
    return None if event is None or event.state != "found" else event.values
