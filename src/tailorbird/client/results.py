"""Answers, operations, rows and events that the client returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal

from cdc.model.errors import TailorbirdError


class ApiError(TailorbirdError):
    """The API refused a request, or a command ended with an error.

    `status` is the HTTP status, `problem` the problem details (RFC 9457), `exit_code` that of the command line."""

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        super().__init__(str(problem.get("detail") or f"HTTP {status}"))
        self.status, self.problem = status, dict(problem)
        code = problem.get("exit_code")
        self.exit_code = code if isinstance(code, int) else 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A page of the entries of a command that only reads, as its `--json` prints them.

    `messages` are its lines on standard error. `total` is the number of all entries that match the search."""

    entries: list[Any]
    messages: list[str]
    exit_code: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationState:
    """State of an operation. `progress` is the last line on standard error. Times are milliseconds since 1970."""

    id: str
    topology: str
    command: str
    by: str
    state: Literal["waiting", "running", "ended", "cancelled"]
    exit_code: int | None
    created_ms: int
    began_ms: int | None
    ended_ms: int | None
    lines: int
    progress: str
    truncated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamLine:
    """A line of an operation's output, by number from 1."""

    number: int
    stream: Literal["out", "err"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOutcome:
    """An operation that has ended, with its whole output. `entries` are the JSON values that it printed."""

    operation: OperationState
    lines: list[StreamLine]
    entries: list[Any]

    @property
    def exit_code(self) -> int:
        """Return the exit code of the command."""
        return 1 if self.operation.exit_code is None else self.operation.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRows:
    """FoundRows of a search, the number of all that match, and the proof: up to where they are complete, and the last
    verification."""

    rows: list[dict[str, Any]]
    total: int
    complete_up_to: dict[str, Any]
    verification: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamEvent:
    """A server-sent event. `id` is a position from which a stream can resume, empty if it has none."""

    kind: str
    data: Any
    id: str


def known_fields(kind: type[Any], found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a JSON object that a dataclass has: a newer API may send more."""
    return {name: found[name] for name in (one.name for one in fields(kind)) if name in found}
