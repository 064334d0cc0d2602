"""Binary JSON: written documents equal a server's, and the fast readers return the same as the plain one."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ingest.binlog import JSON_NULL, BinlogPosition, BinlogReader, RowBatch, open_reader
from ingest.binlog.format.codes import ColumnType as T
from ingest.binlog.format.errors import UndecodableValue
from ingest.binlog.format.gtid import GtidSet
from ingest.binlog.json.document import document_reader, layout_reader
from ingest.binlog.json.encode import encode_json
from ingest.binlog.json.jsonb import decode_json
from ingest.binlog.json.layout import JsonLayouts
from ingest.binlog.rows import rowcode
from ingest.binlog.transports.file_transport import FileTransport
from ingest.binlog.writer.file_writer import BinlogFile
from ingest.binlog.writer.writer import BinlogWriter
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.test_writer import NOW, column, replay

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=200)
    | st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12)
)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner, max_size=5)
)


def shown(value: Any) -> str:
    """Return a text that distinguishes 1, 1.0 and True, and does not depend on the order of keys."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key!r}:{shown(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(shown, value)) + "]"
    return repr(value)


@settings(max_examples=200, deadline=None)
@given(DOCUMENTS)
def test_written_values_are_read_back(value: Any) -> None:
    """Every document is read back with the same values and types; a null document is JSON's null."""
    expected = JSON_NULL if value is None else value
    assert shown(decode_json(encode_json(value))) == shown(expected)


def test_documents_beyond_64_kib_have_large_containers() -> None:
    """If two bytes are too few for offsets, four are used: at the limit, beyond it, and for nested values."""
    for count in (21_000, 65_520, 65_536, 70_000):
        value = {"few": [1, -1, 70_000], "many": list(range(count)), "text": "x" * count}
        document = encode_json(value)
        assert document[0] == 0x01
        assert decode_json(document) == value
    for size in range(65_480, 65_530):
        assert decode_json(encode_json(["y" * size])) == ["y" * size]
    with pytest.raises(ValueError, match="not a JSON number"):
        encode_json([float("nan")])
    with pytest.raises(ValueError, match="nested more than 100"):
        encode_json(json.loads("[" * 101 + "]" * 101))


def varied(rng: Random, value: Any) -> Any:
    """Return a document of the same shape; most strings keep their length, some keep their text."""
    if isinstance(value, dict):
        return {key: varied(rng, item) for key, item in value.items()}
    if isinstance(value, list):
        return [varied(rng, item) for item in value]
    if isinstance(value, bool) or value is None:
        return rng.choice((True, False, None))
    if isinstance(value, str):
        return value if rng.random() < 0.3 else "".join(rng.choice("abcé") for _ in value)
    if isinstance(value, int):
        return rng.randrange(max(1, abs(value)) + 1)
    return Decimal(rng.randrange(10**6)).scaleb(-2) if isinstance(value, Decimal) else rng.random()


def outcome(read: Callable[[bytes], Any], document: bytes) -> str:
    try:
        return shown(read(document))
    except (ValueError, IndexError, KeyError, struct.error):
        return "refused"  # the reader may report either of two damages first


@pytest.mark.long
@settings(max_examples=20, deadline=None)
# a key whose damaged length exceeds the document, and from which a reader has learned its layout
@example({"\x80": None}, 0)
@given(DOCUMENTS, st.integers(0, 1 << 30))
def test_readers_with_learned_layouts_equal_the_plain_one(value: Any, seed: int) -> None:
    """Whatever a column's reader has learned from earlier documents, the next one is read correctly, or refused as
    before."""
    read, rng = document_reader(), Random(seed)
    for number in range(400):
        document = encode_json(varied(rng, value))
        if number % 10 == 9:
            damaged = bytearray(document)
            for _ in range(rng.randrange(1, 3)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            document = bytes(damaged)
        assert outcome(read, document) == outcome(decode_json, document), document.hex()


def test_layouts_are_learned_and_dropped() -> None:
    """Similar documents are read by a layout; a column whose documents change shape learns another one or stops."""
    layouts, other = layout_reader()

    def read(document: bytes) -> bool:
        function = layouts.get(len(document))
        value = function(document, 0) if function else None
        expected = decode_json(document)
        if value == expected:
            return True
        assert other(document) == expected
        return False

    alike = [
        encode_json({"id": number % 30_000, "name": "fixed", "of": [f"{number:05d}", True]}) for number in range(400)
    ]
    assert sum(map(read, alike)) > 380
    other_shape = [
        encode_json({"id": number % 30_000, "name": "field", "on": [f"{number:05d}", 1]}) for number in range(1500)
    ]
    assert {len(document) for document in other_shape} == {len(alike[0])}
    assert sum(map(read, other_shape)) > 900
    # Two strings whose lengths add up to a constant: no layout fits more than one in ten.
    mixed = [encode_json(["a" * (number % 10), "b" * (10 - number % 10)]) for number in range(2000)]
    assert sum(map(read, mixed)) < 800
    assert len(mixed[0]) not in layouts


DOCUMENT_TEXTS = [
    "null", "true", '"text"', "0", "-1", "32768", "-32769", "65536", "3000000000", "4294967295", "4294967296",
    "-4294967296", "9223372036854775807", "-9223372036854775808", "18446744073709551615", "0.5", "[]",
    "{}", '{"b": 1, "a": [1, -70000, {"größe": "ü", "x": null}], "aa": "' + "long " * 60 + '"}',
    json.dumps({f"k{number}": number * 1000 for number in range(300)}),
    json.dumps(["z" * 40_000, "w" * 40_000, 70_000, 1]),
]  # fmt: skip


@pytest.mark.integration
def test_documents_are_written_as_the_server_writes_them(
    mysql80: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own bytes of each document equal ours, and it replays ours to the same documents."""
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata=FULL")
        cursor.execute("FLUSH BINARY LOGS")
        start = BinlogPosition(file=mysql80.binlogs()[-1].name)
        cursor.execute("CREATE DATABASE documents CHARACTER SET utf8mb4")
        cursor.execute("CREATE TABLE documents.t (id INT NOT NULL PRIMARY KEY, doc JSON)")
        for number, text in enumerate(DOCUMENT_TEXTS):
            cursor.execute("INSERT INTO documents.t VALUES (%s, %s)", (number, text))
        cursor.execute("INSERT INTO documents.t VALUES (99, JSON_ARRAY(CAST('-12.340' AS DECIMAL(10,3)), 1e0))")
        session.commit()
        cursor.execute("SELECT id, doc FROM documents.t ORDER BY id")
        before = cursor.fetchall()
    raw: list[bytes] = []

    def recorder() -> Any:
        def read(document: bytes) -> Any:
            raw.append(document)
            return decode_json(document)

        return JsonLayouts(), read

    with monkeypatch.context() as patch:
        patch.setattr(rowcode, "layout_reader", recorder)
        rows = [
            row
            for change in open_reader(f"{mysql80.uri}?follow=0", start).changes()
            if isinstance(change, RowBatch) and change.decoder.table.name == "documents.t"
            for row in change.rows
        ]
    assert len(rows) == len(raw) == len(DOCUMENT_TEXTS) + 1
    # Only SQL produces exact numbers; the server stores them with more leading zeros than needed.
    assert [encode_json(row["doc"]) for row in rows[:-1]] == raw[:-1]
    assert decode_json(encode_json(rows[-1]["doc"])) == rows[-1]["doc"] == [Decimal("-12.340"), 1.0]
    columns = [column(0, "id", T.LONG, unsigned=False, nullable=False), column(1, "doc", T.JSON, size=4)]
    path, writer = tmp_path / "documents.000001", BinlogWriter(server_id=9)
    with BinlogFile(path, writer) as file:
        file.append(writer.begin(NOW, GtidSet()))
        file.append(writer.gtid("11111111-2222-3333-4444-777777777777", 1, NOW))
        file.append(writer.query("documents", "BEGIN", NOW))
        file.append(writer.table_map(43, "documents", "t", columns, NOW, primary_key=[0]))
        file.append(writer.rows("insert", 43, columns, rows, NOW))
        file.append(writer.xid(1, NOW))
    assert [
        row
        for change in BinlogReader(FileTransport(path)).changes()
        if isinstance(change, RowBatch)
        for row in change.rows
    ] == rows
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("TRUNCATE documents.t")
    replay(mysql80, path)
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("SELECT id, doc FROM documents.t ORDER BY id")
        assert cursor.fetchall() == before


def test_an_invalid_document_is_refused_by_name() -> None:
    """A value that JSON cannot represent raises an error that names the column."""
    columns = [column(0, "doc", T.JSON, size=4)]
    with pytest.raises(UndecodableValue, match=r"doc: .* does not fit JSON"):
        BinlogWriter().rows("insert", 1, columns, [{"doc": {1: 2}}], NOW)
