"""TRUNCATE: the log says that a table is empty, and every step must hear of each row that was in it.

A stateful step runs only for keys that messages name, so somebody must list the rows. The driver does, between two
batches: its next batch begins with a retraction of every row that some state or the result holds, except rows that came
after the TRUNCATE. A marker stands in every partition of the topic; the listing waits for the last of them, and which
rows came later is known from the log: those that a change behind their partition's marker put there. Such a row is
retracted as well, as some key may still list what it was before the TRUNCATE, and put again. Both are older than
anything else in the batch that they begin (v = -2 and -1).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from cdc.types import Canonical
from joins.plan import SINK, STAR, Node, Plan, Source
from joins.records import DIM_GONE, GONE, ROW_GONE, Message, Values, key_text, text_of
from joins.route import Changed, Truncated
from joins.state import JoinState, StarState

_RETRACTED, PUT_AGAIN = -2, -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A TRUNCATE whose markers have all been met; `later` = the rows that came after it, by their key's text."""

    topic: str
    sequence: int
    source: Source
    later: Mapping[bytes, Values]

    def again(self) -> list[Changed]:
        """The rows that came later, as changes that put them."""
        return [Changed(self.source, None, values, PUT_AGAIN, 0, False, False) for values in self.later.values()]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Met:
    """Markers of one TRUNCATE met so far: per partition, the rows that changes put behind it."""

    source: Source
    sequence: int
    later: Mapping[int, Mapping[bytes, Values]]


@dataclass(slots=True)
class Truncations:
    """Markers met and not yet acted upon; committed with the batch. `due` is what the next batch begins with.

    `floors`: sequence of a topic's newest TRUNCATE. What `latest` is told of older versions came too late.
    """

    waiting: dict[str, _Met] = field(default_factory=dict)
    due: list[Due] = field(default_factory=list)
    floors: dict[str, int] = field(default_factory=dict)

    def met(self, marker: Truncated) -> None:
        """A marker: what stood before it in its partition no longer counts, whichever TRUNCATE it was behind."""
        topic = marker.source.topic
        self.floors[topic] = max(marker.sequence, self.floors.get(topic, 0))
        known = self.waiting.get(topic)
        if known is not None and known.sequence > marker.sequence:
            return  # a later TRUNCATE covers it, whose marker is still to come in this partition
        later = {} if known is None or known.sequence < marker.sequence else dict(known.later)
        later[marker.partition] = {}
        self.waiting[topic] = _Met(source=marker.source, sequence=marker.sequence, later=later)

    def changed(self, change: Changed, partition: int) -> None:
        """A change, after what stands before it in its partition."""
        known = self.waiting.get(change.source.topic)
        if known is None or partition not in known.later:
            return
        source, rows = change.source, dict(known.later[partition])
        image = change.after if change.after is not None else change.before
        assert image is not None  # a change has an image
        rows.pop(_key(source, source.columns, image), None)
        if change.after is not None:
            rows[_key(source, source.columns, change.after)] = change.after
        later = {**known.later, partition: rows}
        self.waiting[source.topic] = _Met(source=source, sequence=known.sequence, later=later)

    def close_batch(self, partitions: int) -> None:
        """A batch ends: what has been met in all partitions falls due."""
        for topic, known in list(self.waiting.items()):
            if len(known.later) == partitions:
                later = {key: row for rows in known.later.values() for key, row in rows.items()}
                self.due.append(Due(topic=topic, sequence=known.sequence, source=known.source, later=later))
                del self.waiting[topic]

    def take(self) -> list[Due]:
        """What is due, once."""
        due, self.due = self.due, []
        return due

    def copy(self) -> Truncations:
        """A copy that a batch may change."""
        return Truncations(dict(self.waiting), list(self.due), dict(self.floors))


def retractions(
    plan: Plan,
    due: Due,
    joins: Mapping[bytes, JoinState],
    stars: Mapping[bytes, StarState],
    shown: Iterable[tuple[Canonical, ...]],
) -> Iterator[Message]:
    """Messages that retract every row of a truncated table; `shown` = row keys of the result, as it is stored.

    In the same batch follow `due.again()`, through the router like any change.
    """
    for node in plan.nodes():
        left = {hop.number for hop in node.hops if node.source.topic == due.topic}
        right = {hop.number for hop in node.hops if hop.child.source.topic == due.topic}
        for k, state in joins.items():
            if k[0] in left:
                yield from (Message(k, GONE, r, _RETRACTED, b"") for r in state.rows)
            if k[0] in right and state.right:
                yield Message(k, DIM_GONE, b"", _RETRACTED, b"")
        star = next((step.number for step in plan.steps if step.number >= STAR and step.of == node.alias), None)
        if star is not None and left:
            yield from (_end(node, k[1:]) for k in stars if k[0] == star)
    if plan.root.source.topic == due.topic:
        # a row whose foreign key is NULL may be in no state
        yield from (_end(plan.root, text_of(list(row))) for row in shown)


def _end(node: Node, row: bytes) -> Message:
    """The end of a row, told where nothing is known of it: it passes on and leaves no state."""
    if not node.hops:
        return Message(bytes([SINK]) + row, ROW_GONE, b"", _RETRACTED, b"")
    return Message(bytes([node.hops[0].number]) + key_text([None], row), GONE, row, _RETRACTED, b"")


def _key(source: Source, columns: Iterable[str], values: Values) -> bytes:
    by_name = dict(zip(columns, values, strict=False))
    return text_of([by_name[name] for name in source.key])
