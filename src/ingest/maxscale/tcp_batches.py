"""Share reads of Kafka between clients: of clients at the same offset, only the first one reads and encodes a batch."""

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

_KEPT = 8  # maximum number of cached batches, of about 1 MiB each
_T = TypeVar("_T")


@dataclass(slots=True)
class SharedBatch:
    """A batch of changes, and its encoded pieces by format and by the schema version that clients have received."""

    batch: ChangeBatch
    versions: SchemaVersions
    starts: Offsets
    sent: dict[tuple[Form, int], list[Piece]] = field(default_factory=dict)

    def pieces(self, form: Form, sent_version: int, gate: Gate | None) -> list[Piece]:
        """Return the pieces for a client. They are encoded once per format and version."""
        if gate is not None:
            return self._encoded(form, sent_version, gate)
        key = form, sent_version
        if key not in self.sent:
            self.sent[key] = self._encoded(form, sent_version, None)
        return self.sent[key]

    def _encoded(self, form: Form, sent_version: int, gate: Gate | None) -> list[Piece]:
        found = pieces(
            self.batch, self.versions, FORMS[form], self.starts, sent_version=sent_version, gate=gate
        )  # fmt: skip
        return list(found)


class SharedReads:
    """Reads of change topics for all clients, in a few threads. To be used in one event loop."""

    def __init__(self, log: ChangeTables, threads: int = 4) -> None:
        self.log = log
        self._threads = ThreadPoolExecutor(threads, "changes")
        self._kept: OrderedDict[tuple[TableId, frozenset[tuple[int, int]]], asyncio.Future[SharedBatch]] = OrderedDict()
        self._news: dict[TableId, tuple[Offsets, asyncio.Event]] = {}

    async def ask(self, question: Callable[..., _T], *of: object) -> _T:
        """Call a blocking function in a thread and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, question, *of)

    async def read(self, table: TableId, starts: Offsets) -> SharedBatch:
        """Return the next batch from some offsets. Call it only if there are changes to read
        (`ingest.changes.feed_interfaces.ahead`)."""
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
            # remove the failed read, so that the next client tries again
            if found.done() and self._kept.get(key) is found:
                del self._kept[key]
            raise

    def _read(self, table: TableId, starts: Offsets) -> SharedBatch:
        batch = self.log.read(table, starts, self.log.released(table))
        return SharedBatch(batch, self.log.schemas(table), starts)

    async def news(self, table: TableId, seen: Offsets) -> None:
        """Wait until changes of a table after the offsets `seen` are committed."""
        while self.log.released(table) == seen:
            known = self._news.get(table)
            if known is not None and known[0] != seen:
                known[1].set()  # wake the clients that wait with older offsets
                known = None
            if known is None:
                known = self._news[table] = seen, asyncio.Event()
            await known[1].wait()

    def notify(self) -> None:
        """Wake the clients whose tables have new commits. Call it in the event loop."""
        for table, (seen, event) in list(self._news.items()):
            if self.log.released(table) != seen:
                del self._news[table]
                event.set()

    def close(self) -> None:
        """Stop the threads."""
        self._threads.shutdown(wait=True, cancel_futures=True)
