"""Geometries in all forms: bytes of the servers, Debezium's struct, EWKT, a location on earth."""

from __future__ import annotations

import base64
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdc.model.geometry import NoGeometry, ewkt_of, location_of, number, point_of, stored_of, struct_of, wkt_of

# Stored by MySQL 8.0: SELECT HEX(ST_GeomFromText('…', srid)).
STORED = [
    ("E6100000010100000000000000000034400000000000002440", "SRID=4326;POINT(20 10)"),
    ("00000000010700000000000000", "GEOMETRYCOLLECTION EMPTY"),
    (
        "000000000102000000020000000000000000000000000000000000000000000000000000000000000000000000",
        "LINESTRING(0 0,0 0)",
    ),
]


@pytest.mark.parametrize(("stored", "text"), STORED)
def test_what_servers_store_has_a_text(stored: str, text: str) -> None:
    """Every stored geometry has a text, without any loss."""
    raw = bytes.fromhex(stored)
    value = struct_of(raw, point=False)
    assert ewkt_of(value) == text
    assert stored_of(value) == raw
    assert list(value) == ["wkb", "srid"]


def test_a_point_is_debeziums() -> None:
    """A point has x and y in front, and no SRID if it is 0."""
    value = point_of(2.35, -0.0)
    assert (list(value), value["srid"], value["x"]) == (["x", "y", "wkb", "srid"], None, 2.35)
    assert struct_of(stored_of(value), point=True) == value
    assert ewkt_of(value) == "POINT(2.35 -0)"


def wkb(order: str, code: int, *parts: bytes) -> str:
    """Return WKB of a type with this content, in base64."""
    head = struct.pack(f"{order}BI", order == "<", code)
    return base64.b64encode(head + b"".join(parts)).decode()


def raw(order: str, code: int, *parts: bytes) -> bytes:
    """Return the same as bytes."""
    return base64.b64decode(wkb(order, code, *parts))


def test_both_byte_orders_and_every_type() -> None:
    """PostGIS writes the SRID into its WKB. Each part of a collection has its own byte order."""
    for order in "<>":
        pair, one = struct.pack(f"{order}dd", 1.5, 2), struct.pack(f"{order}I", 1)
        ring = one + struct.pack(f"{order}I", 2) + pair + pair
        point, line = raw(order, 1, pair), raw(order, 2, one, pair)
        other = raw("<" if order == ">" else ">", 1, struct.pack("<dd" if order == ">" else ">dd", 3, 4))
        texts = {
            wkb(order, 1, pair): "POINT(1.5 2)",
            wkb(order, 0x20000001, struct.pack(f"{order}I", 4326), pair): "SRID=4326;POINT(1.5 2)",
            wkb(order, 2, struct.pack(f"{order}I", 0)): "LINESTRING EMPTY",
            wkb(order, 3, ring): "POLYGON((1.5 2,1.5 2))",
            wkb(order, 4, one, point): "MULTIPOINT((1.5 2))",
            wkb(order, 5, one, line): "MULTILINESTRING((1.5 2))",
            wkb(order, 6, one, raw(order, 3, ring)): "MULTIPOLYGON(((1.5 2,1.5 2)))",
            wkb(order, 7, struct.pack(f"{order}I", 2), other, line): "GEOMETRYCOLLECTION(POINT(3 4),LINESTRING(1.5 2))",
        }
        assert {text: ewkt_of({"wkb": text}) for text in texts} == texts


@pytest.mark.parametrize(
    "value",
    [
        {}, {"wkb": None}, {"wkb": "AQ"}, {"wkb": "AQEAAAA="}, {"wkb": wkb("<", 8)}, {"wkb": wkb("<", 1001)},
        {"wkb": wkb("<", 2, b"\xff\xff\xff\xff")}, {"wkb": wkb("<", 1, bytes(17))},
        {"wkb": wkb("<", 1, bytes(16)), "srid": 1.5},
        {"wkb": wkb("<", 7, b"\xff\xff\xff\xff")}, {"wkb": base64.b64encode(raw("<", 7, b"\1\0\0\0") * 50).decode()},
    ],
)  # fmt: skip
def test_an_invalid_geometry_is_refused(value: dict[str, Any]) -> None:
    """A value that is not a geometry is refused and never becomes another one."""
    with pytest.raises(NoGeometry):
        ewkt_of(value)


@pytest.mark.parametrize("stored", [b"", bytes(8), bytes(25), struct.pack("<IBIdd", 0, 1, 1, float("nan"), 0)])
def test_an_invalid_point_is_refused(stored: bytes) -> None:
    """A point without finite coordinates is refused, because JSON cannot represent them."""
    with pytest.raises(NoGeometry):
        struct_of(stored, point=True)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_read_back(value: float) -> None:
    """Numbers are written with as many digits as needed, and no more."""
    text = number(value)
    assert struct.pack("d", float(text)) == struct.pack("d", value)
    assert len(text.replace("-", "").partition("e")[0].replace(".", "").strip("0")) <= 17


@pytest.mark.parametrize(
    ("ewkt", "place"),
    [
        ("POINT(2.35 48.85)", (48.85, 2.35)), ("SRID=4326;POINT(-180 90)", (90.0, -180.0)),
        ("SRID=3857;POINT(1 2)", None), ("POINT(181 0)", None), ("POINT(0 90.5)", None), ("POINT(nan 0)", None),
        ("LINESTRING(1 2,3 4)", None), ("GEOMETRYCOLLECTION(POINT(1 2))", None),
    ],
)  # fmt: skip
def test_a_place_on_earth(ewkt: str, place: tuple[float, float] | None) -> None:
    """A location has the latitude first, as in Solr; nothing else is a location."""
    assert location_of(ewkt) == place
    assert wkt_of(ewkt) == ewkt.rpartition(";")[2]
