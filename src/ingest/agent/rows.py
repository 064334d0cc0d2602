"""Row images of the log → canonical values, by one reader per column built from the TABLE_MAP.

The reading is our own because mysql-replication's loses data in silence: zero dates become NULL, negative fractions
of TIME and UCS-2 text come out wrong, BINARY(n) loses its trailing zeros, an empty SET becomes NULL.
Source: MySQL internals, "Rows_event" and the storage formats of temporal and decimal types.
"""

from __future__ import annotations

import datetime as dt
import struct
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter

from cdc.errors import Fatal
from cdc.types import Canonical
from ingest.agent.columns import BINARY, Charset, LoggedColumn, LoggedTable, charset_of
from ingest.agent.facts import Image, Refused
from ingest.agent.jsonb import json_text
from ingest.agent.values import Unrepresentable, base64_of, bits_of, date_of, decode_text, with_fraction

Reader = Callable[[bytes, int], tuple[Canonical, int]]
_EPOCH = dt.date(1970, 1, 1)
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)  # bytes that hold 0…9 decimal digits


class RowDecoder:
    """Decodes the rows events of one table map; built once per table id, then called per event.

    Raises Fatal when an event's bytes do not fit the table map, since skipping them would lose rows.
    """

    def __init__(self, table: LoggedTable, charsets: Mapping[int, Charset]) -> None:
        self._name = f"{table.database}.{table.table}"
        self._columns = [(c.name, c.hidden, None if c.hidden else _reader(c, charsets)) for c in table.columns]
        self._plans: dict[bytes, list[tuple[str, Reader]]] = {}

    def images(self, data: bytes, present: bytes) -> Iterator[Image]:
        """Every row image in a rows event's body; `present` is its bitmap of logged columns."""
        plan = self._plans.get(present)
        if plan is None:
            plan = self._plans[present] = self._plan(present)
        at = 0
        try:
            while at < len(data):
                image, at = _image(plan, data, at)
                yield image
        except (struct.error, IndexError) as error:
            raise Fatal(f"a rows event of {self._name} does not fit its table map: {error}") from error
        if at != len(data):
            raise Fatal(f"a rows event of {self._name} ends inside a row")

    def _plan(self, present: bytes) -> list[tuple[str, Reader]]:
        """The columns that an image holds, in order; every one of the table's but MySQL's own."""
        plan: list[tuple[str, Reader]] = []
        for i, (name, hidden, read) in enumerate(self._columns):
            logged = present[i >> 3] >> (i & 7) & 1
            if logged and read is not None:
                plan.append((name, read))
            elif logged or not hidden:
                raise Fatal(
                    f"a row of {self._name} was logged {'with' if logged else 'without'} column {name}",
                    "report it with the log file" if logged else "set binlog_row_image=FULL in every session",
                )
        return plan


def _image(plan: list[tuple[str, Reader]], data: bytes, at: int) -> tuple[Image, int]:
    nulls = at
    at += (len(plan) + 7) >> 3
    values: dict[str, Canonical] = {}
    refused: dict[str, str] | None = None
    for i, (name, read) in enumerate(plan):
        if data[nulls + (i >> 3)] >> (i & 7) & 1:
            values[name] = None
            continue
        try:
            values[name], at = read(data, at)
        except _Refusal as refusal:
            values[name], at = refusal.shown, refusal.end
            refused = {**(refused or {}), name: refusal.why}
    if refused:
        why = "; ".join(f"column {name}: {reason}" for name, reason in refused.items())
        return Refused(values=values, why=why), at
    return values, at


class _Refusal(Exception):
    """A value that has no canonical form but ends somewhere, so that the next column can be read."""

    def __init__(self, why: str, shown: str, end: int) -> None:
        super().__init__(why)
        self.why, self.shown, self.end = why, shown, end


def _reader(column: LoggedColumn, charsets: Mapping[int, Charset]) -> Reader:
    """The reader of a column's values; it returns the canonical value and the offset behind it."""
    code, size = column.code, column.size
    if code in _NUMBERS:
        return _number(_NUMBERS[code][1 if column.unsigned else 0])
    if code == 9:
        return _sized(3, lambda b: int.from_bytes(b, "little", signed=not column.unsigned))
    if code == 13:
        return _sized(1, lambda b: 1900 + b[0] if b[0] else 0)
    if code == 246:
        return _decimal(column.precision, column.scale)
    if code == 16:
        return _sized(size, (lambda b: b != b"\x00") if column.precision == 1 else bits_of)
    if code == 247:
        names = ("", *column.members)  # index 0 is the empty string of an invalid value
        return _sized(size, lambda b: names[int.from_bytes(b, "little")])
    if code == 248:
        return _sized(size, lambda b: _set_text(int.from_bytes(b, "little"), column.members))
    if code == 10:
        return _sized(3, _date)
    if code in (17, 18, 19):
        width, read = {17: (4, _timestamp), 18: (5, _datetime), 19: (3, _time)}[code]
        fraction = (column.scale + 1) >> 1
        return _sized(width + fraction, lambda b: read(b, fraction))
    if code == 245:
        return _prefixed(size, json_text)
    charset = charset_of(column, charsets).name
    prefix = size if code == 252 else 1 if size < 256 else 2
    if charset != BINARY:
        return _prefixed(prefix, lambda b: decode_text(b, charset))
    if code == 254:  # BINARY(n) is logged without its trailing zeros
        return _prefixed(prefix, lambda b: base64_of(b.ljust(size, b"\x00")))
    return _prefixed(prefix, base64_of)


_NUMBERS = {
    1: ("<b", "<B"),
    2: ("<h", "<H"),
    3: ("<i", "<I"),
    8: ("<q", "<Q"),
    4: ("<f", "<f"),
    5: ("<d", "<d"),
}


def _number(form: str) -> Reader:
    packer = struct.Struct(form)
    unpack, size, first = packer.unpack_from, packer.size, itemgetter(0)

    def read(data: bytes, at: int) -> tuple[Canonical, int]:
        return first(unpack(data, at)), at + size

    return read


def _cut(data: bytes, at: int, end: int) -> bytes:
    if end > len(data):
        raise IndexError(f"value ends at {end} of {len(data)} bytes")
    return data[at:end]


def _sized(size: int, convert: Callable[[bytes], Canonical]) -> Reader:
    def read(data: bytes, at: int) -> tuple[Canonical, int]:
        end = at + size
        stored = _cut(data, at, end)
        try:
            return convert(stored), end
        except Unrepresentable as error:
            raise _Refusal(str(error), stored.hex(), end) from error

    return read


def _prefixed(prefix: int, convert: Callable[[bytes], Canonical]) -> Reader:
    def read(data: bytes, at: int) -> tuple[Canonical, int]:
        start = at + prefix
        end = start + int.from_bytes(_cut(data, at, start), "little")
        stored = _cut(data, start, end)
        try:
            return convert(stored), end
        except Unrepresentable as error:
            raise _Refusal(str(error), stored.hex(), end) from error

    return read


def _set_text(bits: int, names: tuple[str, ...]) -> str:
    return ",".join(name for i, name in enumerate(names) if bits >> i & 1)


def _date(stored: bytes) -> str:
    packed = int.from_bytes(stored, "little")
    return date_of(packed >> 9, packed >> 5 & 15, packed & 31) + "Z"


def _fraction_text(value: int, width: int) -> str:
    """Fraction of a second: each byte holds two digits."""
    return f"{value:0{2 * width}d}" if width else ""


def _datetime(stored: bytes, fraction: int) -> str:
    packed = int.from_bytes(stored[:5], "big") - 0x8000000000
    year_month, rest = packed >> 22, packed & 0x3FFFFF
    day = date_of(year_month // 13, year_month % 13, rest >> 17)
    text = f"{day}T{rest >> 12 & 31:02}:{rest >> 6 & 63:02}:{rest & 63:02}"
    return with_fraction(text, _fraction_text(int.from_bytes(stored[5:], "big"), fraction)) + "Z"


def _timestamp(stored: bytes, fraction: int) -> str:
    seconds, rest = int.from_bytes(stored[:4], "big"), int.from_bytes(stored[4:], "big")
    if not seconds and not rest:
        raise Unrepresentable("0000-00-00 00:00:00 is not a moment")
    days, second = divmod(seconds, 86400)
    day = _EPOCH.fromordinal(_EPOCH.toordinal() + days).isoformat()
    text = f"{day}T{second // 3600:02}:{second // 60 % 60:02}:{second % 60:02}"
    return with_fraction(text, _fraction_text(rest, fraction)) + "Z"


def _time(stored: bytes, fraction: int) -> str:
    # One signed number with the fraction as its lowest bytes: so negative fractions borrow as MySQL stored them.
    packed = int.from_bytes(stored, "big") - (0x800000 << 8 * fraction)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    whole, rest = packed >> 8 * fraction, packed & (1 << 8 * fraction) - 1
    text = f"{sign}{whole >> 12 & 1023:02}:{whole >> 6 & 63:02}:{whole & 63:02}"
    return with_fraction(text, _fraction_text(rest, fraction))


def _decimal(precision: int, scale: int) -> Reader:
    integral = precision - scale
    # groups of nine digits in four bytes, the incomplete group outermost on each side
    digits = [integral % 9] + [9] * (integral // 9) + [9] * (scale // 9) + [scale % 9]
    groups = [(_DIGIT_BYTES[n], n) for n in digits if n]
    size = sum(width for width, _ in groups)

    def convert(stored: bytes) -> str:
        positive = stored[0] & 0x80
        raw = bytearray(stored)
        raw[0] ^= 0x80
        if not positive:
            raw = bytearray(byte ^ 0xFF for byte in raw)
        at, text = 0, ""
        for width, n in groups:
            text += f"{int.from_bytes(raw[at : at + width], 'big'):0{n}d}"
            at += width
        whole = (text[:integral] if integral else "").lstrip("0") or "0"
        number = f"{whole}.{text[integral:]}" if scale else whole
        return number if positive else "-" + number

    return _sized(size, convert)
