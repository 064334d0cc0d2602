"""Specify the stateful steps of joins as functions of the state of one key and the messages of one batch for it.

Property tests and the simulation run these functions, and the kernel must emit the same messages. Each step folds the
whole batch of a key before it emits anything. Within a batch `v` orders the
changes of one row. Between batches the log orders them, since the messages of one row come from one partition. So no
state holds a version, except that of `latest`, which creates such an order for sources that have none.

Keys are processed separately, and yet the result is right. At the end of a batch, an existing row refers to one key
per lookup join. At that key its newest op is a PUT, which emits the row. At all other keys it is MOVED, which emits
nothing. So a batch puts a row at most once. A delete of the row in the same batch comes from a key that it left, and
loses to the put.

Sometimes the log lacks the record of a row's move. Until a marker repairs that (`joins.steps.truncation`), the row
also exists at its old key, and is emitted from there when the right side changes. Messages that a change of the row
itself caused win over those, and the newest of them wins (`v`). Between two messages caused by right sides the
greater bytes win, so that a repeated batch gives the same result.

The last step before a group emits each changed row as it was and as it is (`retracts`, `Fragment.retracts`). Both
follow from the state before and after the batch. So what the group has added up is always what the state contains."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from joins.query.plan import Assemble, KeyedJoin
from joins.runtime.records import (
    DIM_GONE,
    DIM_PUT,
    EXACT_AFTER,
    EXACT_BEFORE,
    GONE,
    LOST,
    MOVED,
    NEW,
    PART,
    PUT,
    ROW_GONE,
    ROW_PUT,
    SINK,
    SURE,
    Message,
    RefusedRecord,
    joined,
    null_key,
    payload_of,
    split_part,
    trace_of,
    ts_of,
    values_text,
    with_part,
)

_PUTS = (PUT, NEW, SURE)
_ENDS = (GONE, LOST)


@dataclass(slots=True, kw_only=True)
class JoinState:
    """State of one key of a lookup join: its right side (empty: none), and the payloads of the rows that refer to
    it.

    The payloads are empty if an assembling step has the rows."""

    right: bytes = b""
    rows: dict[bytes, bytes] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class MultiJoinState:
    """State of one row of a multi-way join: its own payload, and the part of each lookup (empty: no such row)."""

    own: bytes
    parts: list[bytes]


@dataclass(slots=True, kw_only=True)
class LatestState:
    """State of one row of a source: the newest version seen, and its payload. None means that it was deleted."""

    v: int
    p: bytes | None


def lookup_step(
    join: KeyedJoin, k: bytes, state: JoinState | None, messages: Iterable[Message], *, retracts: bool = False
) -> tuple[JoinState | None, list[Message]]:
    """Process a batch for one key of a lookup join. Return its new state, and a message for every affected row.

    A row is affected if it arrived or changed. If the right side changed, all rows are. A row that an inner join
    hides is emitted as a delete, unless it was not visible before: it is new, or was here without a right side.
    With `retracts`, affected rows are emitted as they were and as they are. Then a row with NULL in its key is stored,
    too, if the join keeps it."""
    before = JoinState() if state is None else state
    right, right_changed = _newest_right(before.right, messages := list(messages))
    newest: dict[bytes, Message] = {}
    often: set[bytes] = set()
    sure = {message.r for message in messages if message.op in (SURE, LOST)}
    for message in messages:
        if message.op in (*_PUTS, MOVED, *_ENDS):
            known = newest.get(message.r)
            if known is not None:
                often.add(message.r)
            if known is None or message.v >= known.v:
                newest[message.r] = message
    rows = before.rows.copy()
    here = {r for r in newest if r in rows}
    for r, message in newest.items():
        if message.op in _PUTS:
            rows[r] = message.p if join.star is None else b""
        else:
            rows.pop(r, None)
    if retracts and join.star is None:
        after = JoinState(right=right, rows=rows)
        stored = bool(rows or right) and not (join.inner and null_key(k))
        return after if stored else None, list(_retractions(join, before, after, newest, every=right_changed))
    out = _Outlet(join)
    for r in rows if right_changed else [r for r, message in newest.items() if message.op in _PUTS]:
        came = newest.get(r)
        new = came is not None and came.op == NEW and r not in often
        own = rows[r] if join.star is None else None if came is None else came.p
        shown = r in sure or (bool(before.right) if r in here else not new)
        out.row(r, own, right, v=1 if came is None else came.v + 2, shown=shown)
    for r, message in newest.items():
        # rows already here that an inner join hid were not visible
        hidden = join.star is None and join.inner and not before.right and r in here and r not in sure
        if message.op in _ENDS and not hidden:
            out.gone(r, v=message.v + 2)
    if null_key(k) or (not rows and not right):
        return None, out.messages
    return JoinState(right=right, rows=rows), out.messages


def _newest_right(stored: bytes, messages: list[Message]) -> tuple[bytes, bool]:
    """Return the right side after a batch, and whether its values have changed."""
    newest: Message | None = None
    for message in messages:
        if message.op in (DIM_PUT, DIM_GONE) and (newest is None or (message.v, message.p) >= (newest.v, newest.p)):
            newest = message
    if newest is None:
        return stored, False
    right = newest.p if newest.op == DIM_PUT else b""
    same = bool(right) == bool(stored) and values_text(right) == values_text(stored)  # its time and trace are no change
    return (stored, False) if same else (right, True)


def _retractions(
    join: KeyedJoin, before: JoinState, after: JoinState, newest: Mapping[bytes, Message], *, every: bool
) -> Iterator[Message]:
    """Yield the joined rows that a batch changed, as they were and as they are. `every`: the right side changed."""
    for r in {**before.rows, **after.rows} if every else newest:
        old, new = _joined_row(join, before, r), _joined_row(join, after, r)
        moved = newest[r].p if r in newest and newest[r].op == MOVED else b""
        yield from retraction(join.target, r, old, new, moved)


def _joined_row(join: KeyedJoin, state: JoinState, r: bytes) -> bytes | None:
    """Return the payload of row `r` with its right side. None if it is not stored, or an inner join hides it."""
    own = state.rows.get(r)
    return None if own is None or (join.inner and not state.right) else joined(own, state.right, join.width)


def retraction(target: int, r: bytes, old: bytes | None, new: bytes | None, moved: bytes = b"") -> Iterator[Message]:
    """Yield a changed row for the group `target`: as it was, which the group subtracts, and as it is.

    Both have the time and the trace of the new row. Of a row that moved to another key, those of `moved`."""
    if (None if old is None else values_text(old)) == (None if new is None else values_text(new)):
        return
    newer = new or moved
    ts_ms, trace = (ts_of(newer), trace_of(newer)) if newer else (0, b"")
    for op, row in ((EXACT_BEFORE, old), (EXACT_AFTER, new)):
        if row is not None:
            yield Message(bytes([target]) + r, op, b"", 1, payload_of(values_text(row), ts_ms, trace))


class _Outlet:
    """Emits the rows of one lookup join: whole rows to the target, or parts to the assembling step.

    In a multi-way join the first lookup join sends the row together with its part. The others send only their parts."""

    def __init__(self, join: KeyedJoin) -> None:
        self.join, self.messages = join, list[Message]()

    def row(self, r: bytes, own: bytes | None, right: bytes, *, v: int, shown: bool) -> None:
        """Emit row `r`. `own` is its payload if it arrived in this batch or is stored here. `v` orders the messages."""
        join = self.join
        if join.star is not None:
            if join.part == 0 and own is not None:
                self.messages.append(Message(bytes([join.star]) + r, PUT, b"", v, with_part(own, right)))
            else:
                self.messages.append(Message(bytes([join.star]) + r, PART, bytes([join.part]), v, right))
        elif right or not join.inner:
            assert own is not None  # without a multi-way join this step keeps the rows
            self.messages.append(whole_row(join.target, r, joined(own, right, join.width), v))
        elif shown:
            self.messages.append(no_row(join.target, r))

    def gone(self, r: bytes, *, v: int) -> None:
        """Emit the delete of row `r`. A multi-way join needs `v`: after an unseen move the row may exist at another
        key."""
        join = self.join
        if join.star is None:
            self.messages.append(no_row(join.target, r))
        elif join.part == 0:
            self.messages.append(Message(bytes([join.star]) + r, GONE, b"", v, b""))


def whole_row(target: int, r: bytes, p: bytes, v: int = 1) -> Message:
    """Return the message that sends a whole row to `target`: the lookup join whose right side it is, or the sink."""
    return Message(bytes([target]) + r, ROW_PUT if target == SINK else DIM_PUT, b"", v, p)


def no_row(target: int, r: bytes) -> Message:
    """Return the message that deletes a node's row at `target`. Its version is 0, so a put wins over it."""
    return Message(bytes([target]) + r, ROW_GONE if target == SINK else DIM_GONE, b"", 0, b"")


def assemble_step(
    star: Assemble, k: bytes, state: MultiJoinState | None, messages: Iterable[Message], *, retracts: bool = False
) -> tuple[MultiJoinState | None, list[Message]]:
    """Process a batch for one row of a multi-way join. Return its new state, and the whole row or its delete.

    With `retracts`, the row is emitted as it was and as it is.

    A row that arrived or moved finds the parts of its new keys in the same batch. If a part is missing, the topic
    lacks the beginning of the row without saying so. The row is then refused, and missing until it is received as a
    whole."""
    newest: Message | None = None
    reported: dict[int, tuple[int, bytes]] = {}
    for message in messages:
        if message.op == PART:
            reported[message.r[0]] = max((message.v, message.p), reported.get(message.r[0], (0, b"")))
        elif newest is None or (message.v, message.p) >= (newest.v, newest.p):
            newest = message
    shown = state is not None and _shown(star, state.parts)
    shown_row = _assembled(star, state) if state is not None and shown else None
    if newest is not None and newest.op == GONE:
        if retracts:
            return None, list(retraction(star.target, k[1:], shown_row, None))
        return None, [no_row(star.target, k[1:])] if shown else []
    own = None if state is None else state.own
    if newest is not None:
        own, part = split_part(newest.p)
        reported[0] = newest.v, part
    if own is None:
        return None, []
    old: list[bytes | None] = [None] * len(star.widths) if state is None else list(state.parts)
    chosen = [reported[i][1] if i in reported else part for i, part in enumerate(old)]
    if missing := [i for i, part in enumerate(chosen) if part is None]:
        return None, [_refused(star, k[1:], missing[0])]
    after = MultiJoinState(own=own, parts=[part or b"" for part in chosen])
    if retracts:
        new = _assembled(star, after) if _shown(star, after.parts) else None
        return after, list(retraction(star.target, k[1:], shown_row, new))
    if not _shown(star, after.parts):
        return after, [no_row(star.target, k[1:])] if shown else []
    return after, [whole_row(star.target, k[1:], _assembled(star, after))]


def _refused(star: Assemble, row: bytes, lookup: int) -> Message:
    reason = f"its part of join {lookup + 1} was never received: run `tailorbird snapshot` of its table to re-read it"
    key = base64.b64encode(row).decode()
    return RefusedRecord(f"row of {star.of}", 0, 0, reason, key, None).message()


def _shown(star: Assemble, parts: list[bytes]) -> bool:
    return all(part or not inner for part, inner in zip(parts, star.inner, strict=True))


def _assembled(star: Assemble, state: MultiJoinState) -> bytes:
    row = state.own
    for part, width in zip(state.parts, star.widths, strict=True):
        row = joined(row, part, width)
    return row


def fold_step(messages: Iterable[Message]) -> list[Message]:
    """Return the newest message of a batch: the step of a query without joins, which has no state."""
    return [max(messages, key=lambda message: message.v)]


def latest_step(
    state: LatestState | None, messages: Iterable[Message]
) -> tuple[LatestState | None, tuple[bytes | None, bytes | None] | None]:
    """Process a batch for one row of a source. Return its new state, and its change (before, after) or None.

    This serves sources that repeat events, reorder them or log no before images. A message that is not newer than the
    newest version seen is dropped; the before image is what this step emitted last. Tombstones remember deleted rows.
    The kernel lets them expire; after that, an older event would bring the row back.
    """
    newest: Message | None = None
    for message in messages:
        if newest is None or message.v > newest.v:
            newest = message
    if newest is None or (state is not None and newest.v <= state.v):
        return state, None
    before = None if state is None else state.p
    after = newest.p if newest.op == PUT else None
    change = None if before is None and after is None else (before, after)
    return LatestState(v=newest.v, p=after), change
