"""Compute the checksum that compares the values of four libraries in three languages.

Each value becomes a text that does not depend on the language. Each column of each image becomes a sum of CRC32s,
weighted by the change's number. A wrong, missing, repeated or reordered value changes the sum of its column.

| type | text |
|---|---|
| NULL | one zero byte |
| integers, DECIMAL, texts, ENUM | the server's text |
| DOUBLE | 16 hexadecimal digits of the big-endian IEEE number |
| DATETIME(6), TIMESTAMP | microseconds, seconds since 1970, UTC |
| DATE | days since 1970 |
| VARBINARY | the bytes |
| JSON | null, true, false, `i` and an integer, `d` and a double as above, `s5:hello`, `[…]`, `{…}` sorted by key |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final
from zlib import crc32

from benchmarks.decode.workload import COLUMNS

WEIGHTS: Final = 65521
_MASK: Final = (1 << 64) - 1
_DOUBLE: Final = struct.Struct(">d")

Texts = Sequence[bytes] | None


class Checksum:
    """Sums of every column of both images; `add` takes the canonical texts of one change's images."""

    def __init__(self) -> None:
        self._count = 0
        self._sums = [[0] * len(COLUMNS), [0] * len(COLUMNS)]

    def add(self, before: Texts, after: Texts) -> None:
        """Count one change; an insert has no before image, a delete no after image."""
        weight = 1 + self._count % WEIGHTS
        self._count += 1
        for sums, texts in zip(self._sums, (before, after), strict=True):
            if texts is not None:
                for index, text in enumerate(texts):
                    sums[index] += crc32(text) * weight

    def sums(self) -> dict[str, list[str]]:
        """Return, by column name, the sums of its before and after values, 16 hexadecimal digits each."""
        return {name: [f"{sums[index] & _MASK:016x}" for sums in self._sums] for index, name in enumerate(COLUMNS)}


def double_text(value: float) -> bytes:
    """Return the text of a double, independent of its decimal notation."""
    return _DOUBLE.pack(value).hex().encode()


def json_text(value: Any) -> bytes:
    """Return the text of a JSON document of Python values; strings and keys may be text or UTF-8 bytes."""
    if value is None:
        return b"null"
    if value is True:
        return b"true"
    if value is False:
        return b"false"
    if isinstance(value, int):
        return b"i%d" % value
    if isinstance(value, float):
        return b"d" + double_text(value)
    if isinstance(value, (str, bytes)):
        return _string(value)
    if isinstance(value, list):
        return b"[" + b"".join(map(json_text, value)) + b"]"
    if isinstance(value, dict):
        pairs = sorted((_bytes(key), item) for key, item in value.items())
        return b"{" + b"".join(_string(key) + json_text(item) for key, item in pairs) + b"}"
    raise TypeError(f"{type(value).__name__} inside JSON")


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _string(text: str | bytes) -> bytes:
    raw = _bytes(text)
    return b"s%d:%b" % (len(raw), raw)
