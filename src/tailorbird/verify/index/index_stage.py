"""The index stage: a table's rows in HBase, as the documents that the indexer makes of them, beside those of Solr.

First both are read once, in the order of their keys, and compared field by field. What differs, because it is wrong or
because it changed in between, is looked at again:

    the rows in HBase → how far the join has written → wait until the index shows that → the documents → the rows again

Between the two looks at HBase nothing may have changed. Then all that was written before the first is visible when the
documents are read, since replication keeps each region's order and barriers come behind their rows: the document must
be the row's, of its very version; where there is no row there must be none.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

from cdc.model.types import Canonical
from cdc.stored import fields
from indexer.index.mapping import Document
from tailorbird.verify.findings import Finding, Kind, Verdict
from tailorbird.verify.merging import merged
from tailorbird.verify.rounds import AGREES, MOVED, Looked, Sight, look_again
from tailorbird.verify.verdict_text import timestamp_reported

# More keys than these are not kept; so many differences have one cause, which a rebuild mends and no look at each.
MOST_SUSPECTS = 1_000_000


class RowSeen(NamedTuple):
    """A row of HBase: its version (as the fence has it) and its document, of the fields that are compared.

    `document` is None for a row that has none, because of `reason`: the indexer refuses it too.
    """

    version: int
    document: Document | None
    reason: str = ""


class Sample(NamedTuple):
    """One in so many rows; which of them, `turn` says, so that as many turns are all rows."""

    parts: int
    turn: int

    def holds(self, key: str) -> bool:
        """Whether a row is in the sample."""
        return zlib.crc32(key.encode()) % self.parts == self.turn


class NearRows(Protocol):
    """The near end (tailorbird.verify.index.hbase_rows_seen): rows by their documents' ids. Retriable: unavailable.

    `scan` goes in the order of the ids; so does `versions`, which tells no more; `written` is the newest stamp
    that a batch or barrier of the table was given: nothing that is stored by then has a newer one, but for the rows of
    that batch (stamp + 1).
    """

    def scan(self) -> Iterator[tuple[str, RowSeen]]: ...
    def versions(self) -> Iterator[tuple[str, int]]: ...
    def rows(self, ids: Sequence[str]) -> Mapping[str, RowSeen]: ...
    def written(self) -> int: ...


class FarDocuments(Protocol):
    """The far end (tailorbird.verify.index.solr_shown): documents that queries see, of the fields that are compared.

    `visible` is the stamp of the last cut that is shown, None before the first; `wait` returns once a cut of this stamp
    is, False when that takes too long.
    """

    def scan(self) -> Iterator[tuple[str, Document]]: ...
    def versions(self) -> Iterator[tuple[str, int]]: ...
    def documents(self, ids: Sequence[str]) -> Mapping[str, Document]: ...
    def visible(self) -> int | None: ...
    def wait(self, timestamp: int) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """A verdict, and the ids of all documents that it found to differ: more than it has findings of, at times."""

    verdict: Verdict
    differing: tuple[str, ...]


class IndexStage:
    """Compares one index with its table; reads only. `seconds` is a clock, `pause` waits between two looks."""

    def __init__(
        self,
        *,
        table: str,
        index: str,
        row_key: Sequence[str],
        columns: Sequence[str],
        rows: NearRows,
        shown: FarDocuments,
        seconds: Callable[[], float],
        pause: Callable[[int], None],
        reported: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._table, self._index, self._row_key, self._columns = table, index, tuple(row_key), tuple(columns)
        self._rows, self._shown, self._seconds, self._pause, self._reported = rows, shown, seconds, pause, reported

    def compare(self, sample: Sample | None = None) -> Compared:
        """Every row, and every document; with a sample, the versions of all and the values of those in it. Retriable
        while a server is away.
        """
        began, rows = self._seconds(), 0
        suspects: list[str] = []
        dropped = 0
        for key, agrees in self._first_sight(sample):
            rows += 1
            if not agrees:
                if len(suspects) < MOST_SUSPECTS:
                    suspects.append(key)
                else:
                    dropped += 1
            if rows % 1000 == 0:
                self._reported(1000)
        self._reported(rows % 1000)
        compared = self.look(suspects, rows=rows, began=began)
        if not dropped:
            return compared
        why = f"{dropped:,} more rows differ at first sight, too many to look at again; `tailorbird index reindex`"
        verdict = replace(compared.verdict, unknown=(*compared.verdict.unknown, why))
        return replace(compared, verdict=verdict)

    def _first_sight(self, sample: Sample | None) -> Iterator[tuple[str, bool]]:
        if sample is None:
            for key, near, far in merged(self._rows.scan(), self._shown.scan()):
                yield key, near is not None and far is not None and near.document == far
        else:
            # those of the sample are looked at like rows that differ: both ends whole, at one cut
            for key, version, fence in merged(self._rows.versions(), self._shown.versions()):
                yield key, version == fence and not sample.holds(key)

    def look(self, ids: Sequence[str], *, rows: int | None = None, began: float | None = None) -> Compared:
        """Some documents only, until each is decided; `rows` says how many were covered, where more were."""
        began = self._seconds() if began is None else began
        looked = look_again(ids, self._look, pause=self._pause)
        return Compared(
            verdict=self._verdict(looked, len(ids) if rows is None else rows, self._seconds() - began),
            differing=tuple(looked.differing),
        )

    def _verdict(self, looked: Looked, rows: int, seconds: float) -> Verdict:
        visible = self._shown.visible()
        cut = timestamp_reported(visible)
        return Verdict(
            stage="index",
            table=self._table,
            rows=rows,
            leaves=0,
            cut=f"{cut}, index {self._index}",
            columns=self._columns,
            findings=tuple(looked.findings),
            differing=len(looked.differing),
            moving=looked.moving,
            unknown=looked.reasons,
            seconds=seconds,
        )

    def _look(self, ids: Sequence[str]) -> dict[str, Sight]:
        before = self._rows.rows(ids)
        # in this order: what was stored before the look has no newer stamp, whoever writes on meanwhile
        written = self._rows.written()
        if not self._shown.wait(written):
            shown = self._shown.visible()
            behind = "shows no whole cut yet" if shown is None else f"shows stamp {shown}"
            why = f"index {self._index} {behind}, the table is written up to stamp {written}"
            return dict.fromkeys(ids, Sight(state="uncovered", reason=why))
        documents = self._shown.documents(ids)
        after = self._rows.rows(ids)
        return {key: self._judged(key, before.get(key), documents.get(key), after.get(key), written) for key in ids}

    def _judged(
        self, key: str, before: RowSeen | None, document: Document | None, after: RowSeen | None, written: int
    ) -> Sight:
        if before is None and after is None and document is None:
            return AGREES
        if before is not None and document is not None and before.document == document:
            return AGREES
        if (before is None) != (after is None) or (before and after and before.version != after.version):
            return MOVED
        if before is not None and before.version > 2 * (written + 1):
            why = f"stored with a stamp newer than any of the join's (up to {written})"
            return Sight(state="uncovered", reason=why)
        evidence = (before and before.version, repr(before and before.document), repr(document))
        return Sight(state="differs", evidence=evidence, finding=self._finding(key, before, document))

    def _finding(self, key: str, row: RowSeen | None, document: Document | None) -> Finding:
        near = (row.document if row else None) or {}
        far = document or {}
        kind: Kind = "extra" if row is None else "missing" if document is None else "different"
        columns: dict[str, tuple[Canonical, Canonical]] = {}
        if kind == "different":
            if row is not None and row.document is None:
                columns[fields.FENCE] = row.version, far.get(fields.FENCE)
            else:
                columns = dict(differing(near, far))
        reported = [f"row {key}"]
        if row is not None:
            reported.append(f"HBase's version {row.version}")
        if fields.FENCE in far:
            reported.append(f"Solr's {far[fields.FENCE]}")
        if row is not None and row.reason:
            reported.append(f"it has no document: {row.reason}")
        return Finding(
            stage="index",
            table=self._table,
            key=self._key(key, near, far),
            kind=kind,
            columns=columns,
            position=", ".join(reported),
        )

    def _key(self, key: str, near: Document, far: Document) -> Mapping[str, Canonical]:
        """The row's key by column; by the id where neither end has them, as for a row that can not be read."""
        known = near or far
        if any(name in known for name in self._row_key):
            return {name: known.get(name) for name in self._row_key}
        return {fields.UNIQUE_KEY: key}


def differing(near: Document, far: Document) -> Iterable[tuple[str, tuple[Canonical, Canonical]]]:
    """The fields that differ, each with what both ends have."""
    for name in dict.fromkeys([*near, *far]):
        if near.get(name) != far.get(name):
            yield name, (near.get(name), far.get(name))
