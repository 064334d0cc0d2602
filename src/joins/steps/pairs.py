"""Join rows of two sides at a key, many to many.

A change detector in front of each side knows each row's former and current values (`reported`), so a key receives at
most one message per row and batch. The step emits the pairs of a row that arrived or changed, and the ends of the pairs
of a row that left the key; a pair whose two rows both changed is emitted once. On an outer side, a row without partner
is emitted alone, and that result is deleted when its first partner arrives.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.model.errors import Fatal
from joins.query.nodes import Node, Pair
from joins.runtime.records import (
    GONE,
    NEW,
    PUT,
    Message,
    Values,
    joined,
    payload_of,
    text_of,
    trace_of,
    ts_of,
    values_of_text,
    values_text,
)
from joins.steps.state import no_row, whole_row


class Side(NamedTuple):
    """One side of a many-to-many join: left (`number` 0) or right (1). Pairs go to `target`."""

    pair: Pair
    number: int
    target: int

    @property
    def node(self) -> Node:
        """Return the node of this side."""
        return (self.pair.left, self.pair.right)[self.number]

    @property
    def stays(self) -> bool:
        """Return whether rows of this side without a match are kept (outer join)."""
        return (self.pair.left_stays, self.pair.right_stays)[self.number]

    def place(self, values: Values) -> bytes | None:
        """Return the text of a row's join key. None if it contains NULL, so that the row matches nothing."""
        key = [values[index] for index in (self.pair.left_key, self.pair.right_key)[self.number]]
        return None if None in key else text_of(key)

    def alone(self, name: bytes, payload: bytes | None) -> Message:
        """Return the message for a row without a match; `name` is the row's id. Without `payload` it deletes that
        result."""
        lacking = (self.pair.right, self.pair.left)[self.number]
        nulls = b",".join([b"null"] * len(lacking.id_columns))
        k = name + b"," + nulls if self.number == 0 else nulls + b"," + name
        if payload is None:
            return no_row(self.target, k)
        if self.number == 0:
            return whole_row(self.target, k, joined(payload, b"", lacking.width))
        text = b"null," * lacking.width + values_text(payload)
        return whole_row(self.target, k, payload_of(text, ts_of(payload), trace_of(payload)))


def reported(
    side: Side, before: bytes | None, after: bytes | None, ts_ms: int, trace: bytes = b""
) -> Iterator[Message]:
    """Yield the messages that a changed row causes at its former and its current join key.

    `before` and `after` are its values as text. A row with NULL in its key matches nothing; on an outer side it is
    emitted alone."""
    was, now = (None if text is None else values_of_text(text) for text in (before, after))
    row = was if now is None else now
    assert row is not None  # a change has an image
    name = text_of([row[index] for index in side.node.id_columns])
    r = bytes([side.number]) + name
    left, here = (None if values is None else side.place(values) for values in (was, now))
    payload = None if after is None else payload_of(after, ts_ms, trace)
    if left is not None and left != here:
        yield Message(bytes([side.pair.number]) + left, GONE, r, 1, b"")
    if here is not None and payload is not None:
        yield Message(bytes([side.pair.number]) + here, PUT if left == here else NEW, r, 1, payload)
    if side.stays and was is not None and left is None and (now is None or here is not None):
        yield side.alone(name, None)
    if side.stays and now is not None and here is None:
        yield side.alone(name, payload)


@dataclass(frozen=True, slots=True)
class PairState:
    """State of one key of a pairs join: per side, the payloads of its rows by name."""

    left: Mapping[bytes, bytes] = field(default_factory=dict)
    right: Mapping[bytes, bytes] = field(default_factory=dict)


class _Met(NamedTuple):
    """One side of a key: its rows after the batch, how many there were before, and the batch's changes by row id."""

    side: Side
    rows: Mapping[bytes, bytes]
    before: int
    changes: Mapping[bytes, Message]

    def was(self, name: bytes) -> bool:
        """Return whether a row that exists now also existed before the batch."""
        return name not in self.changes or self.changes[name].op == PUT


def pairs_step(
    pair: Pair, target: int, table: str, k: bytes, state: PairState | None, messages: Iterable[Message]
) -> tuple[PairState | None, Iterator[Message]]:
    """Fold a batch into one key. Return its new state, and the pairs for `target`, or their ends.

    `table` is named in error messages. Raises Fatal if more than `pair.most` pairs meet.
    """
    changes: tuple[dict[bytes, Message], dict[bytes, Message]] = ({}, {})
    for message in messages:
        changes[message.r[0]][message.r[1:]] = message
    before = state or PairState()
    left, right = (
        _changed(Side(pair, n, target), rows, changes[n]) for n, rows in enumerate((before.left, before.right))
    )
    if len(left.rows) * len(right.rows) > pair.most:
        raise Fatal(
            f"table {table}: {len(left.rows) * len(right.rows)} pairs of {pair.alias} at {k[1:].decode()}, "
            f"more than {pair.most}",
            "add an equality to ON, or a WHERE, so that fewer rows meet",
        )
    after = PairState(left.rows, right.rows) if left.rows or right.rows else None
    return after, _leaving((left, right))


def _changed(side: Side, before: Mapping[bytes, bytes], changes: Mapping[bytes, Message]) -> _Met:
    """Return one side of a key after its changes."""
    rows = dict(before)
    for name, message in changes.items():
        if message.op == GONE:
            rows.pop(name, None)
        else:
            rows[name] = message.p
    return _Met(side, rows, len(before), changes)


def _leaving(sides: Sequence[_Met]) -> Iterator[Message]:
    left, right = sides
    for name, other in ((a, b) for a in _ended(left) for b in _ended(right)):
        yield no_row(left.side.target, name + b"," + other)
    for one, partners in ((left, right), (right, left)):
        if one.side.stays and not partners.before:
            yield from (one.side.alone(name, None) for name in _ended(one))
            if not partners.rows:
                puts = ((name, message.p) for name, message in one.changes.items() if message.op != GONE)
                yield from (one.side.alone(*put) for put in puts)
        if partners.changes:
            for name, payload in one.rows.items():
                yield from _listed(one, partners, name, payload)


def _ended(met: _Met) -> Iterator[bytes]:
    return (name for name, message in met.changes.items() if message.op == GONE)


def _listed(one: _Met, partners: _Met, name: bytes, payload: bytes) -> Iterator[Message]:
    """Yield the messages of an existing row whose matches on the other side changed."""
    side, was = one.side, one.was(name)
    for other, message in partners.changes.items():
        pair = (name, other) if side.number == 0 else (other, name)
        if message.op == GONE:
            if was:
                yield no_row(side.target, b",".join(pair))
        elif side.number == 0 or name not in one.changes:  # if both rows changed, the left one emits the pair
            both = (payload, message.p) if side.number == 0 else (message.p, payload)
            yield whole_row(side.target, b",".join(pair), joined(*both, partners.side.node.width))
    if side.stays and was and not partners.before and partners.rows:
        yield side.alone(name, None)
    if side.stays and partners.before and not partners.rows:
        yield side.alone(name, payload)
