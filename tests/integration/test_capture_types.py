"""Every column type on a real server: snapshot and log yield the same canonical values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest

from cdc.model.event import Row
from cdc.model.schema import TableId, TableSchema
from cdc.model.tls import Tls
from cdc.model.types import Canonical, LogicalType
from cdc.stored.values import decoder, encoder
from cdc.topology.reader import read_topology
from cdc.topology.topology import Table
from ingest.events.log_events import (
    CaughtUp,
    Image,
    RefusedImage,
    RowsLogged,
    RowsQuarantined,
    TableDescribed,
    one_by_one,
)
from ingest.mysql.mysql_connection import connected, query
from ingest.mysql.mysql_source import MySqlSource
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.chunk_requests import Chunk, ChunkRequest
from ingest.records.row_json import EncodedRow
from ingest.run_capture import tables_of
from tailorbird.verify.mysql_tables import read_snapshot
from tailorbird.verify.sql_oracle import answer

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop")]

COLUMNS = """
id INT PRIMARY KEY, ti TINYINT, tu TINYINT UNSIGNED, si SMALLINT, su SMALLINT UNSIGNED, mi MEDIUMINT,
mu MEDIUMINT UNSIGNED, i INT, iu INT UNSIGNED ZEROFILL, bi BIGINT, bu BIGINT UNSIGNED, y YEAR, f FLOAT, d DOUBLE,
de DECIMAL(12,2), dz DECIMAL(20,0), df DECIMAL(5,5), du DECIMAL(30,10) UNSIGNED, b1 BIT(1), b9 BIT(9), b64 BIT(64),
da DATE, dt DATETIME, dt3 DATETIME(3), dt6 DATETIME(6), ts TIMESTAMP NULL, ts2 TIMESTAMP(2) NULL, t0 TIME, t1 TIME(1),
t4 TIME(4), t6 TIME(6), ch CHAR(5), vc VARCHAR(300), vl VARCHAR(20) CHARACTER SET latin1,
uc VARCHAR(10) CHARACTER SET ucs2, u32 CHAR(4) CHARACTER SET utf32, l2 VARCHAR(9) CHARACTER SET latin2, tt TINYTEXT,
tx TEXT, lt LONGTEXT, bin BINARY(4), vb VARBINARY(300), bl BLOB, lb LONGBLOB, e ENUM('a','b''c','ü'),
el ENUM('ä','x') CHARACTER SET latin1, s SET('x','y','z'), j JSON,
gv INT GENERATED ALWAYS AS (i + 1) VIRTUAL, gs INT GENERATED ALWAYS AS (i + 2) STORED, KEY hidden ((ti + 1))
"""
ROWS: list[dict[str, Any]] = [
    {
        "id": 1, "ti": -128, "tu": 255, "si": -32768, "su": 65535, "mi": -8388608, "mu": 16777215, "i": -2147483648,
        "iu": 4294967295, "bi": -(2**63), "bu": 2**64 - 1, "y": 1901, "f": 3.14, "d": 0.1, "de": "-1234567890.12",
        "dz": "99999999999999999999", "df": "-0.12345", "du": "12345678901234567890.0123456789", "b1": 1, "b9": 257,
        "b64": 2**63 + 1, "da": "2017-09-15", "dt": "1000-01-01 00:00:00", "dt3": "2020-02-29 23:59:59.120",
        "dt6": "9999-12-31 23:59:59.999999", "ts": "1970-01-01 00:00:01", "ts2": "2038-01-19 03:14:07.99",
        "t0": "-838:59:59", "t1": "-00:00:00.5", "t4": "-12:30:00.0025", "t6": "-01:02:03.000001", "ch": "ab  ",
        "vc": "héllo 😀", "vl": "é€\x81", "uc": "añ", "u32": "ab", "l2": "Łódź", "tt": "", "tx": "x" * 300, "lt": "y",
        "bin": b"a\0\0\0", "vb": b"\0\xff", "bl": b"", "lb": b"\1\0", "e": "b'c", "el": "ä", "s": "x,z",
        "j": '{"b":[1,2.5,-3,"q\\"\\n\\u0001é",null,true,1e20,1.0,18446744073709551615,70000,-7,5e9],"a":{},"z":[]}',
    },
    {
        "id": 2, "ti": 0, "f": 1e-30, "d": 1e300, "de": "0.05", "dz": "0", "df": "0.00001", "du": "0.5", "b1": 0,
        "b9": 0, "y": 0, "t0": "00:00:00", "t1": "838:59:58.9", "t4": "00:00:00.0001", "t6": "-838:59:59", "e": "ü",
        "el": "x", "s": "", "j": "null", "da": "0001-01-01", "i": 5, "bin": b"", "ch": "",
    },
    {"id": 3},
    {"id": 4, "f": -0.0, "d": -0.0, "j": "[0.1, 1e-7, 123456789.5, 1e16, 1e15, 1e22, -0.0, 1234567890123456.5]"},
    {"id": 5, "y": 2155, "t1": "12:00:00", "f": 16777216, "d": 123456789012345680, "e": 0},
]  # fmt: skip
BROKEN: list[dict[str, Any]] = [
    {"id": 11, "da": "0000-00-00"},
    {"id": 12, "dt6": "2017-02-31 10:00:00"},
    {"id": 13, "ts": "0000-00-00 00:00:00", "tx": "kept"},
    {"id": 14, "da": "2017-00-10"},
]
OPAQUE = (
    "INSERT INTO t (id, j) SELECT 21, JSON_ARRAY(CAST(1.50 AS DECIMAL(10,2)), CAST('2020-01-02' AS DATE), "
    "CAST('2020-01-02 03:04:05.1' AS DATETIME(6)), CAST('-10:00:01.5' AS TIME(6)), CAST(-12.005 AS DECIMAL(10,3)), "
    "CAST(x'00ff' AS BINARY), b'101')",
    "INSERT INTO t (id, j) VALUES (22, JSON_OBJECT('k', REPEAT('x', 70000), 'm', JSON_ARRAY(1, 70000, -5, 3e9, 's')))",
)


def test_snapshot_and_log_have_the_same_values(capture: Callable[..., Any]) -> None:
    """Each value of each type is equal from both and is read back from HBase unchanged; both refuse zero dates."""
    captured = capture("t", "n")
    captured.sql(f"CREATE TABLE t ({COLUMNS})", "CREATE TABLE n (id VARCHAR(9) PRIMARY KEY, y YEAR, u INT UNSIGNED)")
    source = read_topology(captured.file.read_text(), file="t.yml", environ={}).sources["shop"]
    server = MySqlSource(source)
    seen, start = server.seen(), server.head()
    tables = tables_of(source)(seen)
    assert not tables.begin(seen.catalog).refused
    schemas = {schema.table_id: schema for schema in tables.schemas()}
    with captured.connection() as connected, connected.cursor() as cursor:
        cursor.execute("SET sql_mode = 'ALLOW_INVALID_DATES'")
        for row in ROWS + BROKEN:
            names, marks = ", ".join(row), ", ".join(["%s"] * len(row))
            cursor.execute(f"INSERT INTO t ({names}) VALUES ({marks})", list(row.values()))
        for statement in OPAQUE:
            cursor.execute(statement)
        cursor.execute("INSERT INTO n VALUES ('a', 2000, 4000000000), ('B', 1999, 1)")
    read: dict[tuple[str, object], Image] = {}
    with server.chunks() as chunks:
        for number, schema in enumerate(schemas.values()):
            chunks.request(ChunkRequest(number=number, schema=schema, position=start, after=None, last=None, where=""))
        found: list[Chunk] = []

        def all_read() -> bool:
            found.extend(chunks.ready())
            return len(found) == len(schemas)

        captured.wait_for(all_read, "no chunks")
    written: dict[tuple[str, object], bytes] = {}
    for chunk in found:
        for one in chunk.images:
            image = decoded(one)
            at = chunk.request.schema.table_id.table, shown(image)["id"]
            read[at] = image
            if isinstance(one, EncodedRow):
                written[at] = one.image
    logged: dict[tuple[str, object], Image] = {}
    with server.stream(Checkpoint(position=start, snapshot="done", ts_ms=0), tables, busy=True) as facts:
        for fact in (part for reported in facts for part in one_by_one(reported)):
            assert not isinstance(fact, RowsQuarantined), fact
            if isinstance(fact, TableDescribed):
                change = tables.described(fact, start)
                assert not change.numbered, (change, "the log's metadata say what information_schema says")
            if isinstance(fact, RowsLogged):
                assert fact.operation == "insert"
                for image in fact.rows:
                    logged[fact.table.table, shown(image)["id"]] = image
            if isinstance(fact, CaughtUp) and len(logged) >= len(read):
                break
    assert len(read) == len(ROWS + BROKEN + list(OPAQUE)) + 2
    for key, image in read.items():
        other = logged[key]
        assert (
            isinstance(image, RefusedImage)
            == isinstance(other, RefusedImage)
            == (key in {("t", r["id"]) for r in BROKEN})
        ), key
        if not isinstance(image, RefusedImage) and not isinstance(other, RefusedImage):
            assert written[key] == orjson.dumps(other)
            assert exact(image) == exact(other)
            survives(schemas[TableId(source="shop", database=captured.name, table=key[0])], image)
    asked = Table(name="w", query="SELECT * FROM shop.t", row_key=("id",), family="d", salt_buckets=1)
    topology = read_topology(captured.file.read_text(), file="t.yml", environ={})
    table = TableId(source="shop", database=captured.name, table="t")
    for row in answer(topology, asked, read_snapshot(source, [table]).tables).rows:
        image = read["t", row["id"]]
        if not isinstance(image, RefusedImage):
            assert row == {c.name: kept(c.type, image[c.name]) for c in schemas[table].columns}, "verify reads the same"
    first = read["t", 1]
    assert not isinstance(first, RefusedImage)
    assert first["bu"] == 2**64 - 1
    assert first["t4"] == "-12:30:00.0025"
    assert first["bin"] == "YQAAAA=="
    assert (first["gv"], first["gs"]) == (-2147483647, -2147483646)
    refused = logged["t", 13]
    assert isinstance(refused, RefusedImage)
    assert "column ts: 0000-00-00" in refused.reason
    assert refused.values["tx"] == "kept"


def decoded(row: Image | EncodedRow) -> Image:
    """Return a row that a snapshot read as an image."""
    if not isinstance(row, EncodedRow):
        return row
    image: Image = orjson.loads(row.image)
    return image


def shown(image: Image) -> Row:
    """Return the columns of an image, refused or not."""
    return image.values if isinstance(image, RefusedImage) else image


def exact(row: Row) -> dict[str, str]:
    """Return values with their types and the sign of zero, which == ignores."""
    return {name: f"{type(value).__name__} {value!r}" for name, value in row.items()}


def kept(type_: LogicalType, value: Canonical) -> Canonical:
    """Encode a value for HBase and decode it again."""
    return None if value is None else decoder(type_)(encoder(type_)(value))


def survives(schema: TableSchema, row: Row) -> None:
    """Check that every value is read back from HBase as its logical type."""
    for column in schema.columns:
        value = row[column.name]
        if value is not None:
            back = decoder(column.type)(encoder(column.type)(value))
            assert back == value or (isinstance(back, float) and math.isclose(back, value, rel_tol=1e-7)), column  # type: ignore[arg-type]  # both are floats then


def test_zero_dates_go_to_the_dead_letters(capture: Callable[..., Any]) -> None:
    """A row that the envelope cannot represent becomes a dead letter with its values, its older version is deleted, and
    the capture continues.
    """
    captured = capture("t", extra=", unrepresentable: dead_letter")
    captured.sql("CREATE TABLE t (id INT PRIMARY KEY, d DATE)", "INSERT INTO t VALUES (1, '2020-01-01')")
    captured.sql("SET SESSION sql_mode = ''")
    process = captured.start()
    captured.streaming(process)
    with captured.connection() as connected, connected.cursor() as cursor:
        cursor.execute("SET sql_mode = ''")
        cursor.execute("UPDATE t SET d = '0000-00-00' WHERE id = 1")
        cursor.execute("INSERT INTO t VALUES (2, '2020-02-02')")
        cursor.execute("UPDATE t SET d = '2021-01-01' WHERE id = 1")
    captured.caught_up()
    events = sorted(captured.events("t"), key=lambda event: event["source"]["sequence"])
    assert [(event["op"], event["before"], event["after"]) for event in events] == [
        ("r", None, {"id": 1, "d": "2020-01-01Z"}),
        ("d", {"id": 1, "d": "2020-01-01Z"}, None),
        ("c", None, {"id": 2, "d": "2020-02-02Z"}),
        ("c", None, {"id": 1, "d": "2021-01-01Z"}),
    ]
    dead_letters = [json.loads(value) for _, _, value in captured.read(f"{captured.name}.deadletters", 1)]
    assert [(dead_letter["values"]["id"], dead_letter["why"].split(":")[0]) for dead_letter in dead_letters[:1]] == [
        (1, "column d")
    ]


@pytest.mark.parametrize(("mode", "encrypted"), [("disabled", False), ("preferred", True), ("required", True)])
def test_connections_are_encrypted_as_asked(capture: Callable[..., Any], mode: Any, encrypted: bool) -> None:
    """`ssl_mode` applies to the connections that request it; the stack's server offers TLS."""
    source = read_topology(capture("t").file.read_text(), file="t.yml", environ={}).sources["shop"]
    with connected(replace(source, tls=Tls(mode=mode))) as connection:
        ((_, cipher),) = query(connection, "SHOW STATUS LIKE 'Ssl_cipher'")
    assert bool(cipher) == encrypted
