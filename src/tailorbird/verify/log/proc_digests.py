"""Digests of many spans over several connections, one thread each; the order of the spans is kept."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import TypeVar

from tailorbird.verify.log.spans import Span
from tailorbird.verify.log.stage import SourceSnapshot

Connected = TypeVar("Connected")


def ahead(
    connections: Sequence[Connected], spans: Iterable[Span], ask: Callable[[Connected, Span], SourceSnapshot]
) -> Iterator[tuple[Span, SourceSnapshot]]:
    """Ask for each span over whichever connection is idle; two spans for each connection are asked for ahead at most.

    An error of `ask` is raised at its span's turn; spans that have not begun by then are not asked for.
    """
    idle = SimpleQueue[Connected]()
    for one in connections:
        idle.put(one)

    def run(span: Span) -> tuple[Span, SourceSnapshot]:
        one = idle.get()
        try:
            return span, ask(one, span)
        finally:
            idle.put(one)

    waiting = deque[Future[tuple[Span, SourceSnapshot]]]()
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
