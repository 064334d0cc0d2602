"""Convert canonical values ⇄ HBase bytes, one pair of functions per kind.

Bytes follow HBase's `Bytes.toBytes` (UTF-8, big-endian; decimal = 4-byte scale, then the unscaled integer), so that
Phoenix, Hive, Lily and the HBase shell can read them. Dates are 4-byte days, datetimes 8-byte microseconds since 1970
UTC. A geometry is its EWKT in UTF-8. A list, which `Bytes` does not have, is the sequence of its members' bytes, each
preceded by its length (4 bytes).
"""

from __future__ import annotations

import base64
import datetime as dt
import struct
from collections.abc import Callable

from cdc.model.types import NOT_FINITE, Canonical, Kind, LogicalType, float_of

_EPOCH = dt.datetime(1970, 1, 1)
_EPOCH_DAY = _EPOCH.toordinal()
_MICRO = dt.timedelta(microseconds=1)

Encoder = Callable[[Canonical], bytes]
Decoder = Callable[[bytes], Canonical]


def micros_of(text: str) -> int:
    """Return microseconds since 1970 UTC of a canonical datetime. Raises ValueError if it is not one."""
    if not text.endswith("Z"):
        raise ValueError(f"datetime {text!r} lacks its Z")
    return (dt.datetime.fromisoformat(text[:-1]) - _EPOCH) // _MICRO


def datetime_of(micros: int) -> str:
    """Return the canonical datetime of microseconds since 1970 UTC, without trailing zeros in the fraction."""
    text = (_EPOCH + dt.timedelta(microseconds=micros)).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def _day_of(text: str) -> int:
    if not text.endswith("Z"):
        raise ValueError(f"date {text!r} lacks its Z")
    return dt.date.fromisoformat(text[:-1]).toordinal() - _EPOCH_DAY


def _date_of(day: int) -> str:
    return dt.date.fromordinal(day + _EPOCH_DAY).isoformat() + "Z"


def _decimal_bytes(text: str, scale: int) -> bytes:
    whole, _, fraction = text.partition(".")
    if len(fraction.rstrip("0")) > scale:
        raise ValueError(f"decimal {text!r} has more than {scale} fractional digits")
    unscaled = int(whole + fraction[:scale].ljust(scale, "0"))
    return struct.pack(">i", scale) + unscaled.to_bytes(unscaled.bit_length() // 8 + 1, "big", signed=True)


def _decimal_text(stored: bytes) -> str:
    scale = struct.unpack_from(">i", stored)[0]
    unscaled = int.from_bytes(stored[4:], "big", signed=True)
    sign, digits = "-" if unscaled < 0 else "", str(abs(unscaled)).rjust(scale + 1, "0")
    return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else sign + digits


def _packed(form: str, cast: Callable[[Canonical], object]) -> tuple[Encoder, Decoder]:
    packer = struct.Struct(form)

    def decode(stored: bytes) -> Canonical:
        value: Canonical = packer.unpack(stored)[0]
        return value

    return (lambda value: packer.pack(cast(value))), decode


def _integer(value: Canonical) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not an integer")
    return value


def _float(value: Canonical) -> float:
    if value in NOT_FINITE and isinstance(value, str):
        return float(value)
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


def _floats(form: str) -> tuple[Encoder, Decoder]:
    packer = struct.Struct(form)
    return (lambda value: packer.pack(_float(value))), (lambda stored: float_of(packer.unpack(stored)[0]))


def _text(value: Canonical) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{value!r} is not a string")
    return value


_CODECS: dict[Kind, tuple[Encoder, Decoder]] = {
    "bool": (lambda value: b"\xff" if value else b"\x00", lambda stored: stored != b"\x00"),
    "int8": _packed(">b", _integer),
    "int16": _packed(">h", _integer),
    "int32": _packed(">i", _integer),
    "int64": _packed(">q", _integer),
    "uint64": _packed(">Q", _integer),
    "float32": _floats(">f"),
    "float64": _floats(">d"),
    "date": (
        lambda value: struct.pack(">i", _day_of(_text(value))),
        lambda stored: _date_of(struct.unpack(">i", stored)[0]),
    ),
    "datetime": (
        lambda value: struct.pack(">q", micros_of(_text(value))),
        lambda stored: datetime_of(struct.unpack(">q", stored)[0]),
    ),
    "time": (lambda value: _text(value).encode(), lambda stored: stored.decode()),
    "string": (lambda value: _text(value).encode(), lambda stored: stored.decode()),
    "json": (lambda value: _text(value).encode(), lambda stored: stored.decode()),
    "point": (lambda value: _text(value).encode(), lambda stored: stored.decode()),
    "geometry": (lambda value: _text(value).encode(), lambda stored: stored.decode()),
    "bytes": (
        lambda value: base64.b64decode(_text(value), validate=True),
        lambda stored: base64.b64encode(stored).decode(),
    ),
}
_CODECS["timestamp"] = _CODECS["datetime"]


_LENGTH = struct.Struct(">i")


def _list_encoder(encode: Encoder) -> Encoder:
    def encode_all(value: Canonical) -> bytes:
        if not isinstance(value, list) or None in value:
            raise ValueError(f"{value!r} is not a list without NULL")
        members = [encode(member) for member in value]
        return b"".join(_LENGTH.pack(len(member)) + member for member in members)

    return encode_all


def _list_decoder(decode: Decoder) -> Decoder:
    def decode_all(stored: bytes) -> Canonical:
        members: list[Canonical] = []
        at = 0
        while at < len(stored):
            begin = at + _LENGTH.size
            at = begin + _LENGTH.unpack_from(stored, at)[0]
            if not begin <= at <= len(stored):
                raise ValueError(f"a member ends at byte {at} of {len(stored)}")
            members.append(decode(stored[begin:at]))
        return members  # type: ignore[return-value]  # no decoder of members gives NULL or a list

    return decode_all


def encoder(type_: LogicalType) -> Encoder:
    """Return a function from a canonical value (not None) to bytes. It raises ValueError or struct.error for a value of
    another type."""
    if type_.element is not None:
        return _list_encoder(encoder(type_.element))
    if type_.kind == "decimal":
        return lambda value: _decimal_bytes(_text(value), type_.scale)
    return _CODECS[type_.kind][0]


def decoder(type_: LogicalType) -> Decoder:
    """Return a function from bytes to a canonical value; inverse of `encoder`. It raises ValueError or struct.error for
    bytes of another type."""
    if type_.element is not None:
        return _list_decoder(decoder(type_.element))
    return _decimal_text if type_.kind == "decimal" else _CODECS[type_.kind][1]
