"""The step that keeps groups: one entry per group and, where it has bags, their pages beside it.

What it tells of a group depends on the group's rows alone, and it tells it only where it reads otherwise than before:
the former row is not kept, it is computed of what was kept. A result that does not fit its type is told beside the row.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from cdc.model.errors import Fatal
from cdc.stored.traces import count_entry
from joins.query.group import Grouping, Result
from joins.steps.bags import Tuples
from joins.steps.contributions import GroupChange
from joins.steps.exact import added, dumped, loaded, zero
from joins.steps.pages import page_key
from joins.steps.records import Message, RefusedRecord, payload_of, trace, traced
from joins.steps.results import Contents, results_of
from joins.steps.state import no_row, whole_row
from joins.steps.top import first_rows

Get = Callable[[bytes], bytes | None]
Put = Callable[[bytes, bytes | None], None]


@dataclass(slots=True, kw_only=True)
class GroupState:
    """Of one group: what it keeps, time and trace of the newest change in it, and the number of its next page."""

    kept: Contents
    ts_ms: int = 0
    trace: bytes = b""
    next_page: int = 0

    def fresh(self) -> int:
        """The number of a new page."""
        self.next_page += 1
        return self.next_page - 1


def aggregated_in(
    group: Grouping, target: int, table: str, k: bytes, messages: Iterable[Message], get: Get, put: Put
) -> list[Message]:
    """Fold a batch's `PARTIAL` messages of one group of a store → what leaves: the group's row to `target`, or its end;
    of a group whose first rows are told, each of them that reads otherwise than before.

    `put` stores an entry, None removes it. `table`, for messages: whose query it is. Fatal where more rows have gone
    than had come.
    """
    tally = GroupChange(group)
    for message in messages:
        tally.merge(message)
    head = get(k)
    state = opened(group, head, lambda page: get(page_key(k, page)))
    key = k[1:]
    before = {} if head is None else _rows(group, key, state)[0]
    state.ts_ms, state.trace = max((state.ts_ms, state.trace), (tally.ts_ms, tally.trace))
    if not _changed(state.kept, tally):
        raise Fatal(
            f"table {table}: group {key.decode()} has lost more rows than it had",
            f"`tailorbird run … --rebuild {table}` counts them again; please report this",
        )
    there = bool(state.kept.rows) or group.always is not None
    rows, failed = _rows(group, key, state) if there else ({}, [])
    for bag in state.kept.bags:
        for page, stored in bag.settled().items():
            put(page_key(k, page), stored)
    after = _dumped(state) if there else None
    if after != head:
        put(k, after)
    if rows == before:
        return []
    reported = [no_row(target, name) for name in before if name not in rows]
    shown = traced(state.trace, trace(count_entry(group.number, state.kept.rows)))
    for name, row in rows.items():
        if before.get(name) != row:
            reported.append(whole_row(target, name, payload_of(row, state.ts_ms, shown)))
    return [*reported, *(_dead_letter(table, key, result) for result in failed)]


def opened(group: Grouping, head: bytes | None, read: Callable[[int], bytes | None]) -> GroupState:
    """A group's state from its entry; `read` gives a page of its bags."""
    held = orjson.loads(head) if head is not None else (0, 0, 0, None, None)
    rows, ts_ms, next_page, totals, bags, *known = held  # no trace is known of groups from before there were any
    kept = Contents(
        rows=rows,
        counts=[count for count, _ in totals] if totals else [0] * len(group.totals),
        sums=[loaded(totals[i][1], total.type) if totals else zero(total.type) for i, total in enumerate(group.totals)],
        bags=[],
    )
    state = GroupState(kept=kept, ts_ms=ts_ms, trace=bytes.fromhex(known[0]) if known else b"", next_page=next_page)
    for i, bag in enumerate(group.bags):
        kept.bags.append(Tuples(bag, bags[i] if bags else None, read, state.fresh))
    return state


def _dumped(state: GroupState) -> bytes:
    kept = state.kept
    totals: list[Any] = [[count, dumped(number)] for count, number in zip(kept.counts, kept.sums, strict=True)]
    bags, known = [bag.directory() for bag in kept.bags], [state.trace.hex()] if state.trace else []
    return orjson.dumps([kept.rows, state.ts_ms, state.next_page, totals, bags, *known])


def _changed(kept: Contents, tally: GroupChange) -> bool:
    """Change what is kept; False if that can not be: something would be there less than not at all."""
    kept.rows += tally.rows
    kept.counts = [one + other for one, other in zip(kept.counts, tally.counts, strict=True)]
    kept.sums = [added(one, other) for one, other in zip(kept.sums, tally.sums, strict=True)]
    whole = [bag.change(counts) for bag, counts in zip(kept.bags, tally.bags, strict=True)]
    if kept.rows == 0 and (any(kept.counts) or any(bag.distinct for bag in kept.bags)):
        return False
    return all(whole) and min(kept.rows, *kept.counts, 0) == 0


def _rows(group: Grouping, key: bytes, state: GroupState) -> tuple[dict[bytes, bytes], list[Result]]:
    """The texts of the group's rows by their names: its one row, or the first rows of it."""
    if group.top is not None:
        return first_rows(group.top, key, state.kept.bags[0]), []
    texts, failed = results_of(group, state.kept)
    return {key: b",".join([*([key] if group.keys else []), *texts])}, failed


def _dead_letter(table: str, key: bytes, result: Result) -> Message:
    about, reason = f"table {table}, group {key.decode()}", f"not computed: {result.text}"
    return RefusedRecord(about, 0, 0, reason, base64.b64encode(key).decode(), None).message()
