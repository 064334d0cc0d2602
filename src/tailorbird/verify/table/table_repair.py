"""Repairs rows that differ, through the ordinary path, beside live traffic: what the join says decides. Pure.

First the join is made to write the rows again, from rows of the sources that are read again: its state is right, so it
writes what is right, under a stamp of its own, which is newer than whatever was planted. Only then is a row deleted
that should not be there, if the join has not written it again: the query's answer alone never removes a row, since it
might mean something else than the join. The delete has the timestamp of the version that was seen. That beats exactly
this version and loses to any newer put, so neither the join nor its batches need to know of it; replicated, it takes
the document away by its fence. Where the join writes the same as before, or a row that should not be there, it and the
answer disagree, and the second look says so.

Of some joins no row can be asked for (groups): then rows are deleted only where a person insists.

A row with a timestamp that is yet to come beats all that the join can write until then: it is left alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tailorbird.verify.table.table_stage import Row, Stored, Wrong


class Removing(Protocol):
    """Deletes rows by their keys in hexadecimal, each as of a timestamp in ms; may be repeated. `rows` reads those that
    exist. Retriable.
    """

    def remove(self, rows: Mapping[str, int]) -> None: ...
    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]: ...


class RereadRequests(Protocol):
    """Has the join write rows again, each given by its row key's columns at least: returns behind their barrier, or
    gives the reason why they did not come (empty: they came). Retriable.
    """

    def report(self, rows: Sequence[Row]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedRows:
    """How many rows were `removed`, how many `reported` again, or why they were not; key → why a row was left alone.

    `confirmed`: rows that the answer does not have and the join has written again.
    """

    removed: int = 0
    reported: int = 0
    confirmed: int = 0
    reason: str = ""
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """For people."""
        said = [
            f"{self.removed:,} removed" if self.removed else "",
            f"{self.reported:,} told again" if self.reported else "",
        ]
        if self.confirmed:
            said.append(f"{self.confirmed:,} not removed: the sources do not have them, and the join wrote them again")
        said += [self.reason, *(f"{key} stays as it is: {why}" for key, why in list(self.left.items())[:20])]
        return "; ".join(filter(None, said))


def repair_rows(
    wrong: Sequence[Wrong], kept: Removing, join: RereadRequests, *, now_ms: int, unasked: bool = False
) -> RepairedRows:
    """Repair rows; may be repeated. `unasked`: the join can not be asked, and rows are removed without its word.

    Retriable while a server is away: then any part may be done.
    """
    early = {
        one.key: f"its timestamp {one.stored.version // 2} is yet to come"
        for one in wrong
        if one.stored is not None and one.stored.version // 2 >= now_ms
    }
    some = [one for one in wrong if one.key not in early]
    seen = {one.key: one.stored.version for one in some if one.expected is None and one.stored is not None}
    rows = [row for one in some if (row := one.row) is not None]
    reason = join.report(rows) if rows and not unasked else ""
    if reason:
        return RepairedRows(reason=reason, left=early)
    now = kept.rows(list(seen)) if seen else {}
    gone = {key: version // 2 for key, version in seen.items() if key in now and now[key].version == version}
    if gone:
        kept.remove(gone)
    again = sum(one.expected is not None for one in some)
    confirmed = sum(key in now and key not in gone for key in seen)
    return RepairedRows(removed=len(gone), reported=0 if unasked else again, confirmed=confirmed, left=early)
