"""What one row of a fragment told last, and what it tells now: the step in front of a group or of a node.

It knows by itself what a row said before and trusts no image of the log. So events that come again, rewinds, repairs
and compacted beginnings change nothing that is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import orjson

from joins.query.group import Grouping
from joins.query.nodes import Derived, Node, Pair
from joins.query.plan import Fragment
from joins.steps.exact import double_text
from joins.steps.pairs import Side, reported
from joins.steps.records import (
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
from joins.steps.route import Read, messages_of

Picks = Callable[[bytes], bytes]


class Transition(NamedTuple):
    """A row's text before and after a batch, None where there is no row; `ts_ms` of the change, 0 where unknown.

    `trace`: of the row as it is now.
    """

    before: bytes | None
    after: bytes | None
    ts_ms: int
    trace: bytes = b""


def change_detector_step(
    state: bytes | None, messages: Iterable[Message], picks: Picks
) -> tuple[bytes | None, Transition | None]:
    """Fold a batch of one row → its state (the text that it told last) and what changed, None where nothing did.

    The newest message holds; of the same version a put, and of two puts the greater, so that their order does not
    matter. `picks` makes the row's text of its payload.
    """
    newest = max(messages, key=lambda message: (message.v, message.op in (DIM_PUT, ROW_PUT), message.p))
    there = newest.op in (DIM_PUT, ROW_PUT)
    after = picks(newest.p) if there else None
    if after == state:
        return state, None
    return after, Transition(state, after, ts_of(newest.p), trace_of(newest.p)) if there else Transition(state, None, 0)


def contribution(group: Grouping) -> Picks:
    """What a row contributes to its group: the text of the key, and that of the arguments (`with_part`)."""
    texts = [(place, _double if type_.kind.startswith("float") else orjson.dumps) for place, type_ in zip(
        group.keys, group.key_types, strict=True)]  # fmt: skip

    def picks(payload: bytes) -> bytes:
        values = values_of(payload)
        key = b",".join(text(values[place]) for place, text in texts)
        return with_part(key, text_of([values[place] for place in group.arguments]))

    return picks


def _double(value: Any) -> bytes:
    """A double can be written in several ways, but is one group."""
    return b"null" if value is None else double_text(float(value))


def whole(payload: bytes) -> bytes:
    """What a row tells a node that reads it: all of its values."""
    return values_text(payload)


class Reread(NamedTuple):
    """A node that reads rows as it does a table's; its own go to `target`."""

    node: Node
    target: int


Hearer = Reread | Side


def differs_of(fragment: Fragment) -> dict[int, Hearer]:
    """Who hears the differs in front of a fragment's nodes, by their numbers."""
    root, hearers = fragment.root, list[Hearer]()
    if isinstance(root, Pair):
        hearers += [Side(root, side, fragment.outlet) for side in range(2)]
    elif isinstance(root, Node):
        hearers.append(Reread(root, fragment.outlet))
        hearers += [Reread(lookup.child, lookup.number) for node in root.walk() for lookup in node.lookups]
    return {
        hearer.node.source.change_detector: hearer
        for hearer in hearers
        if isinstance(hearer.node.source, Derived) and hearer.node.source.change_detector is not None
    }


def differences(hearer: Hearer, found: Transition) -> Iterator[Message]:
    """What the steps hear of a change of a row."""
    if isinstance(hearer, Side):
        yield from reported(hearer, *found)
        return
    node, target = hearer
    before, after = (None if text is None else values_of_text(text) for text in found[:2])
    yield from messages_of(
        node, target,
        Read(node=0, before=before, after=after, v=1, ts_ms=found.ts_ms, reported=False, new=before is None,
             repairs=False,
             blind=False, trace=found.trace),
    )  # fmt: skip
