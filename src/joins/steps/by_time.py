"""Specify the join by time: the results that Spark's stream-stream join must give, batch by batch.

Each batch has a watermark. A table's watermark is the greatest time of its rows in all earlier batches, minus the
allowed lateness. The batch's watermark is the smaller one of both tables, and never decreases. A row that is not
newer than it is late. Spark would drop a late row silently, so the reader makes it a dead letter. Updates, deletes
and TRUNCATE in the log of an append-only table become dead letters, too.

A row is kept until every row that could match it would be late. A repeated row makes the same pairs again, which are
written to the same cells."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.stored.values import datetime_of
from joins.query.nodes import Interval, Node, PlanSource
from joins.query.plan import Fragment
from joins.runtime.records import DIM_PUT, LATE, ROW_PUT, SINK, Message, Values, joined, payload, text_of
from joins.steps.route import Changed, Truncated

_APPEND_ONLY = "of an append-only table"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class TimedRow(NamedTuple):
    """A row that is not late. `time` is in microseconds. `key` is None if it matches nothing: only its time counts
    then.

    `name` is the id of the row, `payload` its values (`joins.runtime.records`)."""

    time: int
    key: bytes | None
    name: bytes
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A row that is late, with the reason for its dead letter."""

    reason: str


def fault_of(found: Changed | Truncated) -> str | None:
    """Return the reason why a record is not allowed in an append-only table. None for an insert or a snapshot row."""
    if isinstance(found, Truncated):
        return f"TRUNCATE, or the end of a repeated snapshot, {_APPEND_ONLY}: its rows stay"
    if found.after is None:
        return f"DELETE {_APPEND_ONLY}: the row stays"
    return None if found.before is None else f"UPDATE {_APPEND_ONLY}: the row stays as it was"


def micros_of(moment: object) -> int | None:
    """Convert a canonical datetime to microseconds since 1970, without smaller fractions. None if it is not a
    datetime."""
    whole, _, fraction = str(moment).removesuffix("Z").partition(".")
    try:
        since = dt.datetime.fromisoformat(whole + "+00:00") - _EPOCH
    except ValueError:  # NULL, or a day that does not exist
        return None
    return since // dt.timedelta(microseconds=1) + int(fraction[:6].ljust(6, "0"))


@dataclass(frozen=True, slots=True)
class TimedSide:
    """One side of a join by time: left (`number` 0) or right (1). Joined rows of its `fragment` go to `outlet`."""

    interval: Interval
    number: int
    outlet: int
    fragment: int

    @property
    def node(self) -> Node:
        """Return the node of this side."""
        return (self.interval.left, self.interval.right)[self.number]

    @property
    def target(self) -> int:
        """Return the step number of this side in the plan."""
        return (self.interval.left_number, self.interval.right_number)[self.number]

    @property
    def other(self) -> Node:
        """Return the node of the other side."""
        return (self.interval.right, self.interval.left)[self.number]

    @property
    def key(self) -> tuple[int, ...]:
        """Return the indexes of the columns that must be equal in matching rows."""
        return (self.interval.left_key, self.interval.right_key)[self.number]

    @property
    def time(self) -> int:
        """Return the index of the time column."""
        return (self.interval.left_time, self.interval.right_time)[self.number]

    @property
    def stays(self) -> bool:
        """Return whether rows of this side without a match are kept (outer join)."""
        return self.number == 0 and self.interval.left_stays

    @property
    def source(self) -> PlanSource:
        """Return the captured table that this side reads."""
        return self.node.captured

    def read(
        self, values: Values, ts_ms: int, watermark: int, *, passes: bool, trace: bytes = b""
    ) -> Iterator[TimedRow | Late | Message]:
        """Yield what an inserted row causes: a row to match, a late row, or a message.

        `passes`: the row satisfies the node's filter. `watermark` is in ms. A row with NULL in its key or time
        matches nothing; on an outer side it is emitted alone at once. A row that fails the filter still advances the
        watermark."""
        interval, node = self.interval, self.node
        moment, key = values[self.time], [values[index] for index in self.key]
        name, time = text_of([values[index] for index in node.id_columns]), micros_of(moment)
        if passes and (time is None or None in key):
            if self.stays:
                yield alone(interval, self.outlet, name, payload(values, ts_ms, trace))
            passes = False
        if time is None:
            return
        if time > watermark * 1000:
            yield TimedRow(time, text_of(key) if passes else None, name, payload(values, ts_ms, trace))
        elif passes:
            yield Late(reason=f"{LATE}its time is {moment}, the watermark was {datetime_of(watermark * 1000)}")


def alone(interval: Interval, outlet: int, name: bytes, own: bytes) -> Message:
    """Return the message for a left row without a match. `own` is its payload."""
    k = name + b",null" * len(interval.right.id_columns)
    return _row(outlet, k, joined(own, b"", interval.right.width))


def _row(outlet: int, k: bytes, p: bytes) -> Message:
    return Message(bytes([outlet]) + k, ROW_PUT if outlet == SINK else DIM_PUT, b"", 1, p)


@dataclass(slots=True)
class TimedRows:
    """The state of a join by time: the rows of both sides. For each left row it has a flag: it has had a match."""

    left: list[tuple[TimedRow, bool]] = field(default_factory=list)
    right: list[TimedRow] = field(default_factory=list)


def met(
    interval: Interval,
    outlet: int,
    kept: TimedRows,
    came: tuple[Sequence[TimedRow], Sequence[TimedRow]],
    watermark: int,
) -> tuple[TimedRows, list[Message]]:
    """Process a batch of rows of both sides (`came`). Return the new state, and the messages for the result.

    `kept` is the state before, `watermark` (ms) that of the batch."""
    reported: list[Message] = []
    new_left, new_right = ([one for one in side if one.key is not None] for side in came)
    left: list[tuple[TimedRow, bool]] = []
    there = [(one, has_met, new_right) for one, has_met in kept.left]
    there += [(one, False, [*kept.right, *new_right]) for one in new_left]
    for one, has_met, others in there:
        found = [other for other in others if _meet(interval, one, other)]
        reported += [_pair(interval, outlet, one, other) for other in found]
        if one.time + interval.latest > watermark * 1000:
            left.append((one, has_met or bool(found)))
        elif interval.left_stays and not has_met and not found:
            reported.append(alone(interval, outlet, one.name, one.payload))
    right = [one for one in (*kept.right, *new_right) if one.time - interval.earliest > watermark * 1000]
    return TimedRows(left, right), reported


def _meet(interval: Interval, one: TimedRow, other: TimedRow) -> bool:
    return one.key == other.key and interval.earliest <= other.time - one.time <= interval.latest


def _pair(interval: Interval, outlet: int, one: TimedRow, other: TimedRow) -> Message:
    return _row(outlet, one.name + b"," + other.name, joined(one.payload, other.payload, interval.right.width))


@dataclass(slots=True)
class Watermark:
    """The watermark of a query (ms): that of its slower side. It never decreases.

    `youngest` (ms) has the greatest time by step number of the side. A side without rows holds the watermark at 0.
    `reached` is the watermark so far."""

    sides: tuple[TimedSide, ...]
    youngest: dict[int, int] = field(default_factory=dict)
    reached: int = 0

    def saw(self, side: TimedSide, came: Iterable[TimedRow]) -> None:
        """Record the rows of a batch that are not late."""
        for one in came:
            self.youngest[side.target] = max(one.time // 1000, self.youngest.get(side.target, 0))

    def next(self) -> int:
        """Return the watermark of the next batch."""
        late = {side.target: side.interval.lateness[side.number] for side in self.sides}
        ready = [self.youngest.get(number, lateness) - lateness for number, lateness in late.items()]
        self.reached = max([self.reached, min(ready)]) if ready else 0
        return self.reached

    def copy(self) -> Watermark:
        """Return a copy that a batch may change."""
        return Watermark(self.sides, dict(self.youngest), self.reached)


def sides_of(fragments: Iterable[Fragment]) -> Iterator[TimedSide]:
    """Yield both sides of every fragment that is a join by time."""
    for fragment in fragments:
        if isinstance(fragment.root, Interval):
            for number in range(2):
                yield TimedSide(fragment.root, number, fragment.outlet, fragment.number)
