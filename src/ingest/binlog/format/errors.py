"""The errors of the binlog library; those of the data name the file and the offset of the event that caused it.

Fatal (cdc.model.errors)
 └─ BinlogError          continuing would lose or invent data
     ├─ CorruptBinlog    the bytes contradict themselves or their checksum (exit 3)
     ├─ UnsupportedEvent an unknown event that may contain rows
     ├─ MissingTableMap  rows whose table definition was not read
     └─ UndecodableValue a value whose type, sign or character set is not known
"""

from __future__ import annotations

from cdc.model.errors import Fatal, Retriable


class BinlogError(Fatal):
    """Root of this library's errors; `where` is `file:offset` of the event, empty while it is not known."""

    def __init__(self, message: str, hint: str = "", *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message, hint)
        self.reason = message
        self.where = where

    def at(self, where: str) -> BinlogError:
        """Return the same error with its place, from the layer that knows it. An existing place is kept."""
        return self if self.where else type(self)(self.reason, self.hint, where=where)


class CorruptBinlog(BinlogError):
    """The bytes are not a valid binlog: bad magic, bad checksum, impossible length, or truncated."""

    exit_code = 3


class UnsupportedEvent(BinlogError):
    """An event that may contain rows in an unknown form; it is never skipped."""


class MissingTableMap(BinlogError):
    """A rows event refers to a table id without a TABLE_MAP, so its columns are unknown."""


class PositionGone(BinlogError):
    """The server's log does not continue a position: it was purged or reset since, or it is another server's."""


class UndecodableValue(BinlogError):
    """A value that is refused because decoding it would be a guess; the hint states what would make it certain."""


class ConnectionLost(Retriable):
    """The server is unavailable; a reader resumes at its checkpoint when it answers again."""
