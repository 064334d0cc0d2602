"""Errors of Tailorbird, grouped by how a loop recovers from them.

    TailorbirdError
     ├─ TopologyError   the topology's YAML is wrong: file, line, path, what, expected what (exit 2)
     ├─ UsageError      the command line or the environment is wrong: what and the remedy (exit 2)
     ├─ Retriable       a server is unavailable or busy, or a disk is full: retry after `retry_after` seconds
     ├─ Skippable       this row or event cannot be handled: quarantine it with its bytes, continue
     └─ Fatal           continuing would lose or corrupt data: stop and report why (exit 1)

A loop decides by these classes alone. Every error has a `hint`: the remedy, in one line.
"""

from __future__ import annotations


class TailorbirdError(Exception):
    """Root of all expected errors. `hint` is the remedy in one line, empty if there is none."""

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class TopologyError(TailorbirdError):
    """A mistake in a topology file, printed as `file:line: path: what, expected what`."""

    exit_code = 2

    def __init__(self, *, file: str, line: int, path: str, what: str, expected: str) -> None:
        super().__init__(f"{file}:{line}: {path}: {what}, expected {expected}")
        self.file, self.line, self.path, self.what, self.expected = file, line, path, what, expected


class MissingSecret(TopologyError):
    """A file or environment variable that a topology names does not exist on this host."""


class UsageError(TailorbirdError):
    """The command line or the machine is not suitable: a port in use, a missing library, an unknown service."""

    exit_code = 2


class Retriable(TailorbirdError):
    """A server is unavailable or busy. The same call may succeed after `retry_after` seconds."""

    def __init__(self, message: str, hint: str = "", *, retry_after: float = 1.0) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after


class DiskFull(Retriable):
    """No space is left for a file or folder. What was acknowledged before is stored, and nothing else is."""

    def __init__(self, path: object) -> None:
        hint = "free some space there; the next start resumes where this one ended"
        super().__init__(f"No space left on the volume of {path}", hint, retry_after=5.0)


class TableChanged(Retriable):
    """A table does not match its known schema: it was altered or dropped, which the source's log will report later."""


class Skippable(TailorbirdError):
    """One row, event or document cannot be handled. It is quarantined with its bytes, and processing continues."""


class Fatal(TailorbirdError):
    """Continuing would lose or corrupt data. The process stops and reports why."""
