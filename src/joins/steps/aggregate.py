"""Maintain the state of groups and emit their rows (`joins.query.group`).

A group is one entry in the state store. If it has bags, their pages are further entries. The result of a group
depends only on its current rows. A row is emitted only if the result changed: the former result is computed again
from the former state. A result that does not fit its type becomes NULL and a dead letter."""

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
    """The state of one group: its contents (`kept`), and the time (ms) and trace of its newest change.

    `next_page` is the number for the next page of a bag."""

    kept: Contents
    ts_ms: int = 0
    trace: bytes = b""
    next_page: int = 0

    def fresh(self) -> int:
        """Return an unused number for a page."""
        self.next_page += 1
        return self.next_page - 1


def aggregated_in(
    group: Grouping, target: int, table: str, k: bytes, messages: Iterable[Message], get: Get, put: Put
) -> list[Message]:
    """Apply a batch of `PARTIAL` messages to one group. Return the changed rows of the result, as messages to
    `target`.

    This is the group's row or its delete. For ROW_NUMBER() it is each of the first rows that changed. `get` reads
    and `put` writes an entry of the store; `put` of None deletes it. `table` is named in errors. Raises Fatal if
    more rows were removed than were added."""
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
            f"run `tailorbird run … --rebuild {table}` to count them again, and please report this",
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
    """Return the state of a group from its entry `head` (None: a new group). `read` returns a page of its bags."""
    held = orjson.loads(head) if head is not None else (0, 0, 0, None, None)
    rows, ts_ms, next_page, totals, bags, *known = held  # groups stored before traces existed have none
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
    """Apply a change to the contents of a group. Return False if a count would fall below 0."""
    kept.rows += tally.rows
    kept.counts = [one + other for one, other in zip(kept.counts, tally.counts, strict=True)]
    kept.sums = [added(one, other) for one, other in zip(kept.sums, tally.sums, strict=True)]
    whole = [bag.change(counts) for bag, counts in zip(kept.bags, tally.bags, strict=True)]
    if kept.rows == 0 and (any(kept.counts) or any(bag.distinct for bag in kept.bags)):
        return False
    return all(whole) and min(kept.rows, *kept.counts, 0) == 0


def _rows(group: Grouping, key: bytes, state: GroupState) -> tuple[dict[bytes, bytes], list[Result]]:
    """Return the group's rows in the result by id, as texts, and the results that did not fit their type."""
    if group.top is not None:
        return first_rows(group.top, key, state.kept.bags[0]), []
    texts, failed = results_of(group, state.kept)
    return {key: b",".join([*([key] if group.keys else []), *texts])}, failed


def _dead_letter(table: str, key: bytes, result: Result) -> Message:
    about, reason = f"table {table}, group {key.decode()}", f"not computed: {result.text}"
    return RefusedRecord(about, 0, 0, reason, base64.b64encode(key).decode(), None).message()
