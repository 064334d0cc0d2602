"""Detect how a row of a fragment has changed since the last batch, for the group or node that reads the fragment.

The step stores the last version of each row, so it needs no before images of the log. Repeated events, rewinds,
repairs and compacted records therefore do not change the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from joins.query.group import Grouping
from joins.query.nodes import Derived, Node, Pair
from joins.query.plan import Fragment
from joins.runtime.records import (
    DIM_PUT,
    ROW_PUT,
    Message,
    text_of,
    trace_of,
    ts_of,
    values_of,
    values_of_text,
    values_text,
    with_part,
)
from joins.steps.exact import double_text
from joins.steps.pairs import Side, reported
from joins.steps.route import Read, messages_of

Picks = Callable[[bytes], bytes]


class Transition(NamedTuple):
    """One row before and after a batch: the values that its reader compares, as text. None where there is no row.

    `ts_ms` is the time of the change in milliseconds (0: unknown, or the row was deleted). `trace` is the lineage of
    the new row (`cdc.stored.traces`), empty for a deletion.
    """

    before: bytes | None
    after: bytes | None
    ts_ms: int
    trace: bytes = b""


def change_detector_step(
    state: bytes | None, messages: Iterable[Message], picks: Picks
) -> tuple[bytes | None, Transition | None]:
    """Process a batch of messages about one row. Return its new state, and the change or None.

    The newest message wins. Of two messages with one version a put wins over a delete, and of two puts the greater
    one. So their order does not matter. `picks` extracts from a payload the text that is stored and compared."""
    newest = max(messages, key=lambda message: (message.v, message.op in (DIM_PUT, ROW_PUT), message.p))
    there = newest.op in (DIM_PUT, ROW_PUT)
    after = picks(newest.p) if there else None
    if after == state:
        return state, None
    return after, Transition(state, after, ts_of(newest.p), trace_of(newest.p)) if there else Transition(state, None, 0)


def contribution(group: Grouping) -> Picks:
    """Return the function that extracts a row's contribution to its group: the texts of the key and of the
    arguments."""
    texts = [(place, _double if type_.kind.startswith("float") else orjson.dumps) for place, type_ in zip(
        group.keys, group.key_types, strict=True)]  # fmt: skip

    def picks(payload: bytes) -> bytes:
        values = values_of(payload)
        key = b",".join(text(values[place]) for place, text in texts)
        return with_part(key, text_of([values[place] for place in group.arguments]))

    return picks


def _double(value: Any) -> bytes:
    """Return the same text for equal doubles, so that they belong to one group: they can be written in several ways."""
    return b"null" if value is None else double_text(float(value))


def whole(payload: bytes) -> bytes:
    """Return the text of all values in a payload. A node must see every change, a group only those of its
    `contribution`."""
    return values_text(payload)


class Reread(NamedTuple):
    """A node that reads rows of a fragment like changes of a table. Its own rows go to `target`."""

    node: Node
    target: int


Receiver = Reread | Side


def receivers_of(fragment: Fragment) -> dict[int, Receiver]:
    """Return, by the number of the change detector, the nodes and pairs of a fragment that receive its changes."""
    root, receivers = fragment.root, list[Receiver]()
    if isinstance(root, Pair):
        receivers += [Side(root, side, fragment.outlet) for side in range(2)]
    elif isinstance(root, Node):
        receivers.append(Reread(root, fragment.outlet))
        receivers += [Reread(lookup.child, lookup.number) for node in root.walk() for lookup in node.lookups]
    return {
        receiver.node.source.change_detector: receiver
        for receiver in receivers
        if isinstance(receiver.node.source, Derived) and receiver.node.source.change_detector is not None
    }


def differences(receiver: Receiver, found: Transition) -> Iterator[Message]:
    """Yield the messages that a changed row causes for the steps of its receiver."""
    if isinstance(receiver, Side):
        yield from reported(receiver, *found)
        return
    node, target = receiver
    before, after = (None if text is None else values_of_text(text) for text in found[:2])
    yield from messages_of(
        node, target,
        Read(node=0, before=before, after=after, v=1, ts_ms=found.ts_ms, reported=False, new=before is None,
             repairs=False,
             blind=False, trace=found.trace),
    )  # fmt: skip
