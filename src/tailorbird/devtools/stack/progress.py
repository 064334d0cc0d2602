"""Progress reports of the stack. One callable receives each report, and draws a bar or prints a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Step = Literal["download", "unpack", "prepare", "start", "running", "ready", "stop", "stopped", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackProgress:
    """A report: `what` (a service, bundle or tool) has reached `step`. Of a download, `done` of `total` files have
    arrived."""

    what: str
    step: Step
    detail: str = ""
    done: int = 0
    total: int = 0


ProgressListener = Callable[[StackProgress], None]


def silent(progressed: StackProgress) -> None:
    """Ignore all reports, for callers that need only the result."""


def line_of(progressed: StackProgress) -> str:
    """Format a report as one plain line, for logs and pipes."""
    text = f"{progressed.what}: {_WORDS[progressed.step]}"
    if progressed.total:
        text += f" {progressed.done}/{progressed.total}"
    return f"{text} {progressed.detail}".rstrip()


_WORDS: dict[Step, str] = {
    "download": "downloading",
    "unpack": "unpacking",
    "prepare": "preparing its data folder",
    "start": "starting",
    "running": "already running",
    "ready": "ready",
    "stop": "stopping",
    "stopped": "stopped",
    "note": "",
}
