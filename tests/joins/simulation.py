"""Run a plan in memory, batch by batch, with the same steps, encodings and timestamps as the real query.

Property tests and the conformance suite use it. A dictionary replaces Spark's state; it is committed or discarded
with the batch. The table implements only HBase's rule that the newest timestamp wins. Messages reach a step in any
order (`shuffle`), as in Spark."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from cdc.model.naming import table_named
from cdc.model.types import Canonical
from cdc.stored.cells import RowCodec
from joins.query.group import Grouping, Temporal
from joins.query.nodes import Expression, Node, Pair, PlanSource
from joins.query.plan import Assemble, Finish, Fragment, KeyedJoin, Plan
from joins.runtime.records import (
    DIM_GONE,
    DIM_PUT,
    EXACT_AFTER,
    EXACT_BEFORE,
    REFUSED,
    ROW_GONE,
    ROW_PUT,
    SINK,
    TRUNCATION_POINT,
    Message,
    Record,
    RefusedRecord,
    TruncationPoint,
    Values,
    as_text,
    dump,
    load,
    payload,
    picked,
    record_of,
    seen,
    trace_of,
    ts_of,
    values_of,
)
from joins.runtime.sink import Cells, next_timestamp, writes_of
from joins.steps.aggregate import GroupState, aggregate_step
from joins.steps.by_time import TimedRow, TimedRows, Watermark, fault_of, met, sides_of
from joins.steps.change_detector import Transition, change_detector_step, contribution, differences, receivers_of, whole
from joins.steps.contributions import combined, summed_up
from joins.steps.pairs import PairState, pairs_step
from joins.steps.route import (
    Changed,
    LogReader,
    Router,
    SafeOffsets,
    Truncated,
    latest_message,
    place_reported,
    retracts,
)
from joins.steps.state import (
    JoinState,
    LatestState,
    MultiJoinState,
    assemble_step,
    fold_step,
    latest_step,
    lookup_step,
)
from joins.steps.temporal import TemporalState, temporal_step
from joins.steps.truncation import MOST, Past, repaired


class Evaluates(Protocol):
    """Evaluates the expressions of a plan (implemented by `tests.joins.evaluator`)."""

    def holds(self, condition: Expression, node: Node, rows: Sequence[Values]) -> Sequence[bool]:
        """Return for each row of a node whether it satisfies the filter."""
        ...

    def finish(self, finish: Finish, rows: Sequence[Values]) -> list[tuple[Values, bool]]:
        """Return for each whole row its values with the computed ones, and whether it satisfies WHERE."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    """One record of a change topic."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class StoredTable:
    """A table with HBase's rule: the newest put and the newest delete of each row, with their timestamps."""

    puts: dict[bytes, tuple[int, Cells]] = field(default_factory=dict)
    deletes: dict[bytes, int] = field(default_factory=dict)

    def put(self, row: bytes, cells: Cells, timestamp: int) -> None:
        """Put a whole row."""
        if row not in self.puts or timestamp >= self.puts[row][0]:
            self.puts[row] = (timestamp, cells)

    def delete(self, row: bytes, timestamp: int) -> None:
        """Delete all versions of a row up to this timestamp."""
        self.deletes[row] = max(timestamp, self.deletes.get(row, 0))

    def live(self) -> dict[bytes, Cells]:
        """Return the rows that a scan would return, by row key."""
        return {row: cells for row, (at, cells) in self.puts.items() if at > self.deletes.get(row, -1)}


@dataclass(slots=True)
class States:
    """The state that is committed with a batch.

    - `joins`, `stars`: keyed joins and assembling steps, by key.
    - `latest`: `latest` steps, by topic and row key. `truncation_points`: by topic and partition.
    - `rows`: the last texts that change detectors emitted. `groups`, `pairs`: groups and many-to-many joins, by key.
    - `kept`: joins by time, by fragment.
    - `spans`: rows with conditions on the time, by key. `clock`: that of the batch, in milliseconds."""

    joins: dict[bytes, JoinState] = field(default_factory=dict)
    stars: dict[bytes, MultiJoinState] = field(default_factory=dict)
    latest: dict[tuple[str, bytes], LatestState] = field(default_factory=dict)
    truncation_points: dict[tuple[str, int], int] = field(default_factory=dict)
    rows: dict[bytes, bytes] = field(default_factory=dict)
    groups: dict[bytes, GroupState] = field(default_factory=dict)
    pairs: dict[bytes, PairState] = field(default_factory=dict)
    kept: dict[int, TimedRows] = field(default_factory=dict)
    watermark: Watermark = field(default_factory=lambda: Watermark(()))
    spans: dict[bytes, TemporalState] = field(default_factory=dict)
    clock: int = 0

    def copy(self) -> States:
        """Return a copy for a batch. A shallow copy is enough, because steps replace entries instead of changing
        them."""
        return States(
            dict(self.joins), dict(self.stars), dict(self.latest), dict(self.truncation_points), dict(self.rows),
            dict(self.groups), dict(self.pairs), dict(self.kept), self.watermark.copy(), dict(self.spans), self.clock,
        )  # fmt: skip


S = TypeVar("S")
Routed = dict[int, list[Message]]  # by fragment
Shuffle = Callable[[list[Message]], list[Message]]


def name_of(source: PlanSource, key: bytes | None) -> str:
    """Return the name of the table that a record is of; of a merged table, that of one of its tables."""
    return table_named(key) if source.merged else source.name


class Simulation:
    """One query. Call `run_batch` repeatedly; `commit=False` simulates a driver that dies after its last write.

    It stores all records, because markers read them again. It has at most `most` rows in memory at a time."""

    def __init__(
        self,
        plan: Plan,
        settled: SafeOffsets,
        evaluator: Evaluates,
        *,
        ends: SafeOffsets | None = None,
        exact_from: Mapping[str, int] | None = None,
        shuffle: Shuffle = list,
        most: int = MOST,
    ) -> None:
        self.plan, self.evaluator, self.shuffle = plan, evaluator, shuffle
        self.reader, self.exact_from = LogReader(plan, settled, ends, exact_from), exact_from or {}
        self.routers = {one.number: Router(one, evaluator.holds, plan.first_node(one)) for one in plan.fragments}
        self.most = most
        self.codec = RowCodec(plan.layout(1))
        self.indexes = [output.index for output in plan.outputs]
        self.sides = tuple(sides_of(plan.fragments))
        self.states = States(watermark=Watermark(self.sides))
        self.table = StoredTable()
        self.refused: list[RefusedRecord] = []
        self.batch, self.batch_timestamp = 0, 0
        self._bound: dict[int, int] = {}
        self._clocks: dict[int, int] = {}
        self._log: dict[tuple[str, int], dict[int, Logged]] = {}

    @property
    def clock(self) -> int:
        """Return the clock (ms) of the last batch: what `now()` means in the table."""
        return self.states.clock

    def run_batch(
        self, records: Sequence[Logged], *, now_ms: int, commit: bool = True, clock_ms: int | None = None
    ) -> None:
        """Run one batch. The records may have any order that keeps the order within each partition.

        `clock_ms` is the machine's clock, by default `now_ms`. It may go back, but that of the batches does not."""
        states = self.states.copy()
        machine = now_ms if clock_ms is None else clock_ms
        states.clock = self._clocks.setdefault(self.batch, max(machine, states.clock))
        batch_timestamp = self._bound.setdefault(self.batch, next_timestamp(now_ms, self.batch_timestamp))
        messages = self._steps(self.routed(records, states), states)
        writes = writes_of(self._finished(messages), self.codec, self.batch)
        for row in writes.deletes:
            self.table.delete(row, batch_timestamp)
        for row, cells in writes.puts:
            self.table.put(row, cells, batch_timestamp + 1)
        self.refused += writes.refused
        if commit:
            self.states, self.batch_timestamp = states, batch_timestamp
            self.batch += 1

    def live(self) -> dict[tuple[Canonical, ...], dict[str, Canonical]]:
        """Return the decoded columns of every row that exists, by row key."""
        decoded = [self.codec.row(cells).values for cells in self.table.live().values()]
        return {tuple(row[name] for name in self.plan.sink.row_key): row for row in decoded}

    def routed(self, records: Sequence[Logged], states: States) -> Routed:
        """Return the messages that records cause in each fragment. The last fragment also gets those for the sink."""
        messages: list[Message] = []
        changes: list[Changed] = []
        watermark, came, timed = states.watermark.next(), dict[int, list[TimedRow]](), list[tuple[int, Message]]()
        for one in records:
            at = (one.topic, one.partition)
            self._log.setdefault(at, {})[one.offset] = one
            found = self.reader.read(one.topic, one.partition, one.offset, one.key, one.value)
            if isinstance(found, Changed | Truncated):
                timed += self._timed(one, found, watermark, came)
            if isinstance(found, RefusedRecord):
                messages.append(found.message())
            elif isinstance(found, Truncated):
                changes += repaired(self.reader, found, partial(self._before, at, one.offset), self.most)
                if found.source.needs_latest:
                    of = (found.table or found.source.name, one.partition)
                    states.truncation_points[of] = max(found.sequence, states.truncation_points.get(of, 0))
                    messages.append(TruncationPoint(*of, found.sequence).message())
            elif found is not None and (
                not found.source.needs_latest
                or found.sequence >= states.truncation_points.get((name_of(found.source, one.key), one.partition), 0)
            ):
                changes.append(found)
        passed = self._latest(changes, states)
        routed = {number: list(router.route(passed)) for number, router in self.routers.items()}
        routed[self.plan.last.number] += messages
        for number, message in timed:
            routed[number].append(message)
        for left, right in zip(self.sides[::2], self.sides[1::2], strict=True):
            both = (came.get(left.target, []), came.get(right.target, []))
            states.watermark.saw(left, both[0])
            states.watermark.saw(right, both[1])
            kept = states.kept.get(left.fragment, TimedRows())
            states.kept[left.fragment], rows = met(left.interval, left.outlet, kept, both, watermark)
            routed[left.fragment] += rows
        return routed

    def _timed(
        self, record: Logged, found: Changed | Truncated, watermark: int, came: dict[int, list[TimedRow]]
    ) -> Iterator[tuple[int, Message]]:
        """Yield a record's messages for joins by time: rows to match, rows that are emitted at once, dead letters."""
        for side in self.sides:
            if side.source is not found.source:
                continue
            reason = fault_of(found)
            if reason is None and isinstance(found, Changed) and found.after is not None:
                values = [found.after[side.source.columns.index(name)] for name in side.node.columns]
                condition = side.node.filter
                passes = condition is None or self.evaluator.holds(condition, side.node, [values])[0]
                node = self.plan.first_node(self.plan.fragments[side.fragment]) + side.number
                trace = seen(node, found.place)
                for one in side.read(values, found.ts_ms, watermark, passes=passes, trace=trace):
                    if isinstance(one, Message):
                        yield side.fragment, one
                    elif isinstance(one, TimedRow):
                        came.setdefault(side.target, []).append(one)
                    else:
                        reason = one.reason
            if reason is not None:
                key, value = as_text(record.key), as_text(record.value)
                dead_letter = RefusedRecord(record.topic, record.partition, record.offset, reason, key, value)
                yield side.fragment, dead_letter.message()

    def _before(self, at: tuple[str, int], offset: int) -> list[Past]:
        return [(one.offset, one.key, one.value) for n, one in sorted(self._log[at].items()) if n < offset]

    def _latest(self, changes: Iterable[Changed], states: States) -> list[Changed]:
        """Pass changes through the `latest` steps of sources whose log is not ordered."""
        passed: list[Changed] = []
        groups: dict[tuple[str, bytes], list[tuple[Changed, Message]]] = {}
        for change in changes:
            if not change.source.needs_latest:
                passed.append(change)
                continue
            message = latest_message(change)
            groups.setdefault((change.source.name, message.k), []).append((change, message))
        for at, some in groups.items():
            messages = self.shuffle([message for _, message in some])
            state, found = latest_step(states.latest.get(at), messages)
            if state is not None:
                states.latest[at] = state
            if found is not None:
                before, after = (None if p is None else values_of(p) for p in found)
                ts_ms = max(change.ts_ms for change, _ in some)
                source = some[0][0].source
                passed.append(Changed(source, before, after, 0, ts_ms, False, False, 0, place=place_reported(found[1])))
        return passed

    def _steps(self, routed: Routed, states: States) -> list[Message]:
        """Pass messages through all fragments. Return the messages at the sink, before the last fragment's
        expressions."""
        arrived = {number: list(messages) for number, messages in routed.items()}
        for fragment in self.plan.fragments[:-1]:
            joined = self._joined(fragment, arrived[fragment.number], states)
            rows, notices = _parted(joined, fragment.outlet)
            rows = self._finish(fragment, rows)
            if fragment.group is not None:
                rows = self._aggregated(fragment, fragment.group, rows, states)
            elif fragment.picks is not None or fragment.tag is not None:
                rows = [picked(row, fragment.picks, fragment.tag) for row in rows]
            if fragment.temporal is not None:
                rows = self._current(fragment, fragment.temporal, rows, states)
            arrived[self.plan.reader(fragment).number] += [*rows, *notices]
        joined = self._joined(self.plan.last, arrived[self.plan.last.number], states)
        if self.plan.folds:
            return joined
        groups, others = _grouped(joined, lambda m: m.op in (ROW_PUT, ROW_GONE))
        return others + [one for some in groups.values() for one in fold_step(self.shuffle(some))]

    def _joined(self, fragment: Fragment, messages: list[Message], states: States) -> list[Message]:
        """Pass messages through the stateful steps of a fragment, stage by stage."""
        receivers = receivers_of(fragment)
        groups, messages = _grouped(messages, partial(_goes_to, receivers))
        for k, some in groups.items():
            if (found := self._difference(k, some, states, whole)) is not None:
                messages += differences(receivers[k[0]], found)
        if isinstance(pair := fragment.root, Pair):
            groups, messages = _grouped(messages, partial(_goes_to, {pair.number}))
            for k, some in groups.items():
                state, met_here = pairs_step(
                    pair, fragment.outlet, self.plan.sink.table, k, states.pairs.get(k), self._arrived(some)
                )
                _replace(states.pairs, k, state)
                messages += met_here
        for stage in sorted({step.stage for step in fragment.steps}):
            steps = {step.number: step for step in fragment.steps if step.stage == stage}
            groups, messages = _grouped(messages, partial(_goes_to, steps))
            for k, some in groups.items():
                step = steps[k[0]]
                last = step.target == fragment.outlet and retracts(fragment, self.exact_from)
                messages += self._step(step, k, self._arrived(some), states, retracts=last)
        return messages

    def _arrived(self, messages: list[Message]) -> list[Message]:
        return self.shuffle([load(*dump(message)) for message in messages])

    def _difference(
        self, k: bytes, messages: list[Message], states: States, picks: Callable[[bytes], bytes]
    ) -> Transition | None:
        after, found = change_detector_step(states.rows.get(k), self._arrived(messages), picks)
        _replace(states.rows, k, after)
        return found

    def _aggregated(self, fragment: Fragment, group: Grouping, rows: list[Message], states: States) -> list[Message]:
        """Group the rows of a fragment and return the changed rows of the groups. Two partitions are aggregated
        separately."""
        exact, picks = [row for row in rows if row.op in (EXACT_BEFORE, EXACT_AFTER)], contribution(group)
        others, _ = _grouped((row for row in rows if row.op not in (EXACT_BEFORE, EXACT_AFTER)), lambda _: True)
        changed = [
            found for k, some in others.items() if (found := self._difference(k, some, states, picks)) is not None
        ]
        changed += [summed_up(load(*dump(row)), picks) for row in exact]
        reported: list[Message] = []
        groups, _ = _grouped((one for n in range(2) for one in combined(group, changed[n::2])), lambda _: True)
        for k, some in groups.items():
            state, rows_here = aggregate_step(
                group, fragment.target, self.plan.sink.table, k, states.groups.get(k), self._arrived(some)
            )
            _replace(states.groups, k, state)
            reported += rows_here
        return reported

    def _current(self, fragment: Fragment, step: Temporal, rows: list[Message], states: States) -> list[Message]:
        """Return the changes of the rows that satisfy conditions on the time: those of rows that arrive, and of others
        whose time has come."""
        groups, _ = _grouped(rows, lambda _: True)
        for k, state in states.spans.items():
            if k[0] == step.number and state.due is not None and state.due <= states.clock:
                groups.setdefault(k, [])
        reported: list[Message] = []
        for k, some in groups.items():
            state_after, found = temporal_step(
                step, fragment.target, k, states.spans.get(k), self._arrived(some), states.clock
            )
            _replace(states.spans, k, state_after)
            reported += found
        return reported

    def _step(
        self, step: KeyedJoin | Assemble, k: bytes, arrived: list[Message], states: States, *, retracts: bool
    ) -> list[Message]:
        if isinstance(step, KeyedJoin):
            joined, found = lookup_step(step, k, states.joins.get(k), arrived, retracts=retracts)
            _replace(states.joins, k, joined)
        else:
            star, found = assemble_step(step, k, states.stars.get(k), arrived, retracts=retracts)
            _replace(states.stars, k, star)
        return found

    def _finish(self, fragment: Fragment, messages: list[Message]) -> list[Message]:
        """Add computed values to the rows that leave a fragment. Rows that fail WHERE become deletes."""
        whole = (ROW_PUT, DIM_PUT, EXACT_BEFORE, EXACT_AFTER)
        puts = [message for message in messages if message.op in whole]
        rows = [values_of(message.p) for message in puts]
        reported = [message for message in messages if message.op not in whole]
        for message, (values, wanted) in zip(puts, self.evaluator.finish(fragment.finish, rows), strict=True):
            if wanted:
                reported.append(message._replace(p=payload(values, ts_of(message.p), trace_of(message.p))))
            elif message.op in (ROW_PUT, DIM_PUT):
                reported.append(message._replace(op=ROW_GONE if message.op == ROW_PUT else DIM_GONE, p=b""))
        return reported

    def _finished(self, messages: list[Message]) -> list[Record]:
        """Decode messages at the sink, with computed values. Rows that fail WHERE become deletes."""
        assert all(message.k[0] == SINK for message in messages), "a message for no step"
        finished = self._finish(self.plan.last, self.shuffle(messages))
        return [record_of(message, self.indexes) for message in finished]


def _parted(messages: list[Message], outlet: int) -> tuple[list[Message], list[Message]]:
    """Separate the rows that leave a fragment from dead letters and truncation points, which go to the sink."""
    rows = [message for message in messages if message.op not in (REFUSED, TRUNCATION_POINT)]
    assert all(row.k[0] == outlet for row in rows), "a message for no step"
    return rows, [message for message in messages if message.op in (REFUSED, TRUNCATION_POINT)]


def _goes_to(steps: Container[int], message: Message) -> bool:
    return message.k[0] in steps


def _grouped(
    messages: Iterable[Message], wanted: Callable[[Message], bool]
) -> tuple[dict[bytes, list[Message]], list[Message]]:
    groups: dict[bytes, list[Message]] = {}
    others: list[Message] = []
    for message in messages:
        if wanted(message):
            groups.setdefault(message.k, []).append(message)
        else:
            others.append(message)
    return groups, others


def _replace(states: dict[bytes, S], k: bytes, state: S | None) -> None:
    if state is None:
        states.pop(k, None)
    else:
        states[k] = state
