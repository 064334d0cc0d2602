"""The type-fidelity matrix: every type, value and row image equals the server's own text."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ingest.binlog import RowBatch, open_reader
from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.binlog.transports.uri import ServerAddress, parse_uri
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.type_cases import cases_of
from tests.ingest.binlog.type_matrix import prepare, run

# Image, metadata, checksum: each value occurs with each other at least once; `make matrix` runs all twelve.
SHORT = [("FULL", "FULL", "CRC32"), ("MINIMAL", "MINIMAL", "NONE")]
ALL = [(i, m, c) for i in ("FULL", "MINIMAL", "NOBLOB") for m in ("FULL", "MINIMAL") for c in ("CRC32", "NONE")]
DOCUMENT = Path(__file__).resolve().parents[3] / "docs" / "types-binlog.md"


def check(server: Server, setting: tuple[str, str, str]) -> None:
    image, metadata, checksum = setting
    cases = cases_of(server.flavour)
    with server.session() as session, session.cursor() as cursor:
        cursor.execute(f"SET GLOBAL binlog_checksum={checksum}")
        if server.flavour != "mysql57":
            cursor.execute(f"SET GLOBAL binlog_row_metadata={metadata}")
    database = f"types_{image}_{metadata}_{checksum}".lower()
    prepare(server, cases, database)
    assert run(server, cases, database, image, schema=metadata == "MINIMAL" or server.flavour != "mysql80") == []


@pytest.mark.integration
@pytest.mark.parametrize("setting", SHORT, ids="-".join)
def test_mysql80_types_equal_the_servers_print(mysql80: Server, setting: tuple[str, str, str]) -> None:
    """MySQL 8.0, with full and minimal metadata, with checksums and without: nothing is lost, shifted or guessed."""
    check(mysql80, setting)


@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("setting", ALL, ids="-".join)
@pytest.mark.parametrize("flavour", ["mysql80", "mysql57", "mysql9", "maria10", "maria11"])
def test_types_equal_the_servers_print(
    servers: Callable[[str], Server], flavour: str, setting: tuple[str, str, str]
) -> None:
    """The same on every server and with every combination of settings."""
    if flavour == "mysql57" and setting[1] == "FULL":
        setting = (setting[0], "MINIMAL", setting[2])  # 5.7 has no full metadata
    server = servers(flavour)
    with server.session() as session, session.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {f'types_{setting[0]}_{setting[1]}_{setting[2]}'.lower()}")
    check(server, setting)


@pytest.mark.matrix
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("flavour", ["mysql9", "maria10", "maria11"])
def test_compressed_types_equal_the_servers_print(servers: Callable[[str], Server], flavour: str) -> None:
    """Compressed transactions (MySQL 9) and compressed row events (MariaDB) have the same rows."""
    server = servers(flavour)
    option = "log_bin_compress" if server.maria else "binlog_transaction_compression"
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_checksum=CRC32")
        cursor.execute("SET GLOBAL binlog_row_metadata=FULL")
        cursor.execute(f"SET GLOBAL {option}=ON")
        if server.maria:
            cursor.execute("SET GLOBAL log_bin_compress_min_len=10")
    cases = cases_of(flavour)
    prepare(server, cases, "types_compressed")
    try:
        assert run(server, cases, "types_compressed", "FULL", schema=True) == []
    finally:
        with server.session() as session, session.cursor() as cursor:
            cursor.execute(f"SET GLOBAL {option}=OFF")


@pytest.mark.integration
def test_the_document_lists_every_type(mysql80: Server) -> None:
    """docs/types-binlog.md equals the decoder's output: generated here with TAILORBIRD_WRITE_DOCS=1, otherwise
    compared."""
    cases = cases_of("mysql80")
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_checksum=CRC32")
        cursor.execute("SET GLOBAL binlog_row_metadata=FULL")
    address = parse_uri(mysql80.uri)
    assert isinstance(address, ServerAddress)
    start = MysqlTransport(address).head()
    prepare(mysql80, cases, "types_document")
    seen: dict[str, tuple[str, str, str]] = {}
    wanted = {case.name: case for case in cases}
    for change in open_reader(f"{mysql80.uri}?follow=0", start).changes():
        if not isinstance(change, RowBatch):
            continue
        name = change.decoder.table.table.removesuffix("_all")
        if change.decoder.table.database == "types_document" and name in wanted:
            column = change.decoder.table.columns[1]
            example = next(row["c"] for row in reversed(change.rows) if row["c"] is not None)
            text = repr(example) if len(repr(example)) <= 60 else repr(example)[:57] + "…"
            seen[name] = (column.type.name, type(example).__name__, text.replace("|", "\\|"))
    lines = [
        "# What each MySQL type becomes",
        "",
        "This page is a reference for users of the [binlog library](binlog.md). It shows which Python value the",
        "library returns for each column type of MySQL. SQL NULL is `None`. A column that the binlog does not contain",
        "(`binlog_row_image=MINIMAL`) is absent from the row.",
        "",
        "The table is generated by `tests/ingest/binlog/test_types.py` from a binlog of MySQL 8.0. The test compares",
        "every value with what the server prints; *lossless* means that they are equal. The second column is the",
        "type's name in the binlog.",
        "",
        "| declared | in the binlog | Python | example | conversion |",
        "| --- | --- | --- | --- | --- |",
    ]
    for case in cases:
        kind, python, example = seen[case.name]
        declared = case.sql if len(case.sql) < 40 else case.sql[:37] + "…"
        lines.append(f"| {declared} | {kind} | {python} | `{example}` | lossless |")
    lines += ["", *_NOTES]
    text = "\n".join(lines) + "\n"
    if os.environ.get("TAILORBIRD_WRITE_DOCS") == "1":
        DOCUMENT.write_text(text)
    assert DOCUMENT.read_text() == text


_NOTES = [
    "## Without metadata",
    "",
    "With `binlog_row_metadata=MINIMAL` (the default of MySQL 8.0 and newer), the binlog contains no column names and",
    "no labels of ENUM and SET. MySQL 5.7, and MariaDB with its default `NO_LOG`, also omit signs and character sets.",
    "If you pass no schema either:",
    "",
    "- columns are named `@1`, `@2`, …;",
    "- ENUM and SET values are of the number types `EnumIndex` and `SetMask`;",
    "- without character sets, texts are `bytes`;",
    "- without signs, an integer whose highest bit is set raises an error, because it could be negative or large;",
    "- so does DECIMAL of a table from before MySQL 5.0. With a schema it is read by its text: blanks, digits, and as",
    "  many digits after the point as the scale.",
    "",
    "## Other types",
    "",
    "- MariaDB: INET4, INET6 and UUID are texts with a schema, and bytes without one, because the binlog calls",
    "  them CHAR. Compressed columns are decompressed. JSON is the text that MariaDB stores.",
    "- MySQL 9: VECTOR is bytes, four per float, little-endian.",
    "- A geometry is the server's bytes: SRID (4 bytes, little-endian), then WKB.",
    "",
    "Capture publishes geometries and vectors in another form ([capture.md](capture.md#types)).",
]
