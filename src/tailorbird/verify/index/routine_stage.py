"""Compare a table with its index completely, or from the leaves of the last comparison, and keep the leaves.

Leaves (tailorbird.verify.index.index_leaves) only decide which rows are read. Rows that differ are decided as in a
comparison of all rows (tailorbird.verify.index.index_stage)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from tailorbird.verify.index.index_leaves import IndexLeaves, LeafBuilder, LeafDocuments, LeafRows, read_changed
from tailorbird.verify.index.index_stage import MOST_SUSPECTS, IndexComparison, IndexStage
from tailorbird.verify.verdict_text import timestamp_reported


class LeavesStore(Protocol):
    """Keeps the leaves of one index until the next comparison (tailorbird.verify.index.file_leaves).

    `read` returns them, or the reason why they cannot be used, for example another identity."""

    def read(self, identity: Mapping[str, str]) -> IndexLeaves | str: ...
    def write(self, leaves: IndexLeaves) -> None: ...
    def forget(self) -> None: ...


class RoutineStage:
    """Compares one index with its table, and keeps the leaves for the next time.

    `identity` returns what identifies the index and the table: a rebuild changes it. None: unknown, so leaves are
    neither used nor kept."""

    def __init__(
        self,
        *,
        stage: IndexStage,
        rows: LeafRows,
        shown: LeafDocuments,
        kept: LeavesStore,
        identity: Callable[[], Mapping[str, str] | None],
        seconds: Callable[[], float],
    ) -> None:
        self._stage, self._rows, self._shown = stage, rows, shown
        self._kept, self._identity, self._seconds = kept, identity, seconds

    def compare(self, *, changed: bool) -> IndexComparison:
        """Compare all rows, or with `changed` what changed since the last comparison.

        Raises Retriable while a server is unavailable."""
        identity = self._identity()
        known, why = self._known(identity) if changed else (None, "")
        compared, leaves = self.compare_from(known)
        if leaves is not None and identity is not None and identity == self._identity():
            self._kept.write(replace(leaves, identity=identity))
        elif identity is not None:  # queries see no complete cut, or index or table were rebuilt during the comparison
            self._kept.forget()
        if why:
            verdict = replace(compared.verdict, cut=f"{compared.verdict.cut}; compared all rows: {why}")
            return replace(compared, verdict=verdict)
        return compared

    def compare_from(self, known: IndexLeaves | None) -> tuple[IndexComparison, IndexLeaves | None]:
        """Compare all rows, or with `known` leaves those of the leaves that may have changed.

        The new leaves are None while queries see no complete cut."""
        # from before the first row is read: whatever is written later is found the next time
        began, cut, newest = self._seconds(), self._cut(), self._shown.newest()
        if known is None:
            files, builder = self._rows.store_files(), LeafBuilder()
            compared = self._stage.compare(leaves=builder)
            if cut is None:
                return compared, None
            return compared, IndexLeaves(leaves=tuple(builder.built()), cut=cut, newest=newest, store_files=files)
        read = read_changed(known, self._rows, self._shown)
        leaves = IndexLeaves(
            leaves=read.leaves, cut=known.cut if cut is None else cut, newest=newest, store_files=read.store_files
        )
        compared = self._stage.look(read.suspects[:MOST_SUSPECTS], rows=leaves.rows, began=began)
        verdict = compared.verdict
        what = f"read {read.again:,} of {len(known.leaves):,} leaves again: {read.compared:,} rows"
        what += f"; counted {read.counted:,} rows" if read.counted else ""
        dropped = len(read.suspects) - MOST_SUSPECTS
        more = f"{dropped:,} more rows differ, too many to compare again; run `tailorbird index reindex`"
        verdict = replace(
            verdict,
            leaves=len(leaves.leaves),
            read=read.compared + read.counted,
            cut=f"{verdict.cut}, since {timestamp_reported(known.cut)}: {what}",
            unknown=(*verdict.unknown, more) if dropped > 0 else verdict.unknown,
        )
        return replace(compared, verdict=verdict), leaves

    def _known(self, identity: Mapping[str, str] | None) -> tuple[IndexLeaves | None, str]:
        """Return the leaves of the last comparison, or the reason why all rows must be compared."""
        if identity is None:
            return None, "ZooKeeper does not answer, which knows the collections of the index"
        if expiry := self._rows.expiry():
            return None, f"its cells expire after {expiry:,} s, which HBase does not report"
        found = self._kept.read(identity)
        return (None, found) if isinstance(found, str) else (found, "")

    def _cut(self) -> int | None:
        """Return the batch timestamp up to which the index shows everything, if the table contains it, too."""
        visible = self._shown.visible()
        return None if visible is None else min(visible, self._rows.written())
