"""Trace an index: for each sampled change that queries see now, spans of the indexer's post and of its visibility."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from cdc.model.errors import Retriable
from cdc.otel.http_spans import Tracer
from cdc.otel.stages import index_stage, sink_stage, visible_stage
from cdc.stored import fields
from cdc.topology.topology import Index
from indexer.index.barriers import positions_of

_LOOK_EVERY = 0.1
_LOOKS = 100  # after a post, until the next one


class IndexTraces:
    """Sends the spans of one index. Without a tracer it does nothing.

    A thread reads the visible barriers ten times a second for ten seconds after each post with barriers. `read` returns
    them; it may raise Retriable."""

    def __init__(self, index: Index, tracer: Tracer | None, read: Callable[[], Sequence[Mapping[str, Any]]]) -> None:
        self._index, self._tracer, self._read = index, tracer, read
        self._posts: deque[tuple[int, int]] = deque(maxlen=1000)
        self._posted, self._looks = threading.Event(), 0
        self._before: Mapping[str, Mapping[str, object]] = {}
        if tracer is not None:
            threading.Thread(target=self._watch, args=(tracer,), name="traces", daemon=True).start()

    def posted(self, began_ns: int, barriers: int) -> None:
        """Note that a batch with so many barriers was received at `began_ns`, and is stored now."""
        if barriers and self._tracer is not None:
            self._posts.append((began_ns, time.time_ns()))
            self._looks = _LOOKS
            self._posted.set()

    def _watch(self, tracer: Tracer) -> None:
        while True:
            self._posted.wait()
            with suppress(Retriable):  # the indexer itself reports it
                self._look(tracer, self._read())
            self._looks -= 1
            if self._looks <= 0:
                self._posted.clear()
            time.sleep(_LOOK_EVERY)

    def _look(self, tracer: Tracer, barriers: Sequence[Mapping[str, Any]]) -> None:
        now_ns, positions = time.time_ns(), positions_of(barriers)
        if not positions:
            return
        before, self._before = self._before, positions
        mapped_ns = max(int(one[fields.INDEXED_AT]) for one in barriers) * 1_000_000
        began_ns, ended_ns = self._post(mapped_ns)
        index, visible = index_stage(self._index.name), visible_stage(self._index.name)
        attributes = {"tailorbird.index": self._index.name, "tailorbird.table": self._index.table}
        for change in tracer.sampling.between(before, positions):
            parent = sink_stage(self._index.table)
            tracer.span(change, index, parent=parent, began_ns=began_ns, ended_ns=ended_ns, attributes=attributes)
            tracer.span(change, visible, parent=index, began_ns=ended_ns, ended_ns=now_ns, attributes=attributes)

    def _post(self, mapped_ns: int) -> tuple[int, int]:
        """Return begin and end of the post that stored the newest visible barrier, which was mapped at `mapped_ns`.

        If another process posted it, only that time is known."""
        for began, ended in tuple(self._posts):
            if began - 1_000_000 <= mapped_ns <= ended:
                return began, ended
        return mapped_ns, mapped_ns
