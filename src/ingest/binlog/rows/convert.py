"""Conversions that generated row decoders call for values that need more than a struct or a slice."""

from __future__ import annotations

import re
import zlib
from binascii import b2a_base64
from collections.abc import Callable
from decimal import Decimal
from ipaddress import IPv4Address, IPv6Address
from typing import Any, Final, NoReturn

import orjson

from ingest.binlog.format.canonical import logged_json
from ingest.binlog.format.columns import LoggedColumn
from ingest.binlog.format.compressed import MAX_INFLATED
from ingest.binlog.format.errors import UndecodableValue
from ingest.binlog.json.jsonb import JSON_NULL


def refuse_sign(column: LoggedColumn) -> NoReturn:
    """Raise UndecodableValue for an integer that may be negative or large, because its sign is unknown."""
    raise UndecodableValue(
        f"column {column.name} ({column.type.name}): the value is negative if signed and large if unsigned",
        "MySQL 5.7 and MariaDB with binlog_row_metadata=NO_LOG log no signs; give a schema, or a sign to assume",
    )


def require_digits(column: LoggedColumn) -> None:
    """Raise UndecodableValue for a temporal column of MariaDB whose number of fractional digits is unknown."""
    if column.digits < 0:
        raise UndecodableValue(
            f"column {column.name} is a {column.type.name} in MariaDB's old format: its fraction is not stated",
            "give a schema, or rebuild the table with ALTER TABLE … FORCE under mysql56_temporal_format=ON",
        )


def base64_text(raw: bytes) -> str:
    """Return bytes as base64 text."""
    return b2a_base64(raw, newline=False).decode("ascii")


def _default(value: Any) -> Any:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f"))
    raise TypeError(f"{type(value).__name__} inside JSON")


def json_dumps(value: Any) -> str:
    """Return the compact JSON text of a decoded document; decimals keep their digits."""
    if value is JSON_NULL:  # an Enum, which orjson would write by its value
        return "null"
    return orjson.dumps(value, default=_default).decode()


def canonical_json(value: Any) -> str:
    """Return the canonical JSON text of a decoded document."""
    return logged_json(json_dumps(value))


def inflate(raw: bytes) -> bytes:
    """Decompress a value of a MariaDB COMPRESSED column: a header byte, the length, and zlib data or plain bytes.

    Raises ValueError for another method than zlib, a wrong length, or more than 256 MiB.
    """
    if not raw:
        return b""
    header = raw[0]
    if header == 0:
        return raw[1:]
    method, size_of_length = header >> 4, header & 7
    if method != 8:
        raise ValueError(f"a compressed column uses method {method}, but only zlib is supported")
    length = int.from_bytes(raw[1 : 1 + size_of_length], "big")
    if length > MAX_INFLATED:
        raise ValueError(f"a compressed column claims {length} bytes, more than {MAX_INFLATED}")
    # Bit 3: zlib's wrapper is absent (column_compression_zlib_wrap=OFF, the default).
    window = -zlib.MAX_WBITS if header & 8 else zlib.MAX_WBITS
    text = zlib.decompressobj(window).decompress(raw[1 + size_of_length :], length or 1)
    if len(text) != length:
        raise ValueError(f"a compressed column has {len(text)} bytes instead of {length}")
    return text


def inet4(raw: bytes) -> str:
    """Decode MariaDB's INET4: four bytes, whose trailing zeros the binlog omits."""
    return str(IPv4Address(raw.ljust(4, b"\0")))


def inet6(raw: bytes) -> str:
    """Decode MariaDB's INET6 to the text that the server prints (mapped IPv4 addresses in dotted form)."""
    address = IPv6Address(raw.ljust(16, b"\0"))
    mapped = address.ipv4_mapped
    if mapped:
        return f"::ffff:{mapped}"
    packed = int(address)
    if 0xFFFF < packed < 1 << 32:
        return f"::{IPv4Address(packed)}"
    return str(address)


def maria_uuid(raw: bytes) -> str:
    """Decode MariaDB's UUID, whose bytes in the binlog are in the order of the text."""
    text = raw.ljust(16, b"\0").hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class SetLabels(dict[int, str]):
    """Cache: mask of a SET value → its labels, joined by commas as the server prints them."""

    def __init__(self, labels: tuple[str, ...]) -> None:
        super().__init__()
        self._labels = labels

    def __missing__(self, mask: int) -> str:
        if mask >> len(self._labels):
            raise ValueError(f"a SET has bits beyond its {len(self._labels)} labels")
        if len(self) > 1 << 16:
            self.clear()
        text = self[mask] = ",".join(label for i, label in enumerate(self._labels) if mask >> i & 1)
        return text


def old_decimal(precision: int, scale: int) -> Callable[[bytes, int], tuple[str, int]]:
    """Return a reader of DECIMAL(precision, scale) from before MySQL 5.0, for a scale above 0.

    A value is text: blanks, a sign, digits, and `scale` digits after the point. Its end follows from the text, because
    its size differs: such tables exist with and without a place for the sign. The reader takes (bytes, offset) and
    returns (value, offset after it). It raises ValueError for other bytes.
    """
    form = re.compile(rb" *([+-]?[0-9]*\.[0-9]{%d})" % scale)
    longest = precision + 2  # with sign and point

    def read(body: bytes, at: int) -> tuple[str, int]:
        found = form.match(body, at, at + longest)
        if found is None:
            raise ValueError(f"no text of a DECIMAL({precision},{scale}) from before MySQL 5.0")
        return found[1].decode(), found.end()

    return read


def old_whole(raw: bytes) -> str:
    """Decode a DECIMAL without fraction from before MySQL 5.0: text, padded with blanks on the left.

    Raises ValueError for any other text.
    """
    text = raw.strip()
    if not re.fullmatch(rb"[+-]?[0-9]+", text):
        raise ValueError(f"no text of a DECIMAL({len(raw)}) from before MySQL 5.0")
    return text.decode()


DECLARED_BYTES: Final[dict[str, Callable[[bytes], str]]] = {"inet4": inet4, "inet6": inet6, "uuid": maria_uuid}
