"""Decode the stored state of a group (written by `Aggregate.java`, `Sum.java`, `Bag.java`): its counts, sums and
values."""

from __future__ import annotations

from collections.abc import Collection
from decimal import Context, Decimal
from fractions import Fraction

from cdc.model.types import Canonical, LogicalType
from joins.inspection.packed import Packed
from joins.query.aggregate_functions import BY_NAME, BagExtra
from joins.query.group import Grouping, Result
from joins.runtime.records import Values
from joins.steps.exact import summed

_EXACT = Context(prec=4000)


def group_parts(group: Grouping, stored: bytes) -> tuple[int, list[tuple[str, Values]]]:
    """Return the time of the newest change of a group, and the parts of its state.

    The first part is the number of rows. Each total and each bag is a part, with the names of the functions that use
    it."""
    read = _Group(stored)
    ts_ms = int.from_bytes(read.next(8), "big", signed=True)
    parts: list[tuple[str, Values]] = [("rows", [read.count()])]
    for number, total in enumerate(group.totals):
        of = [result for result in group.results if result.of == number and BY_NAME[result.function].reads == "total"]
        parts.append((_named(of), read.total(total.type)))
    for number, bag in enumerate(group.bags):
        of = [r for r in group.results if r.of == number and BY_NAME[r.function].reads == "bag"]
        parts.append(
            (
                _named(of) if group.top is None and group.windows is None else "in order",
                [read.bag(bag.types[-1], {BY_NAME[result.function].keeps for result in of})],
            )
        )
    return ts_ms, parts


def _named(results: list[Result]) -> str:
    return ", ".join(result.text for result in results)


class _Group(Packed):
    """Decodes the stored entry of one group."""

    def total(self, type_: LogicalType) -> Values:
        """Read a total: the number of values and, for numbers, their sum."""
        count: Canonical = self.signed()
        if not summed(type_):
            return [count]
        exponent = self.signed() if type_.kind.startswith("float") else 0
        number = int.from_bytes(self.block(), "big", signed=True)
        if type_.kind == "decimal":
            return [count, str(Decimal(number).scaleb(-type_.scale, _EXACT))]
        return [count, float(number * Fraction(2) ** exponent) if type_.kind.startswith("float") else number]

    def bag(self, last: LogicalType, keeps: Collection[BagExtra]) -> int:
        """Read a whole bag. Return the number of different tuples.

        `keeps` is what the functions over the bag store beside the tuples, `last` the type of their last value."""
        distinct = self.count()
        if "sum" in keeps:
            self.total(last)
        for length in ("list", "set"):
            if length in keeps:
                self.count()
        pages = self.count()
        if pages == 0:  # its only page is part of the group
            self.block()
            return distinct
        self.count()
        for _ in range(2):  # the first and the last tuple
            self.block()
        for _ in range(pages):
            self.count()
            self.block()
        return distinct
