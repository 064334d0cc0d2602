"""MySQL's binary JSON → the text that a SELECT of the same value prints, so that snapshot and log agree.

Source: MySQL's json_binary.h (layout) and Json_wrapper::to_string (text).
"""

from __future__ import annotations

import base64
import struct
from decimal import Decimal

from ingest.agent.values import Unrepresentable

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\b": "\\b", "\t": "\\t", "\n": "\\n", "\f": "\\f", "\r": "\\r"}
_INTS = {5: "<h", 6: "<H", 7: "<i", 8: "<I", 9: "<q", 10: "<Q"}
_LITERALS = {0: "null", 1: "true", 2: "false"}
_MOST_DIGITS = 15  # before the point, or zeros behind it, until MySQL takes an exponent
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)


def json_text(stored: bytes) -> str:
    """Text of one stored document; Unrepresentable when the bytes are none."""
    if not stored:  # how MySQL logs the JSON literal null of a column added by ALTER
        return "null"
    try:
        return _value(stored[0], memoryview(stored)[1:])
    except (IndexError, KeyError, struct.error, UnicodeDecodeError) as error:
        raise Unrepresentable(f"not a JSON document: {error}") from error


def _value(code: int, data: memoryview) -> str:
    if code <= 3:
        return _container(data, is_object=code < 2, wide=bool(code & 1))
    if code == 4:
        return _LITERALS[data[0]]
    if code in _INTS:
        return str(struct.unpack_from(_INTS[code], data)[0])
    if code == 11:
        return double_text(struct.unpack_from("<d", data)[0])
    if code == 12:
        size, start = _length(data)
        return _quoted(bytes(data[start : start + size]).decode())
    if code == 15:
        size, start = _length(data[1:])
        return _opaque(data[0], bytes(data[1 + start : 1 + start + size]))
    raise KeyError(f"JSON type {code}")


def _container(data: memoryview, *, is_object: bool, wide: bool) -> str:
    offset, form = (4, "<I") if wide else (2, "<H")
    count: int = struct.unpack_from(form, data)[0]
    at = 2 * offset
    keys: list[str] = []
    if is_object:
        for _ in range(count):
            start = struct.unpack_from(form, data, at)[0]
            size = struct.unpack_from("<H", data, at + offset)[0]
            keys.append(_quoted(bytes(data[start : start + size]).decode()))
            at += offset + 2
    values: list[str] = []
    for _ in range(count):
        code = data[at]
        inline = code in (4, 5, 6) or (wide and code in (7, 8))
        start = at + 1 if inline else struct.unpack_from(form, data, at + 1)[0]
        values.append(_value(code, data[start:]))
        at += 1 + offset
    if is_object:
        return "{" + ", ".join(f"{key}: {value}" for key, value in zip(keys, values, strict=True)) + "}"
    return "[" + ", ".join(values) + "]"


def _length(data: memoryview) -> tuple[int, int]:
    """A length in groups of seven bits, lowest first, and how many bytes it took."""
    size = 0
    for i in range(5):
        size |= (data[i] & 0x7F) << 7 * i
        if not data[i] & 0x80:
            return size, i + 1
    raise IndexError("a length of more than five bytes")


def _quoted(text: str) -> str:
    return '"' + "".join(_ESCAPES.get(c) or (f"\\u{ord(c):04x}" if c < " " else c) for c in text) + '"'


def double_text(value: float) -> str:
    """A double as MySQL prints it inside JSON: shortest digits that read back the same, `.0` behind whole numbers."""
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    assert isinstance(exponent, int), "JSON holds finite numbers only"
    before_point = len(digits) + exponent if value else 1
    if -_MOST_DIGITS < before_point <= max(_MOST_DIGITS, len(digits) - 1):
        text = f"{Decimal(repr(value)):f}"
        return text if "." in text else text + ".0"
    figures = "".join(map(str, digits))
    mantissa = figures[0] + ("." + figures[1:] if figures[1:] else "")
    return f"{'-' if sign else ''}{mantissa}e{before_point - 1}"


def _opaque(code: int, data: bytes) -> str:
    if code == 246:
        return _decimal(data)
    if code in (7, 10, 11, 12, 17, 18, 19):
        return _temporal(code, struct.unpack("<q", data)[0])
    return f'"base64:type{code}:{base64.b64encode(data).decode()}"'


def _decimal(data: bytes) -> str:
    precision, scale = data[0], data[1]
    integral = precision - scale
    raw = bytearray(data[2:])
    positive = raw[0] & 0x80
    raw[0] ^= 0x80
    if not positive:
        raw = bytearray(byte ^ 0xFF for byte in raw)
    text, at = "", 0
    for n in [integral % 9] + [9] * (integral // 9) + [9] * (scale // 9) + [scale % 9]:
        if n:
            text += f"{int.from_bytes(raw[at : at + _DIGIT_BYTES[n]], 'big'):0{n}d}"
            at += _DIGIT_BYTES[n]
    number = Decimal(int(text or "0")).scaleb(-scale)
    return f"{'' if positive else '-'}{number:f}"


def _temporal(code: int, packed: int) -> str:
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    micros, whole = packed & 0xFFFFFF, packed >> 24
    if code in (11, 19):
        return f'"{sign}{whole >> 12 & 1023:02}:{whole >> 6 & 63:02}:{whole & 63:02}.{micros:06}"'
    day, clock = whole >> 17, whole & 0x1FFFF
    date = f"{(day >> 5) // 13:04}-{(day >> 5) % 13:02}-{day & 31:02}"
    if code == 10:
        return f'"{date}"'
    return f'"{date} {clock >> 12:02}:{clock >> 6 & 63:02}:{clock & 63:02}.{micros:06}"'
