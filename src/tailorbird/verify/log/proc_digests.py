"""Read the digests of many spans in parallel, over several connections. Results are in the order of the spans."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from tailorbird.verify.log.log_stage import SourceReading
from tailorbird.verify.log.spans import Span

Connected = TypeVar("Connected")


def in_parallel(
    connections: Sequence[Connected], spans: Iterable[Span], ask: Callable[[Connected, Span], SourceReading]
) -> Iterator[tuple[Span, SourceReading]]:
    """Call `ask` for each span on an idle connection, each in a thread. At most two spans per connection are
    prefetched.

    An error of `ask` is raised when its span is due. Spans that have not begun by then are cancelled."""
    idle = SimpleQueue[Connected]()
    for one in connections:
        idle.put(one)

    def run(span: Span) -> tuple[Span, SourceReading]:
        one = idle.get()
        try:
            return span, ask(one, span)
        finally:
            idle.put(one)

    waiting = deque[Future[tuple[Span, SourceReading]]]()
    with ThreadPoolExecutor(len(connections), "digests") as pool:
        try:
            for span in spans:
                waiting.append(pool.submit(run, span))
                if len(waiting) > 2 * len(connections):
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
