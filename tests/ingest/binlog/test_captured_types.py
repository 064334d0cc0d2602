"""Every column type of every server as capture publishes it: a snapshot's value equals the log's, and the DDL reader
knows the type that information_schema prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from cdc.merkle.canonical import covered
from cdc.merkle.leaves import grid_of
from cdc.model.geometry import ewkt_of, wkt_of
from cdc.model.schema import TableId
from ingest.events.columns import same_columns
from ingest.events.log_events import (
    CaughtUp,
    Image,
    RefusedImage,
    RowsLogged,
    RowsQuarantined,
    StatementLogged,
    TableDescribed,
    TransactionBegan,
    one_by_one,
)
from ingest.events.tables import Tables
from ingest.mysql.mysql_connection import connected
from ingest.mysql.mysql_digest import digest_sql, leaf_rows
from ingest.mysql.mysql_source import MySqlSource
from ingest.records.capture_interfaces import Checkpoint
from ingest.run_capture import tables_of
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.test_digest_types import source_of
from tests.ingest.binlog.type_cases import TypeCase, cases_of

DATABASE = "captured_types"
SPATIAL = ("point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection")
# Types that the servers print in a form other than the canonical one: still compared with the log.
PRINTED = {"uuid", "inet4", "inet6"}
KEYS = ("t_uuid", "t_inet4", "t_inet6")


def fill(server: Server, cases: list[TypeCase]) -> None:
    """Create and fill a table for each case, while the log is read."""
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SET SESSION sql_mode = '', time_zone = '+00:00'")
        cursor.execute(f"USE {DATABASE}")
        for case in cases:
            key = (
                f"c {case.sql} NOT NULL PRIMARY KEY, id INT"
                if case.name in KEYS
                else f"id INT PRIMARY KEY, c {case.sql}"
            )
            cursor.execute(f"CREATE TABLE {case.name} ({key})")
            values = (*case.values, *(() if case.name in KEYS else ("NULL",)))
            rows = ", ".join(f"({value}, {number})" for number, value in enumerate(values))
            cursor.execute(f"INSERT INTO {case.name} (c, id) VALUES {rows}")


def logged(server: Server, start: Any, cases: list[TypeCase]) -> tuple[Tables, dict[str, dict[int, Image]]]:
    """Return the log from a position on: the tables as statements define them, and each row's last image."""
    source = source_of(server)
    source = replace(source, database=DATABASE)
    reader = MySqlSource(source)
    seen = reader.seen()
    tables = tables_of(source)(replace(seen, catalog=replace(seen.catalog, tables={})))
    tables.begin(replace(seen.catalog, tables={}))
    rows: dict[str, dict[int, Image]] = {}
    with reader.stream(Checkpoint(position=start, snapshot="done", ts_ms=0), tables, busy=True) as log_events:
        position = start
        for event in (part for reported in log_events for part in one_by_one(reported)):
            assert not isinstance(event, RowsQuarantined), (event.table, event.why)
            if isinstance(event, TransactionBegan):
                position = replace(position, file=event.file, pos=event.pos, sequence=position.sequence + 1)
            if isinstance(event, StatementLogged):
                tables.statement(event, position)
            if isinstance(event, TableDescribed):
                change = tables.described(event, position)
                assert not change.numbered, (event.table, change, "the log's metadata say what the statement said")
            if isinstance(event, RowsLogged):
                assert event.operation == "insert"
                for image in event.rows:
                    rows.setdefault(event.table.table, {})[number_of(image)] = image
            if isinstance(event, CaughtUp) and cases[-1].name in rows:
                break
    return tables, rows


def number_of(image: Image) -> int:
    """Return the id of a row."""
    return int(str((image.values if isinstance(image, RefusedImage) else image)["id"]))


def representable(image: Image) -> dict[str, Any]:
    """Return a row whose values without canonical form are NULL."""
    if not isinstance(image, RefusedImage):
        return dict(image)
    return {name: None if name in image.columns else value for name, value in image.values.items()}


def check(server: Server) -> None:
    """Check all cases of a server by snapshot and by log."""
    source = replace(source_of(server), database=DATABASE)
    cases = cases_of(server.flavour)
    with server.session() as session, session.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {DATABASE}")
        cursor.execute(f"CREATE DATABASE {DATABASE} DEFAULT CHARACTER SET utf8mb4")
    start = MySqlSource(source).head()
    fill(server, cases)
    tables, rows = logged(server, start, cases)
    shown = MySqlSource(source).seen()
    wrong = []
    found: dict[str, dict[int, Image]] = {}
    with connected(source) as connection:
        for case in cases:
            table = TableId(source="s", database=DATABASE, table=case.name)
            schema = tables.schema(table)
            reported = shown.catalog.tables[DATABASE, case.name].schema(table, 0)
            if not same_columns(schema.columns, reported.columns):
                wrong.append(f"{case.name}: {schema.columns} by statements, {reported.columns} by information_schema")
            assert schema.left_out == (), case.name
            grid = grid_of(schema)
            sql = digest_sql(connection, schema, covered(schema), grid)
            found[case.name] = {number_of(image): image for image in leaf_rows(connection, source, sql, 0, grid.last)}
    for case in cases:
        mine, theirs = rows[case.name], found[case.name]
        assert len(mine) == len(theirs) == len(case.values) + (case.name not in KEYS), case.name
        for number, image in mine.items():
            other = theirs[number]
            if repr(representable(image)) != repr(representable(other)):
                wrong.append(f"{case.name} ({case.sql}): {image!r:.200} by the log, {other!r:.200} by the snapshot")
        wrong += printed(server, case, mine)
    assert wrong == [], wrong


def printed(server: Server, case: TypeCase, rows: dict[int, Image]) -> list[str]:
    """Return the differences from the server's own text of addresses, UUIDs, geometries and vectors."""
    name, wrong = case.name.removeprefix("t_"), []
    swap = not server.maria and server.flavour != "mysql57"
    order = ", 'axis-order=long-lat'" if swap else ""
    asked = {
        **dict.fromkeys(PRINTED, "CAST(c AS CHAR), 0"),
        **dict.fromkeys(("geometry", *SPATIAL), f"ST_AsText(c{order}), ST_SRID(c)"),
        "vector": "FROM_VECTOR(c), 0",
    }.get(name)
    if asked is None:
        return []
    with server.session() as session, session.cursor() as cursor:
        cursor.execute(f"SELECT id, {asked} FROM {DATABASE}.{case.name} WHERE c IS NOT NULL")
        for number, text, srid in cursor.fetchall():
            image = rows[number]
            assert not isinstance(image, RefusedImage)
            value: Any = image["c"]
            if name in PRINTED:
                same = value == text
            elif name == "vector":
                same = value == [pytest.approx(one, rel=1e-6) for one in json.loads(text)]
            else:
                same = plain(wkt_of(ewkt_of(value))) == plain(text) and (value["srid"] or 0) == srid
            if not same:
                wrong.append(f"{case.name}: {value!r} is printed as {text!r}, SRID {srid}")
    return wrong


def plain(text: str) -> str:
    """Remove the brackets of a MULTIPOINT's points, which MariaDB and MySQL 5.7 do not print."""
    head, _, body = text.partition("MULTIPOINT(")
    return f"{head}MULTIPOINT({body.replace('(', '').replace(')', '')}" if body else text.replace("EMPTY", "()")


@pytest.mark.integration
def test_mysql80_types_are_captured_alike(mysql80: Server) -> None:
    """MySQL 8.0: no column is left out, and snapshot and log give the same value for every value of every type."""
    check(mysql80)


@pytest.mark.matrix
@pytest.mark.timeout(900)
@pytest.mark.parametrize("flavour", ["mysql57", "mysql9", "maria10", "maria11"])
def test_types_are_captured_alike(servers: Callable[[str], Server], flavour: str) -> None:
    """The same on the other servers: MySQL 9's VECTOR, MariaDB's UUID, INET4 and INET6, which can be keys as well."""
    check(servers(flavour))
