"""Split a byte stream into syslog messages (RFC 6587): octet counting or lines, detected for each message."""

from __future__ import annotations

from collections.abc import Iterator

LARGEST = 65_536  # maximum bytes of one message; longer ones are truncated


class FrameError(ValueError):
    """Raised if the bytes are not syslog; the connection must be closed."""


class SyslogFrames:
    """Splits the bytes of one connection into messages."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._skipping = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add bytes and yield the complete messages that are not empty. Raises FrameError for an invalid octet
        count."""
        self._rest += data
        while self._rest:
            message = self._counted() if self._rest[:1].isdigit() else self._line()
            if message is None:
                return
            if message:
                yield message

    def _counted(self) -> bytes | None:
        blank = self._rest.find(b" ", 0, 8)
        if blank < 0:
            if len(self._rest) >= 8 or not bytes(self._rest).isdigit():
                raise FrameError("an octet count without an end")
            return None
        count = bytes(self._rest[:blank])
        if not count.isdigit() or int(count) > LARGEST:
            raise FrameError(f"{count.decode(errors='replace')} is not an octet count up to {LARGEST}")
        end = blank + 1 + int(count)
        if len(self._rest) < end:
            return None
        message = bytes(self._rest[blank + 1 : end])
        del self._rest[:end]
        return message

    def _line(self) -> bytes | None:
        """Return the next line, which a newline or NUL ends. A line that is too long is truncated."""
        ends = [at for at in (self._rest.find(b"\n"), self._rest.find(b"\0")) if at >= 0]
        if not ends:
            if len(self._rest) < LARGEST:
                return None
            message = b"" if self._skipping else bytes(self._rest[:LARGEST])
            self._rest.clear()
            self._skipping = True
            return message
        message = b"" if self._skipping else bytes(self._rest[: min(ends)][:LARGEST])
        del self._rest[: min(ends) + 1]
        self._skipping = False
        return message

    def end(self) -> bytes:
        """Return the unfinished last line when the connection has ended. Empty if there is none."""
        rest = bytes(self._rest)
        self._rest.clear()
        return b"" if self._skipping or rest[:1].isdigit() else rest
