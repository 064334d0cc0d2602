"""Geometries in three forms: bytes of MySQL, Debezium's struct in the log, and text (EWKT) in later stages.

    bytes of MySQL and MariaDB   SRID (4 bytes, little-endian), then WKB: what columns, binlogs and `HEX(g)` contain
    struct of the log            {"wkb": base64, "srid": number or null}; a POINT has "x" and "y" in front
    EWKT                         "SRID=4326;POINT(2.35 48.85)", without the first part where the SRID is 0

Coordinates keep the order in which the server stores them: x is the longitude if the SRID is a geographic one. (For
such an SRID, MySQL 8 prints the latitude first; MariaDB does not.) Numbers are written with the fewest digits that read
back as the same number. Sources: OGC Simple Features 06-103r4 (WKB, WKT); Debezium's `io.debezium.data.geometry`.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from cdc.model.types import Struct

_HEADER = struct.Struct("<I")
_POINT = struct.Struct("<BIdd")
_NAMES = {
    1: "POINT", 2: "LINESTRING", 3: "POLYGON", 4: "MULTIPOINT", 5: "MULTILINESTRING", 6: "MULTIPOLYGON",
    7: "GEOMETRYCOLLECTION",
}  # fmt: skip
_HAS_SRID = 0x20000000  # EWKB's flag in WKB that PostGIS wrote
_DEEPEST = 32
_LEAST, _MOST = Decimal("1e-15"), Decimal("1e15")  # numbers in between are written without an exponent
_SRID = re.compile(r"SRID=(\d+);")
_EWKT_POINT = re.compile(r"(?:SRID=(\d+);)?POINT\((\S+) (\S+)\)")


class NoGeometry(ValueError):
    """Raised for bytes or a struct that are not a geometry, or one that cannot be written as text."""


def struct_of(stored: bytes, *, point: bool) -> Struct:
    """Return the struct of a geometry as a column stores it. `point`: the column's type is POINT, so add `x` and `y`.

    Raises NoGeometry for bytes that are no geometry.
    """
    if len(stored) < 9:
        raise NoGeometry(f"{len(stored)} bytes are not a geometry")
    srid, wkb = _HEADER.unpack_from(stored)[0], stored[4:]
    shown: Struct = {"wkb": base64.b64encode(wkb).decode(), "srid": srid or None}
    if not point:
        return shown
    x, y = _xy(wkb)
    return {"x": x, "y": y, **shown}


def point_of(x: float, y: float, srid: int = 0) -> Struct:
    """Return the struct of a point. Raises NoGeometry if a coordinate is not finite."""
    return struct_of(_HEADER.pack(srid) + _POINT.pack(1, 1, x, y), point=True)


def stored_of(value: Mapping[str, Any]) -> bytes:
    """Return the bytes that a column stores for a struct; inverse of `struct_of`. Raises NoGeometry if it is no
    geometry."""
    srid, wkb = value.get("srid"), value.get("wkb")
    if not isinstance(wkb, str) or not (srid is None or (type(srid) is int and 0 <= srid < 1 << 32)):
        raise NoGeometry("no wkb, or no srid")
    try:
        return _HEADER.pack(srid or 0) + base64.b64decode(wkb, validate=True)
    except ValueError as error:
        raise NoGeometry("its wkb is not base64") from error


def ewkt_of(value: Mapping[str, Any]) -> str:
    """Return a struct's geometry as EWKT. Raises NoGeometry if it is no geometry, or has more than two dimensions."""
    stored = stored_of(value)
    srid = _HEADER.unpack_from(stored)[0]
    try:
        text, at, own = _text(stored, 4, 0, named=True)
    except (struct.error, IndexError) as error:
        raise NoGeometry("its wkb ends too early") from error
    if at != len(stored):
        raise NoGeometry("its wkb has more bytes than its geometry")
    srid = srid or own
    return f"SRID={srid};{text}" if srid else text


def wkt_of(ewkt: str) -> str:
    """Return the WKT of an EWKT: the text without its SRID."""
    return _SRID.sub("", ewkt, count=1)


def location_of(ewkt: str) -> tuple[float, float] | None:
    """Return (latitude, longitude) of an EWKT point on earth: its SRID is 4326 or missing, and it is within the bounds.

    Returns None for every other geometry, because coordinates of a plane are not locations.
    """
    found = _EWKT_POINT.fullmatch(ewkt)
    if found is None or int(found[1] or 0) not in (0, 4326):
        return None
    x, y = float(found[2]), float(found[3])
    return (y, x) if abs(x) <= 180 and abs(y) <= 90 else None


def _xy(wkb: bytes) -> tuple[float, float]:
    """Return the coordinates of a WKB point as servers store it. Raises NoGeometry for anything else."""
    if len(wkb) != _POINT.size or wkb[:5] != b"\1\1\0\0\0":
        raise NoGeometry("its wkb is not a point")
    _, _, x, y = _POINT.unpack(wkb)
    if not (math.isfinite(x) and math.isfinite(y)):
        raise NoGeometry("a point whose coordinates are not finite")
    return x, y


def _text(data: bytes, at: int, depth: int, *, named: bool) -> tuple[str, int, int]:
    """Return the WKT of the WKB at an offset, the offset of its end, and the SRID that it contains."""
    if depth > _DEEPEST:
        raise NoGeometry("nested too deep")
    order = "<" if data[at] == 1 else ">"
    (code,) = struct.unpack_from(order + "I", data, at + 1)
    at += 5
    srid = 0
    if code & _HAS_SRID:
        (srid,) = struct.unpack_from(order + "I", data, at)
        code, at = code & ~_HAS_SRID, at + 4
    name = _NAMES.get(code)
    if name is None:
        raise NoGeometry(f"wkb of type {code}")
    if name == "POINT":
        x, y = struct.unpack_from(order + "dd", data, at)
        body, at = f"({number(x)} {number(y)})", at + 16
    elif name == "LINESTRING":
        body, at = _line(data, at, order)
        body = " EMPTY" if body == "EMPTY" else body
    else:
        (count,) = struct.unpack_from(order + "I", data, at)
        at += 4
        parts = []
        for _ in range(count):
            if name == "POLYGON":
                part, at = _line(data, at, order)
            else:
                part, at, _ = _text(data, at, depth + 1, named=name == "GEOMETRYCOLLECTION")
            parts.append(part)
        body = f"({','.join(parts)})" if parts else " EMPTY"
    return (name + body if named else body.lstrip()), at, srid


def _line(data: bytes, at: int, order: str) -> tuple[str, int]:
    (count,) = struct.unpack_from(order + "I", data, at)
    at += 4
    if count * 16 > len(data) - at:
        raise NoGeometry("its wkb ends too early")
    found = struct.unpack_from(f"{order}{2 * count}d", data, at)
    points = ",".join(f"{number(x)} {number(y)}" for x, y in zip(found[::2], found[1::2], strict=True))
    return (f"({points})" if points else "EMPTY"), at + 16 * count


def number(value: float) -> str:
    """Format a coordinate with the fewest digits that read back as the same number, exactly as `kernel/log/Wkt.java`
    does."""
    if not math.isfinite(value):
        return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
    sign = "-" if math.copysign(1, value) < 0 else ""
    written = Decimal(repr(abs(value))).normalize()
    if not written:
        return sign + "0"
    if _LEAST <= written < _MOST:
        return f"{sign}{written:f}"
    _, digits, exponent = written.as_tuple()
    assert isinstance(exponent, int), "it is finite"
    text = "".join(map(str, digits))
    return f"{sign}{text[0]}{'.' if len(text) > 1 else ''}{text[1:]}e{exponent + len(text) - 1}"
