"""Errors of the API as problem details (RFC 9457), with the text that the command line prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tailorbird.operate.status.selection import cut
from tailorbird.web.api.output import OutputLine

TYPE = "application/problem+json"
PREFIX = "tailorbird: "  # of an error that a command prints
_CODES = {400: 2, 401: 2, 403: 2, 404: 2, 405: 2, 409: 2, 411: 2, 413: 2}
_TITLES = {
    400: "The request is not valid", 401: "No valid token", 403: "The role is not sufficient", 404: "Not found",
    405: "Method not allowed", 409: "Conflict", 411: "Length required", 413: "The request is too long",
    429: "Too many requests", 500: "Internal error", 503: "Unavailable", 504: "No answer in time",
}  # fmt: skip


def problem(status: int, detail: str, *, remedy: str = "", exit_code: int | None = None) -> dict[str, Any]:
    """Return the problem details of an HTTP status. `exit_code` is the one that the command has for this error."""
    return {
        "type": "about:blank",
        "title": _TITLES.get(status, "Error"),
        "status": status,
        "detail": cut(detail),
        "remedy": remedy,
        "exit_code": _CODES.get(status, 1) if exit_code is None else exit_code,
    }


def failure(lines: Sequence[OutputLine], exit_code: int | None) -> dict[str, Any] | None:
    """Return the problem with which a command ended, None if it gave an answer.

    An answer may have exit code 1, for example of `status` if a process is down."""
    errors = [line.text for line in lines if line.stream == "err"]
    if exit_code in (0, None) or any(line.stream == "out" for line in lines):
        return None
    if not errors:
        return None if exit_code == 1 else problem(500, f"the command ended with exit code {exit_code}")
    detail = errors[-1].removeprefix(PREFIX)
    return problem(400 if exit_code == 2 else 503, detail, exit_code=exit_code)
