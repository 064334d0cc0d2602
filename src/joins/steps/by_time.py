"""A join by time, the specification: what Spark's own join of two streams must give, batch by batch.

A batch has a watermark: the youngest time of each table's rows in all batches before, less how late they may come; of
both tables the smaller one. It never falls. A row that is not younger than it comes too late: Spark would drop it
without a word, so the reader judges it first, and it becomes a dead letter. So does what an append-only table's log can
not hold: an update, a delete, a TRUNCATE. A row that comes again makes the same pairs again, which are written to the
same places.

Rows meet in the order in which they come; one leaves the state when every row that it could still meet would be late.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from cdc.stored.values import datetime_of
from joins.query.nodes import Interval, Node, PlanSource
from joins.query.plan import Fragment
from joins.steps.records import DIM_PUT, ROW_PUT, SINK, Message, Values, joined, payload, text_of
from joins.steps.route import Changed, Truncated

LATE = "late: "  # begins the reason of a row that comes behind the watermark
_APPEND_ONLY = "of an append-only table"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


class TimedRow(NamedTuple):
    """A row that came in time, in microseconds; of one that meets nothing only the time counts, and `key` is None."""

    time: int
    key: bytes | None
    name: bytes
    payload: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Late:
    """A row that came too late: why, for its dead letter."""

    reason: str


def fault_of(found: Changed | Truncated) -> str | None:
    """Why a record can not be one of an append-only table; None of an insert or a row that was read."""
    if isinstance(found, Truncated):
        return f"TRUNCATE, or the end of a repeated snapshot, {_APPEND_ONLY}: its rows stay"
    if found.after is None:
        return f"DELETE {_APPEND_ONLY}: the row stays"
    return None if found.before is None else f"UPDATE {_APPEND_ONLY}: the row stays as it was"


def micros_of(moment: object) -> int | None:
    """A canonical datetime as microseconds since 1970, further digits cut off; None of what is no moment."""
    whole, _, fraction = str(moment).removesuffix("Z").partition(".")
    try:
        since = dt.datetime.fromisoformat(whole + "+00:00") - _EPOCH
    except ValueError:  # NULL, or a day that no calendar has
        return None
    return since // dt.timedelta(microseconds=1) + int(fraction[:6].ljust(6, "0"))


@dataclass(frozen=True, slots=True)
class TimedSide:
    """One side of a join by time, the left (0) or the right one (1); whole rows of its `fragment` go to `outlet`."""

    interval: Interval
    number: int
    outlet: int
    fragment: int

    @property
    def node(self) -> Node:
        """Whose rows they are."""
        return (self.interval.left, self.interval.right)[self.number]

    @property
    def target(self) -> int:
        """Its number in the plan."""
        return (self.interval.left_number, self.interval.right_number)[self.number]

    @property
    def other(self) -> Node:
        """Whose rows they meet."""
        return (self.interval.right, self.interval.left)[self.number]

    @property
    def key(self) -> tuple[int, ...]:
        """The columns (indexes) in which rows that meet are equal."""
        return (self.interval.left_key, self.interval.right_key)[self.number]

    @property
    def time(self) -> int:
        """The column (index) of its rows' time."""
        return (self.interval.left_time, self.interval.right_time)[self.number]

    @property
    def stays(self) -> bool:
        """Whether its rows are there without a partner."""
        return self.number == 0 and self.interval.left_stays

    @property
    def source(self) -> PlanSource:
        """The table that it reads."""
        return self.node.captured

    def read(
        self, values: Values, ts_ms: int, watermark: int, *, passes: bool, trace: bytes = b""
    ) -> Iterator[TimedRow | Late | Message]:
        """What is told of an inserted row; `passes` says whether it satisfies the node's filter, `watermark` is in ms.

        A row with NULL in its key or time meets nothing: where it stays, it leaves alone at once. One that is hidden
        still says how late it is.
        """
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
    """A left row that meets none."""
    k = name + b",null" * len(interval.right.id_columns)
    return _row(outlet, k, joined(own, b"", interval.right.width))


def _row(outlet: int, k: bytes, p: bytes) -> Message:
    return Message(bytes([outlet]) + k, ROW_PUT if outlet == SINK else DIM_PUT, b"", 1, p)


@dataclass(slots=True)
class TimedRows:
    """What a join by time keeps: rows of both sides, and of the left ones whether they have met one."""

    left: list[tuple[TimedRow, bool]] = field(default_factory=list)
    right: list[TimedRow] = field(default_factory=list)


def met(
    interval: Interval,
    outlet: int,
    kept: TimedRows,
    came: tuple[Sequence[TimedRow], Sequence[TimedRow]],
    watermark: int,
) -> tuple[TimedRows, list[Message]]:
    """Fold a batch → what is kept behind it, and the rows that leave; `watermark` (ms) is the batch's own."""
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
    """The watermark of a query: of all its sides the one that is furthest behind, in milliseconds; it never falls.

    `youngest` (ms): by a side's number the greatest time that has come; a side without rows holds it at 0.
    """

    sides: tuple[TimedSide, ...]
    youngest: dict[int, int] = field(default_factory=dict)
    reached: int = 0

    def saw(self, side: TimedSide, came: Iterable[TimedRow]) -> None:
        """The rows of a batch that came in time."""
        for one in came:
            self.youngest[side.target] = max(one.time // 1000, self.youngest.get(side.target, 0))

    def next(self) -> int:
        """The watermark of the batch behind all that were seen."""
        late = {side.target: side.interval.lateness[side.number] for side in self.sides}
        ready = [self.youngest.get(number, lateness) - lateness for number, lateness in late.items()]
        self.reached = max([self.reached, min(ready)]) if ready else 0
        return self.reached

    def copy(self) -> Watermark:
        """A copy that a batch may change."""
        return Watermark(self.sides, dict(self.youngest), self.reached)


def sides_of(fragments: Iterable[Fragment]) -> Iterator[TimedSide]:
    """Every side of the fragments that are joins by time."""
    for fragment in fragments:
        if isinstance(fragment.root, Interval):
            for number in range(2):
                yield TimedSide(fragment.root, number, fragment.outlet, fragment.number)
