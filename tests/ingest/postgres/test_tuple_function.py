"""Generated decoders of tuples: for every pattern of values, NULLs and omitted columns, the same as a plain loop."""

from __future__ import annotations

import base64
import struct
from random import Random

import pytest

from ingest.postgres.column_types import PLAIN, Read, text
from ingest.postgres.relations import tuple_function

# by type: a text of the server, and its canonical value
VALUES = {
    "bool": (b"t", True), "int4": (b"-12", -12), "int8": (b"9223372036854775807", 2**63 - 1),
    "float8": (b"-0.1", -0.1), "date": (b"2015-01-06", "2015-01-06Z"),
    "timestamp": (b"2020-02-29 23:59:59.000011", "2020-02-29T23:59:59.000011Z"),
    "timestamptz": (b"2020-02-29 23:59:59+00", "2020-02-29T23:59:59Z"),
    "time": (b"24:00:00", "24:00:00"), "uuid": (b"aa", "aa"), "jsonb": ('{"ä": 1}'.encode(), '{"ä": 1}'),
    "bytea": (b"\\x00ffAB", base64.b64encode(b"\x00\xff\xab").decode()),
}  # fmt: skip
COLUMNS: tuple[tuple[str, Read], ...] = tuple((f'{kind} "{{\n', PLAIN[kind][1]) for kind in VALUES)


def tuple_of(values: list[bytes | str]) -> bytes:
    """Return a tuple. `n` stands for NULL, `u` for a value that the server omits."""
    said = (v.encode() if isinstance(v, str) else b"t" + struct.pack(">I", len(v)) + v for v in values)
    return struct.pack(">H", len(values)) + b"".join(said)


@pytest.mark.parametrize("omits", [False, True])
def test_every_pattern(omits: bool) -> None:
    random = Random(7)
    row_of = tuple_function(COLUMNS)
    for _ in range(500):
        logged = list[bytes | str]()
        wanted = {}
        for (name, _), (value, canonical) in zip(COLUMNS, VALUES.values(), strict=True):
            kind = random.choice("tttn" + "u" * omits)
            logged.append(value if kind == "t" else kind)
            if kind != "u":
                wanted[name] = canonical if kind == "t" else None
        data = b"before" + tuple_of(logged)
        assert row_of(data + b"after", 6) == (wanted, len(data))
        assert list(row_of(data, 6)[0]) == list(wanted)


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
