"""Properties of `explain`: for any history of the sources, and any cut, compaction, order or repetition of the log, a
stored row's trace names the events that contain the row's values."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from cdc.stored.cells import FROM
from cdc.stored.traces import NOWHERE, Origin, entries_of, place_of
from joins.inspection.origins import lineages
from tailorbird.verify.explain.events import named, read
from tailorbird.verify.explain.explanation import Explanation, TracedEvent, TracedRow, explained
from tests.joins.aggrandom import random_aggregate
from tests.joins.alterrandom import random_altered_case
from tests.joins.joincase import Case, Run, prepared
from tests.joins.joinrandom import random_case
from tests.joins.pairrandom import random_pair_case

HISTORIES = 10
KINDS: dict[str, tuple[Callable[[int, int], Case], int]] = {
    "joins": (random_case, 30), "altered": (random_altered_case, 20), "pairs": (random_pair_case, 80),
    "groups": (random_aggregate, 70),
}  # fmt: skip


def explanations(case: Case, seed: int) -> Iterator[tuple[Explanation, int]]:
    """Yield the explanation of every final row of a case, with the commit time of the newest change in the row."""
    run = Run(case, prepared(case), random.Random(seed))
    run.run()
    simulation, plan = run.simulation, run.plan
    for row_key, cells in simulation.table.live().items():
        stored = simulation.codec.row(cells)
        row = TracedRow(
            row_key=row_key, timestamp=2, values=stored.values, layout_id=stored.layout_id, batch=stored.batch,
            trace=tuple(entries_of(cells[FROM])),
        )  # fmt: skip
        events: list[TracedEvent] = []
        for origin in row.trace or ():
            if isinstance(origin, Origin):
                event = named(plan, origin)
                assert event is not None, f"no table is read by node {origin.node}"
                record = simulation._log[event.topic, event.partition][event.offset]
                events.append(read(plan, event, record.key, record.value, {}))
        yield explained(plan, row, events), stored.ts_ms


def right(case: Case, seed: int) -> int:
    """Count the final rows of a case. AssertionError if a cell lacks the value of the named event, or the newest event
    is
    not the newest change in the row.
    """
    rows = 0  # an expression such as COALESCE has a value without an event when a LEFT JOIN found no row
    expected = {one.column: one.inputs for one in lineages(case.plan())}
    for found, ts_ms in explanations(case, seed):
        rows += 1
        assert found.reported, found.events
        assert not found.differs, found.cells
        for cell in found.cells:
            inputs = expected[cell.column]
            if cell.value is not None and len(inputs) == 1 and inputs[0].plain and not inputs[0].grouped:
                assert inputs[0].node in cell.events, f"no event for {cell.column}"
        if case.delivery == "exactly_once":  # otherwise the simulation uses the time of a batch
            assert max((event.source["ts_ms"] for event in found.events if event.source), default=0) == ts_ms
        grouped = {column for column, inputs in expected.items() if any(one.grouped for one in inputs)}
        if any(cell.value is not None for cell in found.cells if cell.column in grouped):
            assert found.groups  # a LEFT JOIN may have found no group; then all of its columns are NULL
    return rows


@pytest.mark.parametrize("kind", KINDS)
def test_the_events_that_are_named_say_what_the_row_does(kind: str) -> None:
    """Joins of every shape, also over logs that repeat and reorder, with altered tables, many to many, groups."""
    make, cases = KINDS[kind]
    assert sum(right(make(seed, seed // HISTORIES), seed) for seed in range(cases)) > 10


@pytest.mark.matrix
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", KINDS)
def test_so_it_is_again_and_again(kind: str) -> None:
    """It runs a thousand more of each."""
    make, _ = KINDS[kind]
    for seed in range(10_000, 11_000):
        right(make(seed, seed // HISTORIES), seed)


@pytest.mark.parametrize("wrong", [lambda partition, offset: offset - 1, lambda *_: NOWHERE])
def test_the_laws_notice_a_wrong_place(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[int, int], int]) -> None:
    """With the record before the right one, or none, a cell's value differs from the event's."""
    monkeypatch.setattr("joins.steps.route.place_of", lambda partition, offset: place_of(0, wrong(partition, offset)))
    with pytest.raises((AssertionError, KeyError)):
        test_the_events_that_are_named_say_what_the_row_does("joins")


def test_an_event_of_another_row_is_not_believed() -> None:
    """The topic was recreated: the row key and the foreign keys reveal the wrong event."""
    case = random_case(3, 0)
    for found, _ in explanations(case, 3):
        for event in found.events:
            changed = dict.fromkeys(event.values or {})
            others = [replace(one, values=changed) if one is event else one for one in found.events]
            again = explained(case.plan(), found.row, others)
            assert not again.reported or event.node not in {node for cell in again.cells for node in cell.events}
