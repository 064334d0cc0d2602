"""The errors of the binlog library; those of the data name the file and the offset of the event that caused it.

Fatal (cdc.model.errors)
 └─ BinlogError          going on would lose or invent data
     ├─ CorruptBinlog    the bytes contradict themselves or their checksum (exit 3)
     ├─ UnsupportedEvent an event that may carry rows and is not understood
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
        """The same error with its place, for the layer that knows it; an error that has a place keeps it."""
        return self if self.where else type(self)(self.reason, self.hint, where=where)


class CorruptBinlog(BinlogError):
    """The bytes are not a valid binlog: bad magic, bad checksum, impossible length, torn end."""

    exit_code = 3


class UnsupportedEvent(BinlogError):
    """An event that could carry rows in a form that this library does not know; it is never skipped."""


class MissingTableMap(BinlogError):
    """A rows event refers to a table id without a TABLE_MAP, so that its columns are not known."""


class PositionGone(BinlogError):
    """The server's log does not continue a position: it was purged or reset since, or is another server's."""


class UndecodableValue(BinlogError):
    """A value is refused because decoding it would be guessing; the hint says what would make it certain."""


class ConnectionLost(Retriable):
    """The server is away; a reader resumes at its checkpoint when it answers again."""
