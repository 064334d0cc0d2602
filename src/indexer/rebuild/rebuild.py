"""Fill a collection by a scan of its table while the live feed continues. No I/O of its own.

Used by `reindex` and by the first fill of a collection. Buckets are scanned in parallel. After each page the key of
the bucket's last row is stored, so a killed rebuild resumes there. Indexing a page twice is harmless, because Solr's
fence rejects older versions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from cdc.model.errors import Retriable
from indexer.index.collapse import RowChange
from indexer.index.mapping import Document, Field
from indexer.index.processor import DeadLetter, RefusedDocument, Tally

_ATTEMPTS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketProgress:
    """Progress of one salt bucket: its last row, the number of rows read, and how many of them are dead letters."""

    row: bytes | None = None
    rows: int = 0
    dead: int = 0
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Counts of a whole scan: rows read, and how many of them became dead letters."""

    rows: int
    dead: int


class TableRows(Protocol):
    """Source of rows (indexer.table.hbase_scan). Raises Retriable while it is unavailable."""

    def pages(self, bucket: int, after: bytes | None) -> Iterator[list[RowChange]]: ...


class StateStore(Protocol):
    """Stores the progress of a rebuild as JSON (indexer.rebuild.zk_state)."""

    def read(self) -> dict[str, Any] | None: ...
    def write(self, state: dict[str, Any]) -> None: ...
    def clear(self) -> None: ...


class MemoryState:
    """Progress of a dry run, kept in memory only."""

    def __init__(self) -> None:
        self._state: dict[str, Any] | None = None

    def read(self) -> dict[str, Any] | None:
        """Return the stored progress. None before the first `write`, and after `clear`."""
        return self._state

    def write(self, state: dict[str, Any]) -> None:
        """Store the progress."""
        self._state = state

    def clear(self) -> None:
        """Remove the progress."""
        self._state = None


class Scan:
    """Scans all salt buckets of a table into one collection. `bucket` may be called from a thread per bucket.

    - `index` indexes the rows of a page and returns once they are stored (`Processor.index_rows`).
    - `throttle` is called with the number of rows of each page and may wait.
    - `pause` waits for a number of seconds.
    - `stopped` returns whether the caller wants to stop.
    - `lock` guards the data that the threads share."""

    def __init__(
        self,
        rows: TableRows,
        index: Callable[[Sequence[RowChange]], Tally],
        state: StateStore,
        *,
        collection: str,
        buckets: int,
        throttle: Callable[[int], None],
        pause: Callable[[float], None],
        stopped: Callable[[], bool],
        lock: AbstractContextManager[object],
    ) -> None:
        self._rows, self._index, self._state = rows, index, state
        self._throttle, self._pause, self._stopped = throttle, pause, stopped
        self._collection = collection
        self._lock = lock
        stored = state.read()
        if stored is None or stored["collection"] != collection:
            stored = {"collection": collection, "buckets": {}}
        self._progress = {bucket: _load(stored["buckets"].get(str(bucket), {})) for bucket in range(buckets)}

    def unfinished(self) -> list[int]:
        """Return the buckets that are not finished."""
        return [bucket for bucket, progress in self._progress.items() if not progress.done]

    def counts(self) -> Counts:
        """Return the counts over all buckets, including those of interrupted attempts."""
        progress = self._progress.values()
        return Counts(rows=sum(each.rows for each in progress), dead=sum(each.dead for each in progress))

    def bucket(self, bucket: int, reported: Callable[[int], None]) -> None:
        """Index one bucket to its end. Retry while a server is unavailable. `reported` receives each page's number
        of rows.

        Raises Retriable after many attempts in a row without a completed page, or once `stopped` returns true."""
        failures = 0
        while not self._progress[bucket].done:
            try:
                for page in self._rows.pages(bucket, self._progress[bucket].row):
                    self._throttle(len(page))
                    tally = self._index(page)
                    before = self._progress[bucket]
                    self._advance(
                        bucket,
                        BucketProgress(
                            row=page[-1].row, rows=before.rows + len(page), dead=before.dead + tally.dead, done=False
                        ),
                    )
                    reported(len(page))
                    failures = 0
                    if self._stopped():
                        return
                last = self._progress[bucket]
                self._advance(bucket, BucketProgress(row=last.row, rows=last.rows, dead=last.dead, done=True))
            except Retriable:
                failures += 1
                if failures == _ATTEMPTS or self._stopped():
                    raise
                self._pause(1.0)

    def _advance(self, bucket: int, progress: BucketProgress) -> None:
        with self._lock:
            self._progress[bucket] = progress
            self._state.write(
                {
                    "collection": self._collection,
                    "buckets": {str(number): _dump(each) for number, each in self._progress.items()},
                }
            )


def _dump(progress: BucketProgress) -> dict[str, Any]:
    row = None if progress.row is None else progress.row.hex()
    return {"row": row, "rows": progress.rows, "dead": progress.dead, "done": progress.done}


def _load(stored: dict[str, Any]) -> BucketProgress:
    row = stored.get("row")
    return BucketProgress(
        row=None if row is None else bytes.fromhex(row),
        rows=stored.get("rows", 0),
        dead=stored.get("dead", 0),
        done=stored.get("done", False),
    )


class DryRunTarget:
    """Collection and dead-letter target of a dry run: documents are mapped and then dropped.

    `posted` is called with the documents of each post. `ensure` is called with the wanted fields and returns whether
    any was missing; by default none is."""

    def __init__(
        self,
        posted: Callable[[Sequence[Document]], None] = lambda documents: None,
        ensure: Callable[[Iterable[Field]], bool] = lambda wanted: False,
    ) -> None:
        self._posted, self._ensure = posted, ensure

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        """Pass the fields to `ensure` and return its result. Nothing is added to a collection."""
        return self._ensure(wanted)

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        """Accept all documents."""
        self._posted(documents)
        return []

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        """Accept all documents."""
        self._posted(documents)
        return list

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        """Return an empty result, because a dry run has no collection."""
        return {}

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]:
        """Accept all documents."""
        self._posted(documents)
        return set(), []

    def keys_of(self, row: str) -> list[str]:
        """Return nothing."""
        return []

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Drop the dead letters. The caller's tally counts them."""

    def accepted(self, rows: Mapping[bytes, int]) -> None:
        """Do nothing: a dry run settles no dead letters."""
