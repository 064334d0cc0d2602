"""Add up what rows contribute to their groups, in each partition, before it is sent to the groups.

The order of contributions does not matter. So one message per partition and group represents many rows. A group is
sent even if its contributions cancel out, because the time of its newest change must not depend on the partitions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from cdc.model.types import Canonical
from joins.query.group import Grouping
from joins.runtime.records import EXACT_AFTER, PARTIAL, Message, Values, split_part, trace_of, ts_of, values_of_text
from joins.steps.change_detector import Picks, Transition
from joins.steps.exact import added, dumped, exact, loaded, summed, zero

MOST = 100_000  # groups and tuples that are held at once


class GroupChange:
    """The change of one group: in its number of rows, its totals, and the counts in its bags."""

    def __init__(self, group: Grouping) -> None:
        self.group = group
        self.rows, self.ts_ms, self.trace = 0, 0, b""
        self.counts = [0] * len(group.totals)
        self.sums = [zero(total.type) for total in group.totals]
        self.bags: list[dict[tuple[Canonical, ...], int]] = [{} for _ in group.bags]

    @property
    def size(self) -> int:
        """Return the number of items in memory."""
        return 1 + sum(map(len, self.bags))

    def add(self, arguments: Values, times: int) -> None:
        """Add a row that arrived (`times` 1) or left (-1). `arguments` are the values for the aggregate functions."""
        self.rows += times
        for i, total in enumerate(self.group.totals):
            if (value := arguments[total.argument]) is not None:
                self.counts[i] += times
                if summed(total.type):
                    self.sums[i] = added(self.sums[i], exact(value, total.type), times)
        for bag, held in zip(self.group.bags, self.bags, strict=True):
            values = tuple(_one(arguments[i]) for i in bag.arguments)
            if None not in values[: bag.needed]:
                _count(held, values, times)

    def saw(self, ts_ms: int, trace: bytes) -> None:
        """Record the time and trace of a change. The newest time is kept and, at equal times, the greatest trace."""
        self.ts_ms, self.trace = max((self.ts_ms, self.trace), (ts_ms, trace))

    def merge(self, partial: Message) -> None:
        """Add the changes that another partition has sent in a `PARTIAL` message."""
        rows, totals, bags = orjson.loads(partial.p)
        self.rows += rows
        self.saw(partial.v, partial.r)
        for i, (count, text) in enumerate(totals):
            self.counts[i] += count
            self.sums[i] = added(self.sums[i], loaded(text, self.group.totals[i].type))
        for held, entries in zip(self.bags, bags, strict=True):
            for times, *values in entries:
                _count(held, tuple(map(_one, values)), times)

    def message(self, key: bytes) -> Message:
        """Return the `PARTIAL` message for the group's step."""
        totals = [[count, dumped(number)] for count, number in zip(self.counts, self.sums, strict=True)]
        bags = [[[times, *values] for values, times in held.items()] for held in self.bags]
        k = bytes([self.group.number]) + key
        return Message(k, PARTIAL, self.trace, self.ts_ms, orjson.dumps([self.rows, totals, bags]))


def _one(value: Any) -> Any:
    """Return a value in the form in which it is counted: 0.0 and -0.0 are equal, a list is one value."""
    if type(value) is list:
        return tuple(value)
    return value + 0.0 if type(value) is float else value


def _count(held: dict[tuple[Canonical, ...], int], values: tuple[Canonical, ...], times: int) -> None:
    if now := held.get(values, 0) + times:
        held[values] = now
    else:
        held.pop(values, None)


def summed_up(message: Message, picks: Picks) -> Transition:
    """Return what one image of an exact change adds to its group or takes from it, as the change of a row."""
    text = picks(message.p)
    before, after = (None, text) if message.op == EXACT_AFTER else (text, None)
    return Transition(before, after, ts_of(message.p), trace_of(message.p))


def combined(group: Grouping, found: Iterable[Transition], most: int = MOST) -> Iterator[Message]:
    """Yield `PARTIAL` messages with the changes of one partition's rows, by group.

    At most about `most` groups and tuples are in memory. Beyond that messages are sent early, so a group may get
    several. A group that always exists is sent in any case."""
    tallies: dict[bytes, GroupChange] = {}
    if group.always is not None:
        tallies[group.always.encode()] = GroupChange(group)
    size = 0
    for one in found:
        for text, times in ((one.before, -1), (one.after, 1)):
            if text is None:
                continue
            key, arguments = split_part(text)
            if (tally := tallies.get(key)) is None:
                tally = tallies[key] = GroupChange(group)
                size += tally.size
            size -= tally.size
            tally.add(values_of_text(arguments), times)
            tally.saw(one.ts_ms, one.trace)
            size += tally.size
        if size > most:
            yield from (tally.message(key) for key, tally in tallies.items())
            tallies, size = {}, 0
    yield from (tally.message(key) for key, tally in tallies.items())
