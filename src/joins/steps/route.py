"""Read records of change topics and turn them into messages for the steps. The specification of the kernel's router.

A record that cannot be read becomes a `RefusedRecord` with its bytes and the reason. It passes all steps to the
sink, which writes it to the dead-letter topic. Invalid data never raises here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cdc.model.naming import database_named, table_named
from cdc.stored.traces import NOWHERE, Origin, entries_of, place_of
from joins.query.nodes import Expression, Node, PlanSource
from joins.query.plan import Fragment, Plan
from joins.runtime.records import (
    DIM_GONE,
    DIM_PUT,
    EXACT_AFTER,
    EXACT_BEFORE,
    GONE,
    LOST,
    MOVED,
    NEW,
    PUT,
    ROW_GONE,
    ROW_PUT,
    SINK,
    SURE,
    Message,
    RefusedRecord,
    Values,
    as_text,
    key_text,
    payload,
    payload_of,
    seen,
    text_of,
    trace_of,
)
from joins.steps.envelope import Columns, Envelope, read_envelope

# End offsets per topic and partition, noted when the query started.
SafeOffsets = Mapping[str, Mapping[int, int]]
# Returns which rows satisfy a condition, given the values of one node.
Holds = Callable[[Expression, Node, Sequence[Values]], Sequence[bool]]


class Changed(NamedTuple):
    """One change of a row of a captured table. Values are in the order of `PlanSource.columns`, None without a row.

    - `v`: orders the changes of one row: the offset. For `latest` it is twice the sequence, which leaves room for
      markers.
    - `reported`: the topic may have no other record of the row, so even unchanged results must be emitted.
    - `new`: if `before` is None, no earlier record of the row was emitted.
    - `repairs`: the result may show other values of the row than those of its newest record.
    - `blind`: NULL in `before` may stand for a value that the record does not contain.
    - `sequence`: the number of the change at its source.
    - `place`: the place of the record that contains `after` (`cdc.stored.traces`).
    - `exact`: `before` is the row's image in the record before, and that was read, too."""

    source: PlanSource
    before: Values | None
    after: Values | None
    v: int
    ts_ms: int
    reported: bool
    new: bool
    sequence: int
    repairs: bool = False
    blind: bool = False
    place: int = NOWHERE
    exact: bool = False


class PhaseEndedError(Exception):
    """The changes of a table's exact phase cannot be added up, or no longer, or a row may have moved without a record.
    The run must begin again, and use change detectors up to this phase: `exact_from` of the table `name` is then
    `number` + 1."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"the exact phase {number} of {name} has ended")
        self.name, self.number = name, number


class Truncated(NamedTuple):
    """A marker in a partition: rows of the table were deleted (`joins.steps.truncation`).

    `table` is the name of one table of a merged table: the marker deletes only its rows."""

    source: PlanSource
    partition: int
    offset: int
    sequence: int
    ts_ms: int
    table: str = ""

    def ends(self, change: Changed) -> bool:
        """Return whether the marker deletes the row whose newest change is given. Without sequences it deletes all
        rows."""
        return change.sequence < self.sequence or not self.sequence


class LogReader:
    """Reads records of change topics.

    `settled` are the compaction-safe offsets: records before them may have been compacted. A compacted topic may
    have only an update of a row, and so may a table whose history is partial. Such a change is emitted in full.
    `ends` are the ends of the log when the plan was compiled. Older records may lack columns that were added since.
    `exact_from` are the numbers of the exact phases, by table, from which on groups add up changes; by default all."""

    def __init__(
        self,
        plan: Plan,
        settled: SafeOffsets,
        ends: SafeOffsets | None = None,
        exact_from: Mapping[str, int] | None = None,
    ) -> None:
        self._settled, self._ends, self._exact_from = settled, ends or {}, exact_from or {}
        self._added_up = {
            fragment.root.source.name
            for fragment in plan.fragments
            if fragment.adds_up and isinstance(fragment.root, Node) and isinstance(fragment.root.source, PlanSource)
        }
        self._moves = moving(plan, self._exact_from)
        self._sources = {source.name: (source, Columns(source)) for source in plan.sources}

    def read(
        self, topic: str, partition: int, offset: int, key: bytes | None, value: bytes | None
    ) -> Changed | RefusedRecord | Truncated | None:
        """Read one record. None for a tombstone, which only repeats the delete before it, and for a record of another
        table in the same topic. A RefusedRecord if the value is not a valid envelope.

        Raises PhaseEndedError for a record after an exact phase whose changes may have been added up, and for a record
        of such a phase without all values that the plan uses. If rows of the table must not move unnoticed (`moving`),
        it also raises it for a record that cannot be read, for one that does not say where its row is, and for one that
        capture repeats after a rewind: the row is where a later record before it has put it."""
        found = self._sources.get(topic) or self._sources.get(table_named(key))
        if value is None or found is None:
            return None
        source, columns = found
        envelope, exact = Envelope(), False
        safe_from = self._settled.get(topic, {}).get(partition, offset + 1)
        try:
            envelope = read_envelope(value)
            exact = self._is_exact(source, envelope, safe=offset >= safe_from)
            if envelope.op == "t":
                table = _table_of(source, key)
                return Truncated(source, partition, offset, envelope.sequence, envelope.ts_ms, table)
            # records older than the plan may lack columns that were added later
            added = offset < self._ends.get(topic, {}).get(partition, 0)
            images = columns.images(envelope, key, added=added)
        except ValueError as error:
            # the next change of the row has this one's image as `before`
            if exact or source.name in self._moves:
                raise PhaseEndedError(source.name, envelope.exact if exact else 0) from error
            reason = f"not an envelope: {error}"
            return RefusedRecord(topic, partition, offset, reason, as_text(key), as_text(value))
        v = 2 * envelope.sequence if source.needs_latest else offset
        partial = envelope.partial or not images.whole
        reported = partial or offset < safe_from
        if exact and reported:
            raise PhaseEndedError(source.name, envelope.exact)
        places = self._moves.get(source.name)
        again = envelope.inexact_after > envelope.sequence  # a rewind ends all phases of the records that it repeats
        if places is not None and (again or not places.isdisjoint(images.unknown)):
            raise PhaseEndedError(source.name, 0)
        new = envelope.op == "c" and not reported
        return Changed(
            source, images.before, images.after, v, envelope.ts_ms, reported, new, envelope.sequence,
            blind=images.blind,
            place=place_of(partition, offset),
            exact=exact,
        )  # fmt: skip

    def _is_exact(self, source: PlanSource, envelope: Envelope, *, safe: bool) -> bool:
        if source.name not in self._added_up or not safe:
            return False
        first = self._exact_from.get(source.name, 1)
        if envelope.exact >= first:
            return True
        if envelope.inexact_after >= first:
            raise PhaseEndedError(source.name, envelope.inexact_after)
        return False


def retracts(fragment: Fragment, exact_from: Mapping[str, int]) -> bool:
    """Return whether the joins of a fragment emit what their rows were, so that its group needs no change detector.

    That would count a row twice that moved to another key without a record of it that the join reads. So then
    `exact_from` names the table (`PhaseEndedError`), and the run uses a change detector."""
    name = moves_in(fragment)
    return fragment.retracts and (name is None or name not in exact_from)


def moves_in(fragment: Fragment) -> str | None:
    """Return the table whose records say to which key a row of a retracting lookup join moves. None if something else
    says it: a step `latest`, a change detector, or an assembling step, which has one entry per row."""
    root = fragment.root
    if not fragment.retracts or not isinstance(root, Node) or len(root.lookups) > 1:
        return None
    return root.source.name if isinstance(root.source, PlanSource) and not root.source.needs_latest else None


def moving(plan: Plan, exact_from: Mapping[str, int]) -> dict[str, set[str]]:
    """Return the tables of which every record must be read, because retracting joins rely on them. Their columns are
    those that say where a row is."""
    found: dict[str, set[str]] = {}
    for fragment in plan.fragments:
        name, root = moves_in(fragment), fragment.root
        if name is not None and name not in exact_from and isinstance(root, Node):
            found.setdefault(name, set()).update(places_in(root))
    return found


def places_in(root: Node) -> list[str]:
    """Return the columns of a lookup join's left node that say where a row is: its id, and the key that it refers to.

    If a record does not contain one of them, the row is perhaps at another key, too."""
    return [root.columns[i] for i in sorted({*root.id_columns, *root.lookups[0].columns})]


def _table_of(source: PlanSource, key: bytes | None) -> str:
    if not source.merged:
        return ""
    database_named(key)  # raises ValueError for a key without a table
    return table_named(key)


def latest_message(change: Changed) -> Message:
    """Return the message to the `latest` step of a change's table. Its key is the primary key."""
    values = change.after if change.after is not None else change.before
    assert values is not None  # a change has an image
    key = text_of([values[change.source.columns.index(name)] for name in change.source.key])
    p = b"" if change.after is None else payload(change.after, change.ts_ms, seen(0, change.place))
    return Message(key, GONE if change.after is None else PUT, b"", change.v, p)


def place_reported(p: bytes | None) -> int:
    """Return the place of the record from a payload that passed through `latest`."""
    found = [one for one in entries_of(b"" if p is None else trace_of(p)[2:]) if isinstance(one, Origin)]
    return place_of(found[0].partition, found[0].offset) if found else NOWHERE


class Read(NamedTuple):
    """A change as node number `node` reads it, with only the node's columns.

    `v`, `ts_ms`, `reported`, `repairs` and `blind` are as in `Changed`. `new`: if `before` is None, the row was not
    emitted before. `trace` is the origin of `after`. `exact` is as in `Changed`."""

    node: int
    before: Values | None
    after: Values | None
    v: int
    ts_ms: int
    reported: bool
    new: bool
    repairs: bool
    blind: bool
    trace: bytes = b""
    exact: bool = False


class Router:
    """Turns changes into messages for the steps of a fragment, in three steps.

    `reads` returns what each node reads of a change. `shown` removes the images that a node's filter rejects.
    `report` makes messages of the rest. `nodes` are the nodes of the fragment that read tables. `first` is the index
    of the fragment's first node in the plan, for traces."""

    def __init__(self, fragment: Fragment, holds: Holds, first: int = 0) -> None:
        self._holds = holds
        self._adds_up = fragment.adds_up
        self._next = first
        self.nodes: list[Node] = []
        self._numbers: list[int] = []
        self._targets: list[int] = []
        self._columns: list[list[int]] = []
        self._of: dict[str, list[int]] = {}
        if isinstance(fragment.root, Node):  # other roots read fragments' rows, or `joins.steps.by_time` reads for them
            self._place(fragment.root, fragment.outlet)

    def _place(self, node: Node, target: int) -> None:
        if isinstance(node.source, PlanSource):
            self._of.setdefault(node.source.name, []).append(len(self.nodes))
            self.nodes.append(node)
            self._numbers.append(self._next)
            self._targets.append(target)
            self._columns.append([node.source.columns.index(name) for name in node.columns])
        self._next += 1
        for lookup in node.lookups:
            self._place(lookup.child, lookup.number)

    def route(self, changes: Sequence[Changed]) -> Iterator[Message]:
        """Yield the messages that changes cause. For each node they are in the order of the changes."""
        some: dict[int, list[Read]] = {}
        for change in changes:
            for read in self.reads(change):
                some.setdefault(read.node, []).append(read)
        for reads in some.values():
            for read in self.shown(reads):
                yield from self.report(read)

    def reads(self, change: Changed) -> Iterator[Read]:
        """Yield what each node reads of a change, without regard to filters."""
        # a row that a filter hid was never emitted, unless the log does not contain its before image
        new = not change.reported and (change.new or change.before is not None)
        for number in self._of.get(change.source.name, []):
            before, after = (_picked(image, self._columns[number]) for image in (change.before, change.after))
            trace = b"" if after is None else seen(self._numbers[number], change.place)
            yield Read(
                number, before, after, change.v, change.ts_ms, change.reported, new, change.repairs, change.blind,
                trace, change.exact,
            )  # fmt: skip

    def shown(self, reads: Sequence[Read]) -> Iterator[Read]:
        """Yield the reads of one node, without the before and after images that the node's filter rejects.

        If a record has only a part of the before image, that image may have passed the filter. So it is kept."""
        node = self.nodes[reads[0].node]
        if node.filter is None:
            yield from reads
            return
        rows = [image for read in reads for image in (read.before, read.after) if image is not None]
        passes = iter(self._holds(node.filter, node, rows))
        for read in reads:
            before = read.before if read.before is not None and (next(passes) or read.blind) else None
            after = read.after if read.after is not None and next(passes) else None
            yield read._replace(before=before, after=after)

    def report(self, read: Read) -> Iterator[Message]:
        """Yield the messages to the steps that a change causes, as one node reads it."""
        there = read.before is not None or read.after is not None
        if not there or not (read.reported or read.before != read.after):
            return
        make = images_of if self._adds_up and read.exact else messages_of
        yield from make(self.nodes[read.node], self._targets[read.node], read)


def _picked(values: Values | None, columns: Sequence[int]) -> Values | None:
    return None if values is None else [values[index] for index in columns]


def images_of(node: Node, target: int, read: Read) -> Iterator[Message]:
    """Yield both images of an exact change, for the group that receives the node's rows."""
    ts_ms = 0 if read.after is None else read.ts_ms
    for op, row in ((EXACT_BEFORE, read.before), (EXACT_AFTER, read.after)):
        if row is not None:
            k = bytes([target]) + text_of([row[i] for i in node.id_columns])
            yield Message(k, op, b"", read.v, payload(row, ts_ms, read.trace))


def messages_of(node: Node, target: int, read: Read) -> Iterator[Message]:
    """Yield the messages that a change of a node's row causes. `target` is the step that receives its rows.

    The row of a leaf goes to `target` directly. Otherwise each lookup join is informed at the key that the row
    refers to now, and at the key that it no longer refers to. The first lookup join receives the row's values. A row
    whose id changed is treated as a deleted row and a new row."""
    before, after = read.before, read.after
    old = None if before is None else text_of([before[i] for i in node.id_columns])
    new = None if after is None else text_of([after[i] for i in node.id_columns])
    renamed = old != new
    if not node.lookups:
        put, gone = (ROW_PUT, ROW_GONE) if target == SINK else (DIM_PUT, DIM_GONE)
        if old is not None and renamed:
            yield Message(bytes([target]) + old, gone, b"", read.v, b"")
        if new is not None and after is not None:
            yield Message(bytes([target]) + new, put, b"", read.v, payload(after, read.ts_ms, read.trace))
        return
    for part, lookup in enumerate(node.lookups):
        here = bytes([lookup.number])
        left = (
            None
            if before is None or old is None
            else key_text([*(before[i] for i in lookup.columns), *lookup.constants], old)
        )
        right = (
            None
            if after is None or new is None
            else key_text([*(after[i] for i in lookup.columns), *lookup.constants], new)
        )
        if left is not None and old is not None and (renamed or left != right):
            ended = LOST if read.repairs else GONE
            # a group that the row leaves has the time and the trace of the change
            moved = payload_of(b"", read.ts_ms, read.trace) if not renamed and len(node.lookups) == 1 else b""
            yield Message(here + left, ended if renamed else MOVED, old, read.v, moved)
        if right is None or new is None or after is None:
            continue
        if part == 0 or renamed or left != right or read.reported:
            # a row that comes from another key may be visible from there, even if it is stored here
            came = before is not None and (renamed or left != right)
            op = SURE if read.repairs or came else NEW if read.new and before is None else PUT
            p = payload(after, read.ts_ms, read.trace) if part == 0 else b""
            yield Message(here + right, op, new, read.v, p)
