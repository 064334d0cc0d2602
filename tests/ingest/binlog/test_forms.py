"""Formats that only some servers write: MariaDB's old temporal types, compressed events, invisible keys, partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ingest.binlog import RowBatch, StreamOptions, open_reader
from ingest.binlog.format.codes import ColumnType
from ingest.binlog.format.errors import UndecodableValue
from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.binlog.transports.uri import ServerAddress, parse_uri
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.type_matrix import ServerSchema

pytestmark = [pytest.mark.matrix, pytest.mark.timeout(900)]


def changes_since(server: Server, statements: list[str], *, schema: bool = False) -> list[RowBatch]:
    """Return the row batches that the statements cause."""
    address = parse_uri(server.uri)
    assert isinstance(address, ServerAddress)
    start = MysqlTransport(replace(address, follow=False)).head()
    with server.session() as session, session.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
    options = StreamOptions(schema=ServerSchema(server) if schema else None)
    return [c for c in open_reader(f"{server.uri}?follow=0", start, options).changes() if isinstance(c, RowBatch)]


@pytest.mark.parametrize("flavour", ["maria10", "maria11"])
def test_temporal_types_before_mysql_56(servers: Callable[[str], Server], flavour: str) -> None:
    """MariaDB with mysql56_temporal_format=OFF: fractions need the schema, and are right with it."""
    server = servers(flavour)
    columns = ", ".join(f"t{d} TIME({d}), d{d} DATETIME({d}), s{d} TIMESTAMP({d}) NULL" for d in range(7))
    moment = "2024-02-29 12:34:56."
    values = ", ".join(
        f"'-12:34:56.{'123456'[:d] or '0'}', '{moment}{'123456'[:d] or '0'}', '{moment}{'987654'[:d] or '0'}'"
        for d in range(7)
    )
    database = f"old_{flavour}_{server.port}"
    try:
        batches = changes_since(
            server,
            ["SET GLOBAL mysql56_temporal_format=OFF", f"CREATE DATABASE {database}", "SET time_zone='+00:00'",
             f"CREATE TABLE {database}.t ({columns})", f"INSERT INTO {database}.t VALUES ({values})"],
            schema=True,
        )  # fmt: skip
    finally:
        with server.session() as session, session.cursor() as cursor:
            cursor.execute("SET GLOBAL mysql56_temporal_format=ON")
    with pytest.raises(UndecodableValue, match="give a schema"):
        changes_since(server, [f"DELETE FROM {database}.t"])
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SET time_zone='+00:00'")
        cursor.execute(f"INSERT INTO {database}.t VALUES ({values})")
    (row,) = batches[0].rows
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SET time_zone='+00:00'")
        cursor.execute(f"SELECT {', '.join(f'CAST({name} AS CHAR)' for name in row)} FROM {database}.t")
        assert tuple(row.values()) == cursor.fetchone()


def test_generated_invisible_primary_keys(servers: Callable[[str], Server]) -> None:
    """MySQL's invisible key is a column like others, marked invisible, and the table's primary key."""
    server = servers("mysql9")
    batches = changes_since(
        server,
        ["SET sql_generate_invisible_primary_key=ON", "CREATE DATABASE gipk", "CREATE TABLE gipk.t (v INT)",
         "INSERT INTO gipk.t (v) VALUES (7)"],
    )  # fmt: skip
    table = batches[0].decoder.table
    assert batches[0].rows == [{"my_row_id": 1, "v": 7}]
    assert [column.visible for column in table.columns] == [False, True]
    assert table.primary_key == ((0, 0),)


@pytest.mark.parametrize("flavour", ["mysql80", "mysql57", "mysql9", "maria10"])
def test_partitioned_tables(servers: Callable[[str], Server], flavour: str) -> None:
    """Rows of partitions, moves between them included, are rows of the table."""
    server = servers(flavour)
    batches = changes_since(
        server,
        [f"CREATE DATABASE parts_{flavour}",
         f"CREATE TABLE parts_{flavour}.t (id INT PRIMARY KEY, v INT) PARTITION BY HASH(id) PARTITIONS 4",
         f"INSERT INTO parts_{flavour}.t VALUES (1, 1), (2, 2)", f"UPDATE parts_{flavour}.t SET id=6 WHERE id=1"],
        schema=True,
    )  # fmt: skip
    assert [row for batch in batches for row in batch.rows] == [
        {"id": 1, "v": 1},
        {"id": 2, "v": 2},
        ({"id": 1, "v": 1}, {"id": 6, "v": 1}),
    ]


def test_vector_columns(servers: Callable[[str], Server]) -> None:
    """VECTOR is read as its bytes, with its dimensions if the server sends them."""
    server = servers("mysql9")
    batches = changes_since(
        server,
        ["CREATE DATABASE vectors", "CREATE TABLE vectors.t (v VECTOR(5))",
         "INSERT INTO vectors.t VALUES (TO_VECTOR('[1,2]'))"],
    )  # fmt: skip
    column = batches[0].decoder.table.columns[0]
    assert column.type is ColumnType.VECTOR
    rows: list[Any] = batches[0].rows
    assert rows[0]["v"].hex() == "0000803f00000040"
