"""The specification of the stateful steps: pure functions of one key's state and one batch's messages for it.

Laws and the simulation run these; the portable engine runs them in Spark; the kernel must give the same messages. Each
folds the whole batch of a key before anything leaves. Within a batch `v` orders what happened to one row; between
batches the log does, since the messages of one row come from one partition: no state holds a version, except that of
`latest`, which makes such an order for sources that have none.

Why every row leaves right though its keys are folded apart: at the end of a batch a row that lives points at one key
per hop. Only there is its newest op a PUT, everywhere else MOVED, which says nothing. So each batch puts a row at most
once, and a `gone` of the same batch, from a key that it left, is older: put beats gone.

Until a marker mends them (`joins.steps.truncation`), rows that moved unseen also stand at keys where nobody looks for
them, and speak from there when the right side changes. What a row that came says beats that, the newest most (`v`);
between two that only spoke the bytes decide, so that a replay says the same.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from joins.query.plan import Assemble, KeyedJoin
from joins.steps.pages import Pages, filled, opened, page_key
from joins.steps.records import (
    DIM_GONE,
    DIM_PUT,
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
    pack,
    split_part,
    unpack,
    values_text,
    with_part,
)

_PUTS = (PUT, NEW, SURE)
_ENDS = (GONE, LOST)


@dataclass(slots=True, kw_only=True)
class JoinState:
    """Of one key of a hop: its right side (empty: there is none), and the rows that point here with their payloads.

    The payloads are empty where an assembling step keeps the rows.
    """

    right: bytes = b""
    rows: dict[bytes, bytes] | Pages = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class MultiJoinState:
    """Of one live row of a star: its own payload and per hop the part that it shows (empty: no such row)."""

    own: bytes
    parts: list[bytes]


@dataclass(slots=True, kw_only=True)
class LatestState:
    """Of one row of a source: the newest version seen and its payload, None once it was deleted (a tombstone)."""

    v: int
    p: bytes | None


def lookup_step(
    join: KeyedJoin, k: bytes, state: JoinState | None, messages: Iterable[Message]
) -> tuple[JoinState | None, list[Message]]:
    """Fold a batch into one key of a hop → its new state, and a message for every row that must hear of it.

    Rows hear when they came here or changed, and all of them when the right side did. What an inner join hides leaves
    as `gone`, unless the row can not have been shown: it was here already without a right side, or it is new.
    """
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
    out = _Outlet(join)
    for r in rows if right_changed else [r for r, message in newest.items() if message.op in _PUTS]:
        came = newest.get(r)
        new = came is not None and came.op == NEW and r not in often
        own = rows[r] if join.star is None else None if came is None else came.p
        shown = r in sure or (bool(before.right) if r in here else not new)
        out.row(r, own, right, v=1 if came is None else came.v + 2, shown=shown)
    for r, message in newest.items():
        # what an inner join hid here already was not shown
        hidden = join.star is None and join.inner and not before.right and r in here and r not in sure
        if message.op in _ENDS and not hidden:
            out.gone(r, v=message.v + 2)
    if null_key(k) or (not rows and not right):
        return None, out.messages
    return JoinState(right=right, rows=rows), out.messages


def _newest_right(stored: bytes, messages: list[Message]) -> tuple[bytes, bool]:
    """The right side after a batch, and whether its values are others than before."""
    newest: Message | None = None
    for message in messages:
        if message.op in (DIM_PUT, DIM_GONE) and (newest is None or (message.v, message.p) >= (newest.v, newest.p)):
            newest = message
    if newest is None:
        return stored, False
    right = newest.p if newest.op == DIM_PUT else b""
    same = bool(right) == bool(stored) and values_text(right) == values_text(stored)  # its time and trace are no change
    return (stored, False) if same else (right, True)


class _Outlet:
    """Where the rows of one hop go: on as whole rows, or to the step that assembles them.

    Of a star the first hop passes the rows themselves on, with its part; the others send parts alone.
    """

    def __init__(self, join: KeyedJoin) -> None:
        self.join, self.messages = join, list[Message]()

    def row(self, r: bytes, own: bytes | None, right: bytes, *, v: int, shown: bool) -> None:
        """Row `r`; `own` is its payload if it came in this batch or is kept here, `v` orders what is said of it."""
        join = self.join
        if join.star is not None:
            if join.part == 0 and own is not None:
                self.messages.append(Message(bytes([join.star]) + r, PUT, b"", v, with_part(own, right)))
            else:
                self.messages.append(Message(bytes([join.star]) + r, PART, bytes([join.part]), v, right))
        elif right or not join.inner:
            assert own is not None  # where no star keeps the rows, this step does
            self.messages.append(whole_row(join.target, r, joined(own, right, join.width), v))
        elif shown:
            self.messages.append(no_row(join.target, r))

    def gone(self, r: bytes, *, v: int) -> None:
        """Row `r` is deleted. To a star `v` says when: a row that moved unseen may stand at another key."""
        join = self.join
        if join.star is None:
            self.messages.append(no_row(join.target, r))
        elif join.part == 0:
            self.messages.append(Message(bytes([join.star]) + r, GONE, b"", v, b""))


def whole_row(target: int, r: bytes, p: bytes, v: int = 1) -> Message:
    """A node's row as its consumer reads it: the hop that it is the right side of, or the sink. Put beats gone."""
    return Message(bytes([target]) + r, ROW_PUT if target == SINK else DIM_PUT, b"", v, p)


def no_row(target: int, r: bytes) -> Message:
    """Its end; v 0."""
    return Message(bytes([target]) + r, ROW_GONE if target == SINK else DIM_GONE, b"", 0, b"")


def assemble_step(
    star: Assemble, k: bytes, state: MultiJoinState | None, messages: Iterable[Message]
) -> tuple[MultiJoinState | None, list[Message]]:
    """Fold a batch into one row of a star → its new state, and the whole row or its end.

    A row that came or moved finds the parts of its new keys in the same batch. Where one is missing, the log did not
    tell the row from its beginning and did not say so: the row is refused, and stays absent until it is told whole.
    """
    newest: Message | None = None
    reported: dict[int, tuple[int, bytes]] = {}
    for message in messages:
        if message.op == PART:
            reported[message.r[0]] = max((message.v, message.p), reported.get(message.r[0], (0, b"")))
        elif newest is None or (message.v, message.p) >= (newest.v, newest.p):
            newest = message
    shown = state is not None and _shown(star, state.parts)
    if newest is not None and newest.op == GONE:
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
    if not _shown(star, after.parts):
        return after, [no_row(star.target, k[1:])] if shown else []
    return after, [whole_row(star.target, k[1:], _assembled(star, after))]


def _refused(star: Assemble, row: bytes, lookup: int) -> Message:
    reason = f"its part of join {lookup + 1} was never told: `tailorbird snapshot` of its table reads it again"
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
    """Rows of a query without joins: the newest of the batch, no state."""
    return [max(messages, key=lambda message: message.v)]


def latest_step(
    state: LatestState | None, messages: Iterable[Message]
) -> tuple[LatestState | None, tuple[bytes | None, bytes | None] | None]:
    """Fold a batch of one source row → its state and its change (before, after), None where nothing is new.

    For sources that repeat events, reorder them or log no before images: what is not newer than the newest version
    seen is dropped, and before is what this step passed on last. Tombstones remember deleted rows; the engine lets
    them expire, after which an older event would bring the row back.
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


def joined_in(
    join: KeyedJoin,
    k: bytes,
    messages: Iterable[Message],
    get: Callable[[bytes], bytes | None],
    put: Callable[[bytes, bytes | None], None],
) -> list[Message]:
    """`lookup_step` on a key of a store → what leaves. `put` stores an entry, None removes it."""
    head = get(k)
    state, former = None, 1
    if head is not None:
        right, rows = opened(head, lambda page: get(page_key(k, page)))
        state, former = JoinState(right=right, rows=rows), rows.pages
    after, reported = lookup_step(join, k, state, messages)
    if after is None:
        entries = {page_key(k, page): None for page in range(former if former > 1 else 0)}
        for entry in entries if head is None else [k, *entries]:
            put(entry, None)
        return reported
    kept = after.rows if isinstance(after.rows, Pages) else filled(after.rows)
    kept.settle()
    if (changed := kept.head(after.right)) != head:
        put(k, changed)
    for page, stored in kept.changed().items():
        if stored is not None or page < former > 1:
            put(page_key(k, page), stored)
    return reported


def dump_multi_join(state: MultiJoinState) -> bytes:
    """A row's state as stored; inverse of `load_multi_join`."""
    return pack([state.own, *state.parts])


def load_multi_join(stored: bytes) -> MultiJoinState:
    """Read what `dump_multi_join` wrote."""
    own, *parts = unpack(stored)
    return MultiJoinState(own=own, parts=parts)
