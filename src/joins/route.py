"""A record of the log → what each step needs to hear of it: the specification of routing, and the reader of envelopes.

What can not be read becomes a `Refused` with its bytes and the reason; it travels along the plan to the sink, which
sends it to the dead-letter topic in the batch's one action. Nothing here raises for bad data.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from joins.envelope import Columns, as_text, read_envelope
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
    SURE,
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
    it was said before; `mends`: the row may be shown with other values than its newest record's. `sequence` is the
    source's.
    """

    source: Source
    before: Values | None
    after: Values | None
    v: int
    ts_ms: int
    told: bool
    new: bool
    sequence: int
    mends: bool = False


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
    `ends`: where the log ended when the plan was compiled; what is older may lack columns that came since.
    """

    def __init__(self, plan: Plan, settled: Settled, ends: Settled | None = None) -> None:
        self._settled, self._ends = settled, ends or {}
        self._sources = {source.topic: (source, Columns(source)) for source in plan.sources}

    def read(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> Changed | Refused | Truncated | None:
        """What one record says; None for a tombstone, which repeats the delete before it."""
        if value is None:
            return None
        try:
            envelope = read_envelope(value)
            source, columns = self._sources[topic]
            if envelope.op == "t":
                return Truncated(source, partition, offset, envelope.sequence, envelope.ts_ms)
            # what the plan was compiled after may lack columns that were added later
            added = offset < self._ends.get(topic, {}).get(partition, 0)
            images = columns.images(envelope, key, added=added)
        except ValueError as error:
            reason = f"not an envelope: {error}"
            return Refused(topic, partition, offset, reason, as_text(key), as_text(value))
        v = 2 * envelope.sequence if source.needs_latest else offset
        partial = envelope.partial or not images.whole
        told = partial or offset < self._settled.get(topic, {}).get(partition, offset + 1)
        new = envelope.op == "c" and not told
        return Changed(source, images.before, images.after, v, envelope.ts_ms, told, new, envelope.sequence)


def latest_message(change: Changed) -> Message:
    """A change on its way to its source's `latest` step, under its primary key."""
    values = change.after if change.after is not None else change.before
    assert values is not None  # a change has an image
    key = text_of([values[change.source.columns.index(name)] for name in change.source.key])
    p = b"" if change.after is None else payload(change.after, change.ts_ms)
    return Message(key, GONE if change.after is None else PUT, b"", change.v, p)


class Router:
    """Turns changes into messages for the steps of a plan; `holds` evaluates the filters of its nodes."""

    def __init__(self, plan: Plan, holds: Holds) -> None:
        self._holds = holds
        self._nodes: list[tuple[Node, int]] = []
        self._place(plan.root, SINK)

    def _place(self, node: Node, target: int) -> None:
        self._nodes.append((node, target))
        for hop in node.hops:
            self._place(hop.child, hop.number)

    def route(self, changes: Sequence[Changed]) -> Iterator[Message]:
        """The messages of some changes, in their order per node."""
        for node, target in self._nodes:
            own = [change for change in changes if change.source.topic == node.source.topic]
            columns = [node.source.columns.index(name) for name in node.columns]
            before = self._seen(node, [_picked(change.before, columns) for change in own])
            after = self._seen(node, [_picked(change.after, columns) for change in own])
            for change, old, new in zip(own, before, after, strict=True):
                if old is None and new is None:
                    continue
                if old != new or change.told:
                    yield from messages_of(node, target, old, new, change)

    def _seen(self, node: Node, images: list[Values | None]) -> list[Values | None]:
        """Images as the node sees them: what its filter does not let through is not there."""
        if node.filter is None:
            return images
        rows = [image for image in images if image is not None]
        passes = iter(self._holds(node.filter, node, rows))
        return [image if image is not None and next(passes) else None for image in images]


def _picked(values: Values | None, columns: Sequence[int]) -> Values | None:
    return None if values is None else [values[index] for index in columns]


def messages_of(
    node: Node, target: int, before: Values | None, after: Values | None, change: Changed
) -> Iterator[Message]:
    """What the steps hear of one change of a node's row.

    A leaf's row is at once what its consumer reads. Else every hop hears where the row points now and no longer; the
    first one gets the row's values and passes them on. A row whose id changed has gone, and a new one has come.
    """
    old = None if before is None else text_of([before[i] for i in node.id_columns])
    new = None if after is None else text_of([after[i] for i in node.id_columns])
    renamed = old != new
    if not node.hops:
        put, gone = (ROW_PUT, ROW_GONE) if target == SINK else (DIM_PUT, DIM_GONE)
        if old is not None and renamed:
            yield Message(bytes([target]) + old, gone, b"", change.v, b"")
        if new is not None and after is not None:
            yield Message(bytes([target]) + new, put, b"", change.v, payload(after, change.ts_ms))
        return
    for part, hop in enumerate(node.hops):
        here = bytes([hop.number])
        left = None if before is None or old is None else key_text([before[i] for i in hop.columns], old)
        right = None if after is None or new is None else key_text([after[i] for i in hop.columns], new)
        if left is not None and old is not None and (renamed or left != right):
            yield Message(here + left, GONE if renamed else MOVED, old, change.v, b"")
        if right is None or new is None or after is None:
            continue
        if part == 0 or renamed or left != right or change.told:
            op = SURE if change.mends else NEW if change.new and before is None else PUT
            yield Message(here + right, op, new, change.v, payload(after, change.ts_ms) if part == 0 else b"")
