"""Rows that are written directly from packets equal those that are read value by value."""

from __future__ import annotations

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pymysql.constants import FIELD_TYPE, FLAG

from cdc.model.schema import Column, TableId, TableSchema
from ingest.binlog.format.canonical import Unrepresentable, json_text, tokens_text
from ingest.events.log_events import RefusedImage
from ingest.events.values import image_of, readers_of
from ingest.mysql.row_packets import ResultColumn, packet_reader, packet_rows
from ingest.records.records import Recorder

TABLE = TableId(source="s", database="d", table="t")
# column type, type in a result, flags, encoding, texts of the server
KINDS: list[tuple[str, int, int, str | None, list[bytes]]] = [
    ("int unsigned", FIELD_TYPE.LONG, 0, "ascii", [b"0", b"4294967295"]),
    ("int", FIELD_TYPE.LONG, 0, "ascii", [b"-7"]),
    ("int(5) unsigned zerofill", FIELD_TYPE.LONG, FLAG.ZEROFILL, "ascii", [b"00042"]),
    ("bigint unsigned", FIELD_TYPE.LONGLONG, 0, "ascii", [b"18446744073709551615"]),
    ("year", FIELD_TYPE.YEAR, 0, "ascii", [b"0000", b"2024"]),
    ("decimal(12,2)", FIELD_TYPE.NEWDECIMAL, 0, "ascii", [b"-500000.00", b"0.05"]),
    ("decimal(8,2) unsigned zerofill", FIELD_TYPE.NEWDECIMAL, FLAG.ZEROFILL, "ascii", [b"000007.50"]),
    ("float", FIELD_TYPE.DOUBLE, 0, "ascii", [b"1e-30", b"-0", b"16777216"]),
    ("double", FIELD_TYPE.DOUBLE, 0, "ascii", [b"1e300", b"0.1", b"123456789012345680"]),
    ("date", FIELD_TYPE.DATE, 0, "ascii", [b"2024-02-29", b"0001-01-01", b"0000-00-00", b"2023-02-29"]),
    ("datetime(6)", FIELD_TYPE.DATETIME, 0, "ascii", [b"2024-02-29 10:00:00.120000", b"2020-01-01 00:00:00.000000"]),
    ("datetime", FIELD_TYPE.DATETIME, 0, "ascii", [b"2024-02-29 10:00:10", b"0000-00-00 00:00:00"]),
    ("timestamp", FIELD_TYPE.TIMESTAMP, 0, "ascii", [b"2024-02-29 10:20:00", b"2017-02-31 10:00:00"]),
    ("time(4)", FIELD_TYPE.TIME, 0, "ascii", [b"-12:30:00.0025", b"838:59:58.9000"]),
    ("varchar(9)", FIELD_TYPE.VAR_STRING, 0, "utf8", ['Дом 🐦 "\\\n\x01%'.encode(), b"", b"\xff"]),
    ("longtext", FIELD_TYPE.BLOB, 0, "utf8", [b"x" * 250, b"y" * 251, b"z" * 70_000]),
    ("varbinary(9)", FIELD_TYPE.VAR_STRING, 0, None, [b"\x00\xff", b"", b"%b"]),
    ("enum('a','ü')", FIELD_TYPE.STRING, FLAG.ENUM, "utf8", ["ü".encode()]),
    ("enum('a')", FIELD_TYPE.STRING, FLAG.ENUM, None, [b"a", b"\xff"]),
    ("bit(1)", FIELD_TYPE.BIT, 0, None, [b"\x01", b"\x00"]),
    ("bit(12)", FIELD_TYPE.BIT, 0, None, [b"\x0f\x01"]),
    ("json", FIELD_TYPE.JSON, 0, "utf8", [b'{"a": [1, 1e20, "b, c: d"], "e": true}', b'"\\" x"', b"1e3"]),
    ("vector(2)", FIELD_TYPE.LONG_BLOB, 0, "utf8", [b"0000803F00000040"]),
    ("point", FIELD_TYPE.GEOMETRY, 0, None, [bytes(4) + b"\x01\x01" + bytes(19)]),
]
# a text where the result has another type than the column: the table was altered
CHANGED = [("int", FIELD_TYPE.VAR_STRING, 0, "utf8", [b"abc"]), ("decimal(3,1)", FIELD_TYPE.LONG, 0, "ascii", [b"07"])]


def packet(values: list[bytes | None]) -> bytes:
    """Return the packet of a row in MySQL's text protocol."""
    found = b""
    for value in values:
        if value is None:
            found += b"\xfb"
        elif len(value) < 251:
            found += bytes([len(value)]) + value
        elif len(value) < 1 << 16:
            found += b"\xfc" + len(value).to_bytes(2, "little") + value
        else:
            found += b"\xfd" + len(value).to_bytes(3, "little") + value
    return found


def compared(kinds: list[Any], values: list[bytes | None]) -> None:
    """Compare a row in both ways. The first column is the key, after a name that contains a percent sign."""
    columns = tuple(Column(name=f"c%{n}", column_type=kind[0]) for n, kind in enumerate(kinds))
    schema = TableSchema(table_id=TABLE, columns=columns, primary_key=("c%1", "c%0"), version=1)
    shown = tuple(ResultColumn(*kind[1:4]) for kind in kinds)
    read = packet_reader(len(columns))(packet([*values, b"more"]))
    assert read == tuple(values)
    encodings = [kind[3] for kind in kinds]
    texts = [v.decode(e, "replace") if e and v is not None else v for e, v in zip(encodings, values, strict=True)]
    try:
        row = packet_rows(schema, shown)(read)
    except Unrepresentable:
        assert isinstance(image_of(readers_of(schema), tuple(texts)), RefusedImage)
    except ValueError:
        with pytest.raises(ValueError, match="codec"):
            [v.decode(e) for e, v in zip(encodings, values, strict=True) if e and v is not None]
    else:
        image = image_of(readers_of(schema), tuple(texts))
        assert not isinstance(image, RefusedImage)
        assert row.image == orjson.dumps(image)
        assert row.key == Recorder("top").writer(schema).key(image)


@given(st.data())
def test_both_ways_write_the_same_bytes(data: st.DataObject) -> None:
    """Every type, with NULL, long values, and values without a canonical form."""
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=2, max_size=8))
    compared(kinds, [data.draw(st.none() | st.sampled_from(kind[4])) for kind in kinds])


@pytest.mark.parametrize("kind", CHANGED)
def test_a_value_of_another_type_is_never_taken_as_a_number(kind: Any) -> None:
    """The table may have been altered since its columns were read."""
    schema = TableSchema(
        table_id=TABLE, columns=(Column(name="c", column_type=kind[0]),), primary_key=("c",), version=1
    )
    try:
        row = packet_rows(schema, (ResultColumn(*kind[1:4]),))([kind[4][0]])
    except ValueError:
        return
    assert json.loads(row.image)["c"] == "7"


texts = st.text(st.sampled_from('ab"\\ :,\n\t e1é\u2028'), max_size=6)
documents = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
)


@given(documents, st.sampled_from([(", ", ": "), (",", ":"), (" ,\n", "\t: ")]), st.booleans())
def test_blanks_of_json_are_removed_outside_of_texts(document: Any, signs: tuple[str, str], ascii_only: bool) -> None:
    """Texts stay as they are; numbers lose exponents of moderate size, and keep their value."""
    text = json.dumps(document, separators=signs, ensure_ascii=ascii_only)
    found = json_text(text)
    assert json.loads(found) == document
    assert len(found) <= len(json.dumps(document, separators=(",", ":"), ensure_ascii=ascii_only)) or "e" in text
    assert json_text(found) == found == tokens_text(text)


@given(st.text(st.sampled_from('"\\ ,:\n1eE.-truefalse[]{}'), max_size=12))
def test_a_text_that_is_not_json_is_changed_alike(text: str) -> None:
    """MariaDB checks JSON only if the table says so."""
    assert json_text(text) == tokens_text(text)
