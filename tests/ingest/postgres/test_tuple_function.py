"""Decoders of tuples: a plain loop, and functions that are generated for tables with many changes."""

from __future__ import annotations

import base64
import struct
from random import Random

import pytest

from ingest.postgres.column_types import PLAIN, PgType, PgTypes, text
from ingest.postgres.messages import LoggedRelation, RelationColumn
from ingest.postgres.relations import GENERATED_AFTER, RelationRows, tuple_function

# by type: a text of the server, and its canonical value
VALUES = {
    "bool": (b"t", True), "int4": (b"-12", -12), "int8": (b"9223372036854775807", 2**63 - 1),
    "float8": (b"-0.1", -0.1), "date": (b"2015-01-06", "2015-01-06Z"),
    "timestamp": (b"2020-02-29 23:59:59.000011", "2020-02-29T23:59:59.000011Z"),
    "timestamptz": (b"2020-02-29 23:59:59+00", "2020-02-29T23:59:59Z"),
    "time": (b"24:00:00", "24:00:00"), "uuid": (b"aa", "aa"), "jsonb": ('{"ä": 1}'.encode(), '{"ä": 1}'),
    "bytea": (b"\\x00ffAB", base64.b64encode(b"\x00\xff\xab").decode()),
}  # fmt: skip


def tuple_of(values: list[bytes | str]) -> bytes:
    """Return a tuple. `n` stands for NULL, `u` for a value that the server omits."""
    said = (v.encode() if isinstance(v, str) else b"t" + struct.pack(">I", len(v)) + v for v in values)
    return struct.pack(">H", len(values)) + b"".join(said)


@pytest.fixture
def rows() -> RelationRows:
    """Return the decoder of a table that has a column of each type."""
    types = PgTypes(lambda: [PgType(oid=oid, name=name) for oid, name in enumerate(VALUES)])
    columns = tuple(RelationColumn(f'{name} "{{\n', oid, -1, False) for oid, name in enumerate(VALUES))
    return RelationRows(LoggedRelation(1, "public", "t", "d", columns), types)


@pytest.mark.parametrize("omits", [False, True])
def test_every_pattern_with_and_without_a_generated_function(rows: RelationRows, omits: bool) -> None:
    random = Random(7)
    decoders = set()
    for _ in range(GENERATED_AFTER + 500):
        decoders.add(rows.row)
        logged = list[bytes | str]()
        wanted = {}
        for name, (value, canonical) in VALUES.items():
            kind = random.choice("tttn" + "u" * omits)
            logged.append(value if kind == "t" else kind)
            if kind != "u":
                wanted[f'{name} "{{\n'] = canonical if kind == "t" else None
        data = b"before" + tuple_of(logged)
        assert rows.row(data + b"after", 6) == (wanted, len(data))
        assert list(rows.row(data, 6)[0]) == list(wanted)
    assert len(decoders) == 2


@pytest.mark.parametrize(
    ("kind", "value", "why"),
    [
        ("bytea", b"abc", "not in hexadecimal"), ("bytea", b"\\x0", "Odd"), ("bytea", b"\\xgg", "Non-hexadecimal"),
        ("timestamp", b"infinity", "infinity is not a time"), ("timestamp", b"0001-01-01 00:00:00 BC", "BC is not"),
        ("timestamptz", b"2020-01-01 00:00:00+01", "is not a time"), ("int4", b"", "invalid literal"),
        ("timestamptz", b"10000-01-01 00:00:00+00", "is not a time"), ("jsonb", b"\xff", "can't decode"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("omitted", [[], ["u"]])
def test_a_value_without_canonical_form(kind: str, value: bytes, why: str, omitted: list[bytes | str]) -> None:
    row_of = tuple_function((("v", PLAIN[kind][1]), *(("o", text) for _ in omitted)))
    with pytest.raises(ValueError, match=why):
        row_of(tuple_of([value, *omitted]), 0)


def test_a_table_without_columns() -> None:
    assert tuple_function(())(tuple_of([]), 0) == ({}, 2)
