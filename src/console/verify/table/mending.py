"""Brings rows that differ to what the query's answer is, through the ordinary path, beside live traffic. Pure.

A row that should not be there is deleted at the timestamp of the version that was seen. That beats exactly this version
and loses to any newer put, so neither the join nor its batches need to know of it; replicated, it takes the document
away by its fence. A row that lacks or is wrong is written by the join again, which is made to tell it: its state is
right, so it writes what is right, under a stamp of its own, which is newer than whatever was planted. Where it writes
the same as before, or a row again that was deleted, its state is wrong, and the second look says so.

A row with a timestamp that is yet to come beats all that the join can write until then: it is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from console.verify.table.table_stage import Row, Wrong


class Removing(Protocol):
    """Deletes rows by their keys in hexadecimal, each as of a timestamp in ms; may be repeated. Retriable."""

    def remove(self, rows: Mapping[str, int]) -> None: ...


class Telling(Protocol):
    """Has the join write rows again, each given by its row key's columns at least: returns behind their barrier, or
    gives the reason why they did not come (empty: they came). Retriable.
    """

    def tell(self, rows: Sequence[Row]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Repaired:
    """How many rows were `removed`, how many `told` again, or why they were not; key → why a row was left alone."""

    removed: int = 0
    told: int = 0
    reason: str = ""
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """For people."""
        said = [f"{self.removed:,} removed" if self.removed else "", f"{self.told:,} told again" if self.told else ""]
        said += [self.reason, *(f"{key} stays as it is: {why}" for key, why in list(self.left.items())[:20])]
        return "; ".join(filter(None, said))


def mend(wrong: Sequence[Wrong], kept: Removing, join: Telling, *, now_ms: int) -> Repaired:
    """Mend rows; may be repeated. Retriable while a server is away: then any part may be done."""
    early = {
        one.key: f"its timestamp {one.stored.version // 2} is yet to come"
        for one in wrong
        if one.stored is not None and one.stored.version // 2 >= now_ms
    }
    some = [one for one in wrong if one.key not in early]
    gone = {one.key: one.stored.version // 2 for one in some if one.expected is None and one.stored is not None}
    if gone:
        kept.remove(gone)
    again = sum(one.expected is not None for one in some)
    rows = [row for one in some if (row := one.row) is not None]
    reason = join.tell(rows) if rows else ""
    return Repaired(removed=len(gone), told=0 if reason else again, reason=reason, left=early)
