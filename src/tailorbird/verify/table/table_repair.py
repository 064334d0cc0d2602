"""Repair differing rows through the normal data path, during live traffic. The join decides what is right.

First the captures read source rows again, so that the join writes its rows again. The join's state is right, so it
writes the right values, with a new batch timestamp that is newer than the wrong version. Then extra rows are deleted
that the join has not written again. The query's answer alone never removes a row, because DuckDB might compute
something else than the join. The delete has the timestamp of the version that was read. It removes exactly this version
and loses to any newer put, so the join needs no coordination. Replication carries the delete to the index, where the
fence applies. If the join writes the same row as before, or writes an extra row again, it disagrees with the answer;
the comparison after the repair reports that.

Some joins cannot be made to write single rows again (groups). Then rows are deleted only if the user confirms it.

A row with a timestamp in the future hides everything that the join writes until then. It is left unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tailorbird.verify.table.table_stage import DifferingRow, Row, Stored


class RowRemover(Protocol):
    """Deletes rows by hexadecimal key, each as of a timestamp in ms. `rows` reads existing rows. Retriable."""

    def remove(self, rows: Mapping[str, int]) -> None: ...
    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]: ...


class RereadRequests(Protocol):
    """Makes the join write rows again. Retriable.

    Each row contains at least the columns of its row key. Returns after the barrier of the rows with an empty text, or
    with the reason why the rows were not written.
    """

    def report(self, rows: Sequence[Row]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedRows:
    """Numbers of rows `removed` and `reported` (written again), or the `reason` why nothing was done.

    `confirmed`: extra rows that the join has written again. `left`: key → why a row is unchanged.
    """

    removed: int = 0
    reported: int = 0
    confirmed: int = 0
    reason: str = ""
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """The result as text."""
        said = [
            f"{self.removed:,} removed" if self.removed else "",
            f"{self.reported:,} written again" if self.reported else "",
        ]
        if self.confirmed:
            said.append(f"{self.confirmed:,} not removed: the sources do not have them, but the join wrote them again")
        said += [self.reason, *(f"{key} is unchanged: {why}" for key, why in list(self.left.items())[:20])]
        return "; ".join(filter(None, said))


def repair_rows(
    wrong: Sequence[DifferingRow], kept: RowRemover, join: RereadRequests, *, now_ms: int, without_join: bool = False
) -> RepairedRows:
    """Repair rows. Idempotent. `without_join`: delete extra rows without making the join write rows again.

    Retriable while a server is unavailable; a part may be done then.
    """
    early = {
        one.key: f"its timestamp {one.stored.version // 2} is in the future"
        for one in wrong
        if one.stored is not None and one.stored.version // 2 >= now_ms
    }
    some = [one for one in wrong if one.key not in early]
    seen = {one.key: one.stored.version for one in some if one.expected is None and one.stored is not None}
    rows = [row for one in some if (row := one.row) is not None]
    reason = join.report(rows) if rows and not without_join else ""
    if reason:
        return RepairedRows(reason=reason, left=early)
    now = kept.rows(list(seen)) if seen else {}
    gone = {key: version // 2 for key, version in seen.items() if key in now and now[key].version == version}
    if gone:
        kept.remove(gone)
    again = sum(one.expected is not None for one in some)
    confirmed = sum(key in now and key not in gone for key in seen)
    return RepairedRows(removed=len(gone), reported=0 if without_join else again, confirmed=confirmed, left=early)
