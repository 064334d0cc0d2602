"""Compare the rows of a table in HBase with the documents in Solr, field by field.

Rows are converted to documents as the indexer does it. First both ends are read once, in key order. A row may differ
only because it changed between the two reads. So it is compared again, in this order:

    read the row in HBase → read the newest batch timestamp → wait until the index shows it → read the document → read
    the row again

If the row has not changed between its two reads, everything written before the first read is visible in the index:
replication keeps the order of each region, and barriers follow their rows. So the document must have the content and
version of the row. If there is no row, there must be no document."""

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
from tailorbird.verify.rounds import AGREES, MOVED, RecheckResult, RowObservation, recheck
from tailorbird.verify.verdict_text import timestamp_reported

# Limit of keys in memory. So many differences have one cause, which needs a reindex and no comparison of each row.
MOST_SUSPECTS = 1_000_000


class RowDocument(NamedTuple):
    """A row of HBase as a document with the compared fields. `version` is the document's fence.

    `document` is None if the indexer refuses the row, for the given `reason`."""

    version: int
    document: Document | None
    reason: str = ""


class Sample(NamedTuple):
    """A sample of one in `parts` rows. `turn` selects which. All turns together cover all rows."""

    parts: int
    turn: int

    def holds(self, key: str) -> bool:
        """Return whether a row is in the sample."""
        return zlib.crc32(key.encode()) % self.parts == self.turn


class NearRows(Protocol):
    """The near end: rows as documents, by id (tailorbird.verify.index.hbase_row_documents).

    `scan` and `versions` are in the order of the ids. `written` returns the newest timestamp of a batch or barrier.
    Stored rows have no newer one, except rows of that batch (timestamp + 1). Raises Retriable while HBase is
    unavailable."""

    def scan(self) -> Iterator[tuple[str, RowDocument]]: ...
    def versions(self) -> Iterator[tuple[str, int]]: ...
    def rows(self, ids: Sequence[str]) -> Mapping[str, RowDocument]: ...
    def written(self) -> int: ...


class FarDocuments(Protocol):
    """The far end: documents that queries see, with the compared fields (tailorbird.verify.index.solr_documents).

    `scan` and `versions` yield all documents, or only their fences, in the order of the ids; `documents` returns those
    with some ids. `visible` returns the timestamp (ms) up to which queries see everything, or None before the first
    barriers. `wait` waits until `visible` is at least a timestamp, and returns False if that takes too long."""

    def scan(self) -> Iterator[tuple[str, Document]]: ...
    def versions(self) -> Iterator[tuple[str, int]]: ...
    def documents(self, ids: Sequence[str]) -> Mapping[str, Document]: ...
    def visible(self) -> int | None: ...
    def wait(self, timestamp: int) -> bool: ...


class RowObserver(Protocol):
    """Receives every row of a comparison, in order (tailorbird.verify.index.index_leaves.LeafBuilder)."""

    def add(self, key: str, version: int | None, *, agrees: bool) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexComparison:
    """A verdict, and the ids of all differing documents. The verdict has only the first findings."""

    verdict: Verdict
    differing: tuple[str, ...]


class IndexStage:
    """Compares one index with its table. Read-only. `seconds` is a clock, `pause` waits between two rounds."""

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

    def compare(self, sample: Sample | None = None, leaves: RowObserver | None = None) -> IndexComparison:
        """Compare every row with its document. With a sample, compare all versions but only the values of the
        sample. `leaves` receives every row, if there is no sample.

        Raises Retriable while a server is unavailable."""
        began, rows = self._seconds(), 0
        suspects: list[str] = []
        dropped = 0
        for key, agrees in self._first_sight(sample, leaves):
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
        why = f"{dropped:,} more rows differ, too many to compare again; run `tailorbird index reindex`"
        verdict = replace(compared.verdict, unknown=(*compared.verdict.unknown, why))
        return replace(compared, verdict=verdict)

    def _first_sight(self, sample: Sample | None, leaves: RowObserver | None) -> Iterator[tuple[str, bool]]:
        if sample is None:
            yield from first_sight(self._rows.scan(), self._shown.scan(), leaves)
        else:
            # rows of the sample are treated like differing rows: both ends are read completely, at one cut
            for key, version, fence in merged(self._rows.versions(), self._shown.versions()):
                yield key, version == fence and not sample.holds(key)

    def look(self, ids: Sequence[str], *, rows: int | None = None, began: float | None = None) -> IndexComparison:
        """Compare only the documents with these ids, in rounds, until each is decided.

        `rows` is the number of rows to report as compared, if it is larger."""
        began = self._seconds() if began is None else began
        looked = recheck(ids, self._look, pause=self._pause)
        return IndexComparison(
            verdict=self._verdict(looked, len(ids) if rows is None else rows, self._seconds() - began),
            differing=tuple(looked.differing),
        )

    def _verdict(self, looked: RecheckResult, rows: int, seconds: float) -> Verdict:
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

    def _look(self, ids: Sequence[str]) -> dict[str, RowObservation]:
        before = self._rows.rows(ids)
        # after the rows: everything they contain has no newer timestamp, even while other writers continue
        written = self._rows.written()
        if not self._shown.wait(written):
            shown = self._shown.visible()
            lag = "shows no complete cut yet" if shown is None else f"shows batch timestamp {shown}"
            why = f"index {self._index} {lag}, the table is written up to batch timestamp {written}"
            return dict.fromkeys(ids, RowObservation(state="uncovered", reason=why))
        documents = self._shown.documents(ids)
        after = self._rows.rows(ids)
        return {key: self._judged(key, before.get(key), documents.get(key), after.get(key), written) for key in ids}

    def _judged(
        self, key: str, before: RowDocument | None, document: Document | None, after: RowDocument | None, written: int
    ) -> RowObservation:
        if before is None and after is None and document is None:
            return AGREES
        if before is not None and document is not None and before.document == document:
            return AGREES
        if (before is None) != (after is None) or (before and after and before.version != after.version):
            return MOVED
        if before is not None and before.version > 2 * (written + 1):
            why = f"stored with a timestamp newer than any of the join's (up to {written})"
            return RowObservation(state="uncovered", reason=why)
        evidence = (before and before.version, repr(before and before.document), repr(document))
        return RowObservation(state="differs", evidence=evidence, finding=self._finding(key, before, document))

    def _finding(self, key: str, row: RowDocument | None, document: Document | None) -> Finding:
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
            reported.append(f"the index's {far[fields.FENCE]}")
        if row is not None and row.reason:
            reported.append(f"the indexer refuses it: {row.reason}")
        return Finding(
            stage="index",
            table=self._table,
            key=self._key(key, near, far),
            kind=kind,
            columns=columns,
            position=", ".join(reported),
        )

    def _key(self, key: str, near: Document, far: Document) -> Mapping[str, Canonical]:
        """Return a row's key by column. If neither end has the columns, return the document's id."""
        known = near or far
        if any(name in known for name in self._row_key):
            return {name: known.get(name) for name in self._row_key}
        return {fields.UNIQUE_KEY: key}


def first_sight(
    rows: Iterable[tuple[str, RowDocument]], documents: Iterable[tuple[str, Document]], leaves: RowObserver | None
) -> Iterator[tuple[str, bool]]:
    """Yield each id of two sorted streams, and whether row and document are equal. `leaves` receives every row."""
    for key, near, far in merged(rows, documents):
        agrees = near is not None and far is not None and near.document == far
        if leaves is not None:
            leaves.add(key, near and near.version, agrees=agrees)
        yield key, agrees


def differing(near: Document, far: Document) -> Iterable[tuple[str, tuple[Canonical, Canonical]]]:
    """Yield the fields that differ, each with the values (near end, far end)."""
    for name in dict.fromkeys([*near, *far]):
        if near.get(name) != far.get(name):
            yield name, (near.get(name), far.get(name))
