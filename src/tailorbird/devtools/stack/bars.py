"""Show the progress of the stack: bars on a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from tailorbird.devtools.stack.progress import ProgressListener, StackProgress, line_of


@contextmanager
def reporting(console: Console | None = None) -> Iterator[ProgressListener]:
    """Context manager: yield a progress listener for `Stack`, which draws bars or prints lines.

    Threads may call it at the same time, but only one thread per subject (`what`)."""
    console = console or Console(stderr=True)
    if console.is_terminal:
        with Progress(
            TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
        ) as bars:
            yield _Drawn(bars)
    else:
        yield _Printed(console)


class _Drawn:
    def __init__(self, bars: Progress) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, progressed: StackProgress) -> None:
        if not progressed.total:
            self._bars.console.print(line_of(progressed), highlight=False)
            return
        if progressed.what not in self._tasks:
            title = f"download {progressed.what}"
            self._tasks[progressed.what] = self._bars.add_task(title, total=progressed.total)
        self._bars.update(self._tasks[progressed.what], completed=progressed.done)


class _Printed:
    def __init__(self, console: Console) -> None:
        self._console = console
        self._reported: dict[str, int] = {}

    def __call__(self, progressed: StackProgress) -> None:
        if progressed.total:
            quarter = 4 * progressed.done // progressed.total
            if self._reported.get(progressed.what) == quarter:
                return
            self._reported[progressed.what] = quarter
        self._console.print(line_of(progressed), highlight=False, soft_wrap=True)
