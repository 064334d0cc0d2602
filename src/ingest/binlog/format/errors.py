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
    """Base class of this library's errors. `where` is `file:offset` of the event; empty if not known."""

    def __init__(self, message: str, hint: str = "", *, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message, hint)
        self.reason = message
        self.where = where

    def at(self, where: str) -> BinlogError:
        """Return the error with the event's place added. A place that it already has is kept."""
        return self if self.where else type(self)(self.reason, self.hint, where=where)


class CorruptBinlog(BinlogError):
    """The bytes are not a valid binlog: wrong magic number or checksum, impossible length, or truncated."""

    exit_code = 3


class UnsupportedEvent(BinlogError):
    """An event of a kind that the library cannot decode, although it may contain rows. Such an event is never
    skipped."""


class MissingTableMap(BinlogError):
    """A rows event refers to a table id without a TABLE_MAP, so its columns are unknown."""


class PositionGone(BinlogError):
    """The server's log does not contain a position: it was purged or reset, or it is another server's."""


class LogPurged(PositionGone):
    """The server has purged the part of its log that follows a position."""


class UndecodableValue(BinlogError):
    """A value that could only be guessed, because its type, sign or character set is not known. The hint says what is
    needed."""


class ConnectionLost(Retriable):
    """The server is unavailable. A reader resumes at its checkpoint when the server answers again."""
