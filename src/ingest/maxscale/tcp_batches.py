"""Reads of the log that clients share: those at a table's end read the same, and it is read and written once."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

from cdc.model.schema import TableId
from ingest.changes.feed_interfaces import ChangeTables, SchemaVersions
from ingest.changes.merging import ChangeBatch, Offsets
from ingest.maxscale.conversation import Form
from ingest.maxscale.delivery import FORMS, Gate, Piece, pieces

_KEPT = 8  # batches, each a MiB or a record of each partition
_T = TypeVar("_T")


@dataclass(slots=True)
class SharedBatch:
    """A batch, and what clients of each form are sent of it, by the version that they were told."""

    batch: ChangeBatch
    versions: SchemaVersions
    starts: Offsets
    sent: dict[tuple[Form, int], list[Piece]] = field(default_factory=dict)

    def pieces(self, form: Form, reported: int, gate: Gate | None) -> list[Piece]:
        """What a client is sent."""
        if gate is not None:
            return list(pieces(self.batch, self.versions, FORMS[form], self.starts, reported=reported, gate=gate))
        key = form, reported
        if key not in self.sent:
            self.sent[key] = list(pieces(self.batch, self.versions, FORMS[form], self.starts, reported=reported))
        return self.sent[key]


class SharedReads:
    """Everything that clients ask of the log, by a few threads; used within one loop of events, but for `woken`."""

    def __init__(self, log: ChangeTables, threads: int = 4) -> None:
        self.log = log
        self._threads = ThreadPoolExecutor(threads, "changes")
        self._kept: OrderedDict[tuple[TableId, frozenset[tuple[int, int]]], asyncio.Future[SharedBatch]] = OrderedDict()
        self._news: dict[TableId, tuple[Offsets, asyncio.Event]] = {}

    async def ask(self, question: Callable[..., _T], *of: object) -> _T:
        """What a function that blocks answers."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, question, *of)

    async def read(self, table: TableId, starts: Offsets) -> SharedBatch:
        """The next batch from some offsets on; there is one (`ahead`)."""
        key = table, frozenset(starts.items())
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = asyncio.ensure_future(self.ask(self._read, table, starts))
            while len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        try:
            return await asyncio.shield(found)
        except BaseException:
            if found.done() and self._kept.get(key) is found:  # it failed: the next one tries again
                del self._kept[key]
            raise

    def _read(self, table: TableId, starts: Offsets) -> SharedBatch:
        batch = self.log.read(table, starts, self.log.released(table))
        return SharedBatch(batch, self.log.schemas(table), starts)

    async def news(self, table: TableId, seen: Offsets) -> None:
        """Wait until more of a table is released than has been seen."""
        while self.log.released(table) == seen:
            known = self._news.get(table)
            if known is not None and known[0] != seen:
                known[1].set()  # those who had seen less
                known = None
            if known is None:
                known = self._news[table] = seen, asyncio.Event()
            await known[1].wait()

    def woken(self) -> None:
        """Something was committed: those who wait for news of what grew go on. Within the loop."""
        for table, (seen, event) in list(self._news.items()):
            if self.log.released(table) != seen:
                del self._news[table]
                event.set()

    def close(self) -> None:
        """No more reads."""
        self._threads.shutdown(wait=True, cancel_futures=True)
