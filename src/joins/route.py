"""A record of the log → what each step needs to hear of it: the specification of routing, and the reader of envelopes.

What can not be read becomes a `Refused` with its bytes and the reason; it travels along the plan to the sink, which
sends it to the dead-letter topic in the batch's one action. Nothing here raises for bad data.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from cdc.envelope import from_envelope
from cdc.event import ChangeEvent, Row
from joins.plan import Expression, Node, Plan, Source
from joins.records import (
    DIM_GONE,
    DIM_PUT,
    GONE,
    MOVED,
    NEW,
    PUT,
    ROW_GONE,
    ROW_PUT,
    SINK,
    Message,
    Refused,
    Values,
    key_text,
    payload,
    text_of,
)

# End offsets per topic and partition, noted when the query started.
Settled = Mapping[str, Mapping[int, int]]
# Which of the rows satisfy a condition, over the values of one node.
Holds = Callable[[Expression, Node, Sequence[Values]], Sequence[bool]]


class Changed(NamedTuple):
    """One change of a source's row: values in the order of `Source.columns`, None where there is no row.

    `v` orders changes of one row: the offset, or twice the source's sequence for `latest`, which leaves room for
    markers. `told`: the change may be all that the log still holds of the row, so that nothing may be left out because
    it was said before. `sequence` is the source's.
    """

    source: Source
    before: Values | None
    after: Values | None
    v: int
    ts_ms: int
    told: bool
    new: bool
    sequence: int


class Truncated(NamedTuple):
    """A partition's marker that rows of a source's table are gone (`joins.truncation`); `sequence` is the source's."""

    source: Source
    partition: int
    offset: int
    sequence: int
    ts_ms: int

    def ends(self, change: Changed) -> bool:
        """Whether a row is gone whose newest change this is. A log without sequences has nothing younger in front."""
        return change.sequence < self.sequence or not self.sequence


class Reader:
    """Reads the log's records; `settled`: above these offsets the log still holds everything, below compaction ran.

    There an update may be the only record of its row, as it may where a table's history is partial, so all is told.
    """

    def __init__(self, plan: Plan, settled: Settled) -> None:
        self._settled = settled
        self._sources = {source.topic: source for source in plan.sources}

    def read(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> Changed | Refused | Truncated | None:
        """What one record says; None for a tombstone, which repeats the delete before it."""
        if value is None:
            return None
        try:
            event = from_envelope(orjson.loads(value))
            source = self._sources[topic]
            sequence = int(event.source.sequence or 0)
            if event.op == "t":
                return Truncated(source, partition, offset, sequence, event.source.ts_ms)
            before, after = _images(event, source, key)
            v = 2 * sequence if source.needs_latest else offset
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            return _refused(topic, partition, offset, key, value, error)
        told = event.source.partial or offset < self._settled.get(topic, {}).get(partition, offset + 1)
        return Changed(source, before, after, v, event.source.ts_ms, told, event.op == "c" and not told, sequence)


def _images(event: ChangeEvent, source: Source, key: bytes | None) -> tuple[Values | None, Values | None]:
    """Before and after as values; ValueError for an event that lacks the images which its op needs.

    For `latest` the key of a deleted row is enough: other values of its before image may be None.
    """

    def values(row: Row) -> Values:
        return [row[column] for column in source.columns]

    if event.op != "d" and event.after is None:
        raise ValueError(f"op {event.op} without its after image")
    if source.needs_latest:
        if event.op == "d":
            row = orjson.loads(key or b"null") if event.before is None else event.before
            return [row[column] if column in source.key else None for column in source.columns], None
        return None, values(event.after or {})
    if event.op in ("u", "d") and event.before is None:
        remedy = "its source needs `delivery: at_least_once`"
        raise ValueError(f"op {event.op} without its before image: {remedy}")
    before = None if event.before is None else values(event.before)
    return before, None if event.op == "d" or event.after is None else values(event.after)


def latest_message(change: Changed) -> Message:
    """A change on its way to its source's `latest` step, under its primary key."""
    values = change.after if change.after is not None else change.before
    assert values is not None  # a change has an image
    key = text_of([values[change.source.columns.index(name)] for name in change.source.key])
    p = b"" if change.after is None else payload(change.after, change.ts_ms)
    return Message(key, GONE if change.after is None else PUT, b"", change.v, p)


class Read(NamedTuple):
    """A change as node number `node` reads it: its own columns alone.

    `v`, `ts_ms` and `told` as in `Changed`. `new`: no row of the node that the change puts was told before, unless its
    `before` is there.
    """

    node: int
    before: Values | None
    after: Values | None
    v: int
    ts_ms: int
    told: bool
    new: bool


class Router:
    """Turns changes into messages for the steps of a plan, in three steps that an engine may also take by itself.

    `reads` says what each of the `nodes` reads of a change, `shown` leaves out the images that its filter hides, and
    `tell` makes messages of what is left: of a row that was hidden and stays hidden none, however much is told.
    """

    def __init__(self, plan: Plan, holds: Holds) -> None:
        self._holds = holds
        self.nodes: list[Node] = []
        self._targets: list[int] = []
        self._columns: list[list[int]] = []
        self._of: dict[str, list[int]] = {}
        self._place(plan.root, SINK)

    def _place(self, node: Node, target: int) -> None:
        self._of.setdefault(node.source.topic, []).append(len(self.nodes))
        self.nodes.append(node)
        self._targets.append(target)
        self._columns.append([node.source.columns.index(name) for name in node.columns])
        for hop in node.hops:
            self._place(hop.child, hop.number)

    def route(self, changes: Sequence[Changed]) -> Iterator[Message]:
        """The messages of some changes, in their order per node."""
        some: dict[int, list[Read]] = {}
        for change in changes:
            for read in self.reads(change):
                some.setdefault(read.node, []).append(read)
        for reads in some.values():
            for read in self.shown(reads):
                yield from self.tell(read)

    def reads(self, change: Changed) -> Iterator[Read]:
        """What the nodes read of a change, whatever their filters say."""
        # what a filter hid before was never told, unless the log does not say what was before
        new = not change.told and (change.new or change.before is not None)
        for number in self._of.get(change.source.topic, []):
            before, after = (_picked(image, self._columns[number]) for image in (change.before, change.after))
            yield Read(number, before, after, change.v, change.ts_ms, change.told, new)

    def shown(self, reads: Sequence[Read]) -> Iterator[Read]:
        """The same of one node, where what its filter does not let through is not there."""
        node = self.nodes[reads[0].node]
        if node.filter is None:
            yield from reads
            return
        rows = [image for read in reads for image in (read.before, read.after) if image is not None]
        passes = iter(self._holds(node.filter, node, rows))
        for read in reads:
            before, after = (
                image if image is not None and next(passes) else None for image in (read.before, read.after)
            )
            yield read._replace(before=before, after=after)

    def tell(self, read: Read) -> Iterator[Message]:
        """What the steps hear of it."""
        there = read.before is not None or read.after is not None
        if there and (read.told or read.before != read.after):
            yield from messages_of(self.nodes[read.node], self._targets[read.node], read)


def _picked(values: Values | None, columns: Sequence[int]) -> Values | None:
    return None if values is None else [values[index] for index in columns]


def messages_of(node: Node, target: int, read: Read) -> Iterator[Message]:
    """What the steps hear of one change of a node's row.

    A leaf's row is at once what its consumer reads. Else every hop hears where the row points now and no longer; the
    first one gets the row's values and passes them on. A row whose id changed has gone, and a new one has come.
    """
    before, after = read.before, read.after
    old = None if before is None else text_of([before[i] for i in node.id_columns])
    new = None if after is None else text_of([after[i] for i in node.id_columns])
    renamed = old != new
    if not node.hops:
        put, gone = (ROW_PUT, ROW_GONE) if target == SINK else (DIM_PUT, DIM_GONE)
        if old is not None and renamed:
            yield Message(bytes([target]) + old, gone, b"", read.v, b"")
        if new is not None and after is not None:
            yield Message(bytes([target]) + new, put, b"", read.v, payload(after, read.ts_ms))
        return
    for part, hop in enumerate(node.hops):
        here = bytes([hop.number])
        left = None if before is None or old is None else key_text([before[i] for i in hop.columns], old)
        right = None if after is None or new is None else key_text([after[i] for i in hop.columns], new)
        if left is not None and old is not None and (renamed or left != right):
            yield Message(here + left, GONE if renamed else MOVED, old, read.v, b"")
        if right is None or new is None or after is None:
            continue
        if part == 0 or renamed or left != right or read.told:
            op = NEW if read.new and before is None else PUT
            yield Message(here + right, op, new, read.v, payload(after, read.ts_ms) if part == 0 else b"")


def _refused(
    topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None, error: Exception
) -> Refused:
    reason = f"no {error} in it" if isinstance(error, KeyError) else str(error)
    return Refused(topic, partition, offset, f"not an envelope: {reason}", _base64(key), _base64(value))


def _base64(stored: bytes | None) -> Any:
    return None if stored is None else base64.b64encode(stored).decode()
