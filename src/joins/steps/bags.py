"""Hold a group's bag: its tuples in order, each with its count."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from typing import Any

from cdc.model.types import Canonical, LogicalType
from joins.query.group import Bag
from joins.steps.exact import added, exact, summed, zero
from joins.steps.ordered import order_of

Entry = tuple[int, list[Canonical]]  # a tuple's count, and its values


class Tuples:
    """One bag of one group. `sum` is that of the distinct tuples' last values, if they are numbers."""

    def __init__(self, bag: Bag) -> None:
        self._bag, self._order, self._type = bag, order_of(bag), bag.types[-1]
        self._entries: list[Entry] = []
        self._keys: list[Any] = []  # the entries' sort keys, computed once
        self.sum = zero(self._type)

    def copy(self) -> Tuples:
        """Return a bag that can change without this one."""
        made = Tuples(self._bag)
        made._entries, made._keys, made.sum = list(self._entries), list(self._keys), self.sum
        return made

    @property
    def last_type(self) -> LogicalType:
        """The type of a tuple's last value."""
        return self._type

    @property
    def distinct(self) -> int:
        """The number of distinct tuples."""
        return len(self._entries)

    def first(self) -> list[Canonical] | None:
        """Return the least tuple, None if there is none."""
        return self._entries[0][1] if self._entries else None

    def last(self) -> list[Canonical] | None:
        """Return the greatest tuple, None if there is none."""
        return self._entries[-1][1] if self._entries else None

    def entries(self) -> Iterator[Entry]:
        """Yield the tuples in order with their counts."""
        yield from self._entries

    def peers(self, ordered: int) -> list[int]:
        """Return for each tuple the index of the first one that is equal in the first `ordered` values."""
        found: list[int] = []
        for at, key in enumerate(self._keys):
            same = at > 0 and self._keys[at - 1][:ordered] == key[:ordered]
            found.append(found[-1] if same else at)
        return found

    def change(self, counts: Mapping[tuple[Canonical, ...], int]) -> bool:
        """Add to the counts of tuples, also negative numbers; return False if a count would fall below 0."""
        return min((self._count(list(values), times) for values, times in counts.items()), default=0) >= 0

    def _count(self, values: list[Canonical], times: int) -> int:
        at = self._order(values)
        place = bisect_left(self._keys, at)
        known = place < len(self._keys) and self._keys[place] == at
        now = times + (self._entries[place][0] if known else 0)
        if now and known:
            self._entries[place] = (now, self._entries[place][1])
        elif now:
            self._entries.insert(place, (now, values))
            self._keys.insert(place, at)
        elif known:
            del self._entries[place], self._keys[place]
        if known != bool(now) and summed(self._type) and values[-1] is not None:
            self.sum = added(self.sum, exact(values[-1], self._type), -1 if known else 1)
        return now
