"""Decode the binary format that the kernel's `Bytes.java` writes."""

from __future__ import annotations


class Packed:
    """Reads stored bytes from the beginning to the end."""

    def __init__(self, stored: bytes) -> None:
        self._stored, self._at = stored, 0

    def next(self, length: int) -> bytes:
        """Return the next `length` bytes."""
        self._at += length
        return self._stored[self._at - length : self._at]

    def count(self) -> int:
        """Read an unsigned number with seven bits per byte, lowest first."""
        value, shift = 0, 0
        while True:
            (byte,) = self.next(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def signed(self) -> int:
        """Read an integer that may be negative."""
        value = self.count()
        return value >> 1 ^ -(value & 1)

    def block(self) -> bytes:
        """Read a length, then that many bytes."""
        return self.next(self.count())
