"""Operations of the API: a running command, its output line by line, and what a client sees of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

State = Literal["waiting", "running", "ended", "cancelled"]
MOST_OUTPUT = 8 * 1024 * 1024  # characters of an operation's output that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputLine:
    """A line that a command printed, by number from 1, on standard output (`out`) or standard error (`err`)."""

    number: int
    stream: Literal["out", "err"]
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object of the line."""
        return {"number": self.number, "stream": self.stream, "text": self.text}


@dataclass(slots=True, kw_only=True)
class Operation:
    """A command that runs, waits or has ended. `by` is the name of the operator, `arguments` the command line.

    `long`: it may take longer than some seconds. Times are milliseconds since 1970. The lock of `Operations` protects
    it."""

    id: str
    topology: str
    command: str
    by: str
    arguments: Sequence[str]
    created_ms: int
    long: bool = True
    ended: Callable[[Operation], None] = lambda _: None
    state: State = "waiting"
    exit_code: int | None = None
    began_ms: int | None = None
    ended_ms: int | None = None
    lines: list[OutputLine] = field(default_factory=list)
    size: int = 0
    truncated: bool = False

    @property
    def over(self) -> bool:
        """Return whether the operation has ended; a cancelled one ends when its process has ended."""
        return self.ended_ms is not None

    def add(self, stream: Literal["out", "err"], text: str) -> None:
        """Add a line of output. Lines beyond `MOST_OUTPUT` are dropped, and the operation says so."""
        if self.size + len(text) > MOST_OUTPUT:
            self.truncated = True
            return
        self.size += len(text)
        self.lines.append(OutputLine(number=len(self.lines) + 1, stream=stream, text=text))

    def shown(self) -> dict[str, Any]:
        """Return what clients see. `progress` is the last line of standard error."""
        errors = (line.text for line in reversed(self.lines) if line.stream == "err")
        return {
            "id": self.id,
            "topology": self.topology,
            "command": self.command,
            "by": self.by,
            "state": self.state,
            "exit_code": self.exit_code,
            "created_ms": self.created_ms,
            "began_ms": self.began_ms,
            "ended_ms": self.ended_ms,
            "lines": len(self.lines),
            "progress": next(errors, ""),
            "truncated": self.truncated,
        }


def entries_of(lines: Sequence[OutputLine]) -> list[Any]:
    """Return the JSON values that a command printed, one a line, or one value over all lines."""
    texts = [line.text for line in lines if line.stream == "out" and line.text]
    try:
        return [orjson.loads(text) for text in texts]
    except orjson.JSONDecodeError:
        return [orjson.loads("\n".join(texts))]
