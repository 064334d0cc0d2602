"""Fills a collection from a table by scan, beside the live feed: the pure part of `reindex` and of a backfill.

Buckets are scanned in parallel. After each page the bucket's last row is stored, so a killed rebuild goes on there; a
page indexed twice is harmless, as everything is fenced.
"""

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
    """How far one salt bucket is: its last row done, how many rows were read and how many of them are dead letters."""

    row: bytes | None = None
    rows: int = 0
    dead: int = 0
    done: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Of a whole scan: rows read, and how many of them went to the dead letters instead of the collection."""

    rows: int
    dead: int


class TableRows(Protocol):
    """Where rows are read (indexer.table.hbase_scan); Retriable while it is away."""

    def pages(self, bucket: int, after: bytes | None) -> Iterator[list[RowChange]]: ...


class StateStore(Protocol):
    """Where progress is kept (indexer.rebuild.zk_state)."""

    def read(self) -> dict[str, Any] | None: ...
    def write(self, state: dict[str, Any]) -> None: ...
    def clear(self) -> None: ...


class MemoryState:
    """Progress that nobody needs after this process: of a dry run."""

    def __init__(self) -> None:
        self._state: dict[str, Any] | None = None

    def read(self) -> dict[str, Any] | None:
        """What was stored."""
        return self._state

    def write(self, state: dict[str, Any]) -> None:
        """Store."""
        self._state = state

    def clear(self) -> None:
        """Forget."""
        self._state = None


class Scan:
    """The scan of all buckets into one collection; `bucket` may be called from a thread per bucket.

    `index` takes a page's rows and returns once they are held (`Processor.index_rows`). `throttle` is called with the
    rows of a page and may wait; `pause` waits that many seconds; `stopped` tells that the caller gives up; `lock`
    guards what the buckets' threads share.
    """

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
        """The buckets that are not read to their end."""
        return [bucket for bucket, progress in self._progress.items() if not progress.done]

    def counts(self) -> Counts:
        """Over all buckets, those of earlier attempts included."""
        progress = self._progress.values()
        return Counts(rows=sum(each.rows for each in progress), dead=sum(each.dead for each in progress))

    def bucket(self, bucket: int, reported: Callable[[int], None]) -> None:
        """Index one bucket to its end, trying again while a server is away; `reported` hears of the rows of each page.

        Raises the Retriable itself after many attempts without a page in between, or once `stopped`.
        """
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


class Nowhere:
    """The collection and dead letters of a dry run: everything is mapped, nothing is written.

    `posted` hears of the documents; `ensure` is asked about fields, where they matter.
    """

    def __init__(
        self,
        posted: Callable[[Sequence[Document]], None] = lambda documents: None,
        ensure: Callable[[Iterable[Field]], bool] = lambda wanted: False,
    ) -> None:
        self._posted, self._ensure = posted, ensure

    def ensure_fields(self, wanted: Iterable[Field]) -> bool:
        """As `ensure` has it; else nothing is missing here."""
        return self._ensure(wanted)

    def post(self, documents: Sequence[Document], *, backlog: bool = False) -> list[RefusedDocument]:
        """Takes everything."""
        self._posted(documents)
        return []

    def begin(self, documents: Sequence[Document], *, backlog: bool = False) -> Callable[[], list[RefusedDocument]]:
        """Takes everything."""
        self._posted(documents)
        return list

    def versions(self, keys: Sequence[str]) -> dict[str, int]:
        """Nothing is here."""
        return {}

    def put_if(self, documents: Sequence[Document]) -> tuple[set[str], list[RefusedDocument]]:
        """Takes everything."""
        self._posted(documents)
        return set(), []

    def keys_of(self, row: str) -> list[str]:
        """Nothing is here."""
        return []

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        """Forgets the letters; their number is in the tally."""

    def accepted(self, rows: Mapping[bytes, int]) -> None:
        """Nothing is settled before the rebuild is done."""
