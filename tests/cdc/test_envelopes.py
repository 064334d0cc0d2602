"""Golden files: the bytes of each format are fixed, and are read back as they were written.

`tests/joins/test_poison.py` compares the same files with both readers of the join. To change a format on purpose, run
`python -m tests.cdc.test_envelopes`, and read the difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from cdc.formats.debezium import from_envelope, to_envelope
from cdc.formats.debezium_bytes import NULL, EnvelopeWriter
from cdc.model.event import Position
from cdc.model.schema import TableId

GOLDEN = Path(__file__).parents[1] / "data" / "envelopes" / "debezium.jsonl"
TABLE = TableId(source="shop", database="shop", table="t")
ROW: dict[str, Any] = {
    "id": 7, "tiny": -3, "big": 2**40, "huge": 2**64 - 1, "price": "2.99", "whole": "12", "name": 'a "ü" \\ 😀\n%d',
    "f": 1.5, "b": True, "day": "2026-01-31Z", "at": "2026-01-31T10:00:00.500Z", "took": "-12:30:00",
    "doc": '{"a": 1}', "raw": "AAEC", "ref": 3, "unused": 5,
}  # fmt: skip
NOTHING = {name: value if name == "id" else None for name, value in ROW.items()}


def written() -> list[bytes]:
    """Return a change of every kind."""
    writer = EnvelopeWriter("law", TABLE, "mysql")
    gtid, file = b'"3e11fa47-71ca-11e1-9e33-c80aa9429562:23"', b'"binlog.000002"'
    source = writer.logged(1_767_225_600_123, 42, gtid, file, 1234)
    partial = writer.logged(1_767_225_600_123, 42, NULL, file, 1234, partial=True)
    position = Position(file="binlog.000002", pos=1234, gtid_set="", sequence=8)
    read, read_again = writer.read(1_767_225_600_123, position), writer.read(1, position, partial=True)
    row, nothing, now = orjson.dumps(ROW), orjson.dumps(NOTHING), 1_767_225_600_999
    return [
        writer.change(b"c", NULL, row, source, 0, 9, now, gtid, 1, 1),
        writer.change(b"u", row, nothing, source, 1, 10, now, gtid, 2, 2),
        writer.change(b"d", nothing, NULL, source, 2, 11, now, gtid, 3, 3),
        writer.change(b"u", nothing, row, partial, 3, 2**62 - 1, now, b'"binlog.000002:1234"', 4, 4),
        writer.change(b"t", NULL, NULL, source, 4, 12, now, gtid, 5, 5),
        writer.alone(b"r", NULL, row, read, 0, 8, now),
        writer.alone(b"r", NULL, nothing, read_again, 0, 8, now),
        writer.alone(b"d", row, NULL, read_again, 0, 13, now),
        writer.alone(b"t", NULL, NULL, read, 0, 14, now),
    ]


def test_the_bytes_of_a_change_are_these() -> None:
    """The bytes of a change are stable, key for key, so that consumers of the topics keep working."""
    assert written() == GOLDEN.read_bytes().splitlines()


def test_they_are_the_envelopes_that_the_plain_way_makes() -> None:
    """The fast writer and `to_envelope` write the same format."""
    for value in GOLDEN.read_bytes().splitlines():
        assert orjson.dumps(to_envelope(from_envelope(orjson.loads(value)), "law")) == value


if __name__ == "__main__":
    GOLDEN.write_bytes(b"".join(value + b"\n" for value in written()))
