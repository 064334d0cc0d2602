"""What the stack tells while it works: one fact at a time, to one callable, which draws a bar or prints a line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

Step = Literal["download", "unpack", "prepare", "start", "running", "ready", "stop", "stopped", "note"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StackProgressed:
    """`what` (a service, a bundle, a tool) reached `step`; a download also says how many files of how many it has."""

    what: str
    step: Step
    detail: str = ""
    done: int = 0
    total: int = 0


ProgressListener = Callable[[StackProgressed], None]


def silent(progressed: StackProgressed) -> None:
    """The listener of callers who only care about the end."""


def line_of(progressed: StackProgressed) -> str:
    """One plain line, for logs and pipes."""
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
