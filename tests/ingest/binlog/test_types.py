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
        "Generated by `tests/ingest/binlog/test_types.py` from MySQL 8.0's own binlog; every value is compared",
        "there with what the server prints. NULL is `None`; a column that a row image does not carry is absent from",
        "the row.",
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
    "Without optional metadata (MySQL before 8.0, `binlog_row_metadata=MINIMAL`) and without a schema: names are",
    "ordinal (`@1`), text is bytes, ENUM and SET are numbers of types of their own, and an integer whose highest",
    "bit is set is refused, because it could be negative or large. DECIMAL from before MySQL 5.0 is refused without",
    "a schema.",
    "",
    "MariaDB adds: INET4, INET6 and UUID (text with a schema, bytes without: the binlog calls them CHAR), compressed",
    "columns (inflated), JSON (text, as MariaDB stores it). MySQL 9 adds VECTOR (its bytes, four per",
    "float, little-endian).",
    "",
    "The library returns a geometry as the server's bytes: SRID (4, little-endian), then WKB. Capture publishes it as",
    "Debezium's struct, and a VECTOR as an array of floats (docs/capture.md).",
]
