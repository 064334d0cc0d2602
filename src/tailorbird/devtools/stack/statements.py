"""Split SQL text into statements, like MySQL's own client does."""

from __future__ import annotations

import re
from collections.abc import Iterator

_DELIMITER = re.compile(r"\s*delimiter\s+(\S+)\s*$", re.IGNORECASE)
# parts that may contain a delimiter without ending a statement: texts, names, comments
_WHOLE = re.compile(
    r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|/\*.*?\*/|--(?=\s)[^\n]*|#[^\n]*", re.DOTALL
)
_OPEN = re.compile(r"['\"`]|/\*")


class Statements:
    """Takes lines, and returns the statements that end in them. `pending` is the beginning of an unfinished
    statement.

    `DELIMITER` changes the delimiter, as in dumps with triggers. Delimiters in quotes and comments do not count."""

    def __init__(self) -> None:
        self._delimiter, self.pending = ";", ""

    def take(self, line: str) -> Iterator[str]:
        """Yield the statements that end with this line, without their delimiters."""
        if not self.pending.strip() and (found := _DELIMITER.match(line)):
            self._delimiter, self.pending = found[1], ""
            return
        self.pending += line if line.endswith("\n") else line + "\n"
        while (end := self._end()) is not None:
            statement, self.pending = self.pending[:end].strip(), self.pending[end + len(self._delimiter) :]
            if statement:
                yield statement
        if not _bare(self.pending):
            self.pending = ""

    def rest(self) -> str:
        """Return the text after the last delimiter, because the last statement needs none."""
        rest, self.pending = self.pending.strip(), ""
        return rest if _bare(rest) else ""

    def _end(self) -> int | None:
        at = 0
        while at < len(self.pending):
            if self.pending.startswith(self._delimiter, at):
                return at
            if whole := _WHOLE.match(self.pending, at):
                at = whole.end()
            elif _OPEN.match(self.pending, at):
                return None  # it ends in a later line
            else:
                at += 1
        return None


def _bare(text: str) -> str:
    """Return a text without comments."""
    return re.sub(r"/\*(?!!).*?\*/|--(?=\s)[^\n]*|#[^\n]*", "", text, flags=re.DOTALL).strip()
