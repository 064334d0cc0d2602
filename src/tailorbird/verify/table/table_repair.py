"""Repair rows of a joined table that differ, while traffic continues. The join decides what is right.

First the captures publish the source rows again, so the join writes its rows again. Its state is right, so it writes
the right values, and the new batch timestamp is newer than the wrong row. Then rows that should not exist are
deleted, unless the join has written them again. Only DuckDB says that they should not exist, and it might compute
something else than the join. The delete has the timestamp of the row that was read, so it loses to any newer write.
Replication carries it to the index. If the join still disagrees with DuckDB, the comparison after the repair reports
that.

Some joins cannot be made to write single rows again (groups). Rows are then deleted only if the user confirms.

A row with a timestamp in the future hides everything that the join writes until then. It is left unchanged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tailorbird.verify.table.rereads import TableReread
from tailorbird.verify.table.table_stage import DifferingRow, Row, Stored


class RowRemover(Protocol):
    """Reads and deletes rows by hexadecimal key; a delete has a timestamp in ms. Raises Retriable while HBase is
    unavailable."""

    def remove(self, rows: Mapping[str, int]) -> None: ...
    def rows(self, keys: Sequence[str]) -> Mapping[str, Stored]: ...


class RereadRequests(Protocol):
    """Makes the join write rows again. Raises Retriable while a server is unavailable.

    Each row has at least the columns of its row key. `report` returns once the rows are written, with an empty text,
    or returns the reason why they were not."""

    def report(self, rows: Sequence[Row]) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairedRows:
    """The numbers of rows that were `removed` and written again (`reported`), or the `reason` why nothing was done.

    `confirmed`: rows that should not exist, but the join has written them again. `left`: key → why a row is
    unchanged."""

    removed: int = 0
    reported: int = 0
    confirmed: int = 0
    reason: str = ""
    left: Mapping[str, str] = field(default_factory=dict)

    @property
    def line(self) -> str:
        """Return the result as text."""
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
    """Repair the rows in `wrong`, except those whose timestamp is in the future. May be repeated.

    `without_join` only deletes rows that should not exist. Raises Retriable while a server is unavailable; some rows
    may be repaired then."""
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


def extra_reported(gone: int) -> str:
    """Return a text about rows that only HBase has."""
    return f"the sources do not have {_rows(gone)} of HBase, and this table's join cannot write single rows again"


def steps_reported(gone: int, again: int, read: Sequence[TableReread]) -> str:
    """Describe the steps of a repair: rows to delete (`gone`), rows to write again, and source rows to read."""
    if not read:
        return f"delete {_rows(gone)} of HBase at their versions, if you confirm it (--force)"
    tables = ", ".join(f"{'rows' if one.where else 'all rows'} of {one.table}" for one in read)
    once_more = f"writes {_rows(again)} again" if again else "writes the rows again if it has them"
    parts = [f"read {tables} again, so that the join {once_more}"]
    if gone:
        parts.append(f"then delete those of {_rows(gone)} of HBase that the join has not written again")
    return ", and ".join(parts)


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
