"""Maintain groups.

The result depends only on the group's rows and is emitted only if it differs from before. The former result is not
stored; it is computed from the former state. A result that does not fit its type becomes a dead letter next to the row.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass

from cdc.model.errors import Fatal
from cdc.stored.traces import count_entry
from joins.query.group import Grouping, Result
from joins.runtime.records import Message, RefusedRecord, payload_of, trace, traced
from joins.steps.bags import Tuples
from joins.steps.contributions import GroupChange
from joins.steps.exact import added, zero
from joins.steps.results import Contents, results_of
from joins.steps.state import no_row, whole_row
from joins.steps.top import first_rows
from joins.steps.windows import window_rows


@dataclass(slots=True, kw_only=True)
class GroupState:
    """State of one group: its contents, and time and trace of the newest change."""

    kept: Contents
    ts_ms: int = 0
    trace: bytes = b""


def aggregate_step(
    group: Grouping, target: int, table: str, k: bytes, state: GroupState | None, messages: Iterable[Message]
) -> tuple[GroupState | None, list[Message]]:
    """Fold a batch's `PARTIAL` messages of one group. Return its new state, and the messages for `target`.

    They are the group's row or its end, or, where the first rows of a group are the result, each of them that changed.
    `table` is named in error messages. Raises Fatal if more rows were removed than had been added.
    """
    tally = GroupChange(group)
    for message in messages:
        tally.merge(message)
    key = k[1:]
    before = {} if state is None else rows_of(group, key, state)[0]
    after = _opened(group, state)
    after.ts_ms, after.trace = max((after.ts_ms, after.trace), (tally.ts_ms, tally.trace))
    if not _changed(after.kept, tally):
        raise Fatal(
            f"table {table}: group {key.decode()} has lost more rows than it had",
            f"run `tailorbird run … --rebuild {table}` to count them again, and please report this",
        )
    there = bool(after.kept.rows) or group.always is not None
    rows, failed = rows_of(group, key, after) if there else ({}, [])
    if rows == before:
        return after if there else None, []
    reported = [no_row(target, name) for name in before if name not in rows]
    shown = traced(after.trace, trace(count_entry(group.number, after.kept.rows)))
    for name, row in rows.items():
        if before.get(name) != row:
            reported.append(whole_row(target, name, payload_of(row, after.ts_ms, shown)))
    return after if there else None, [*reported, *(_dead_letter(table, key, result) for result in failed)]


def _opened(group: Grouping, state: GroupState | None) -> GroupState:
    """Return a copy of a group's state that may change; a new group's is empty."""
    if state is None:
        empty = Contents(
            rows=0,
            counts=[0] * len(group.totals),
            sums=[zero(total.type) for total in group.totals],
            bags=[Tuples(bag) for bag in group.bags],
        )
        return GroupState(kept=empty)
    kept = state.kept
    copied = Contents(
        rows=kept.rows, counts=list(kept.counts), sums=list(kept.sums), bags=[bag.copy() for bag in kept.bags]
    )
    return GroupState(kept=copied, ts_ms=state.ts_ms, trace=state.trace)


def _changed(kept: Contents, tally: GroupChange) -> bool:
    """Apply a change to the contents; return False if a count would fall below 0."""
    kept.rows += tally.rows
    kept.counts = [one + other for one, other in zip(kept.counts, tally.counts, strict=True)]
    kept.sums = [added(one, other) for one, other in zip(kept.sums, tally.sums, strict=True)]
    whole = [bag.change(counts) for bag, counts in zip(kept.bags, tally.bags, strict=True)]
    if kept.rows == 0 and (any(kept.counts) or any(bag.distinct for bag in kept.bags)):
        return False
    return all(whole) and min(kept.rows, *kept.counts, 0) == 0


def rows_of(group: Grouping, key: bytes, state: GroupState) -> tuple[dict[bytes, bytes], list[Result]]:
    """Return the texts of the group's rows by name: its one row, its first rows, or all with window functions."""
    if group.top is not None:
        return first_rows(group.top, key, state.kept.bags[0]), []
    if group.windows is not None:
        return window_rows(group.windows, key, state.kept.bags[0])
    texts, failed = results_of(group, state.kept)
    return {key: b",".join([*([key] if group.keys else []), *texts])}, failed


def _dead_letter(table: str, key: bytes, result: Result) -> Message:
    about, reason = f"table {table}, group {key.decode()}", f"not computed: {result.text}"
    return RefusedRecord(about, 0, 0, reason, base64.b64encode(key).decode(), None).message()
