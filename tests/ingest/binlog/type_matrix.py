"""Run the type cases on a server under one setting and compare every image in the binlog with the server's text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from ingest.binlog import ColumnHint, Flavour, RowBatch, StreamOptions, open_reader
from ingest.binlog.json.jsonb import JSON_NULL
from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.binlog.transports.uri import ServerAddress, parse_uri
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.type_cases import TypeCase


class ServerSchema:
    """A SchemaSource that asks the server; correct as long as no table is altered while it is used."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._known: dict[str, dict[str, list[ColumnHint]]] = {}

    def schema_at(self, table: tuple[str, str], position: Any) -> Sequence[ColumnHint] | None:
        database, name = table
        if database not in self._known or name not in self._known[database]:
            self._known[database] = self._ask(database)
        return self._known[database].get(name, [])

    def _ask(self, database: str) -> dict[str, list[ColumnHint]]:
        """Read all tables of a database at once: a session for each took longer than all comparisons."""
        found: dict[str, list[ColumnHint]] = {}
        with self._server.session() as session, session.cursor() as cursor:
            cursor.execute(
                "SELECT TABLE_NAME, COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME FROM information_schema.columns "
                "WHERE TABLE_SCHEMA=%s ORDER BY TABLE_NAME, ORDINAL_POSITION",
                (database,),
            )
            for table, name, kind, charset in cursor.fetchall():
                found.setdefault(table, []).append(ColumnHint(name=name, type=kind, charset=charset))
        return found


def meaning(form: str, printed: Any) -> Any:
    """Convert the server's text to the value that the decoder should return."""
    if printed is None:
        return None
    if form in ("integer", "bit"):
        return int(printed)
    if form == "double":
        return float(printed)
    if form == "string":
        return bytes.fromhex(printed).decode()
    if form == "bytes":
        return bytes.fromhex(printed)
    if form == "json":
        return settled(json.loads(printed, parse_float=Decimal))
    return printed


def settled(value: Any) -> Any:
    """Normalize a JSON value, whose numbers compare by value and whose null is not SQL's."""
    if value is None or value is JSON_NULL:
        return "null!"
    if isinstance(value, dict):
        return {key: settled(item) for key, item in value.items()}
    if isinstance(value, list):
        return [settled(item) for item in value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    return float(value)


def decoded(form: str, value: Any) -> Any:
    """Convert the decoder's value to the same form."""
    if value is not None and form == "json":
        return settled(value)
    return value


def prepare(server: Server, cases: Sequence[TypeCase], database: str) -> None:
    """Create tables for all cases: `…_all` has every value once, the table itself is filled by `run`."""
    with server.session(init_command="SET sql_mode=''") as session, session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database} CHARACTER SET utf8mb4")
        cursor.execute(f"USE {database}")
        for case in cases:
            cursor.execute(f"CREATE TABLE {case.name} (id INT PRIMARY KEY, c {case.sql}, t TEXT) ENGINE=InnoDB")
            cursor.execute(f"CREATE TABLE {case.name}_all LIKE {case.name}")
            rows = ",".join(f"({number},{value},'blob')" for number, value in enumerate(["NULL", *case.values]))
            cursor.execute(f"INSERT INTO {case.name}_all VALUES {rows}")


def run(server: Server, cases: Sequence[TypeCase], database: str, image: str, schema: bool) -> list[str]:
    """Insert, update and delete every value of every case; return the differences from the server's text, one line
    each."""
    wrong: list[str] = []
    address = parse_uri(server.uri)
    assert isinstance(address, ServerAddress)
    start = MysqlTransport(replace(address, follow=False)).head()
    expected: dict[str, list[dict[int, Any]]] = {}
    settings = f"SET sql_mode='', time_zone='+00:00', binlog_row_image='{image}'"
    with server.session(init_command=settings, autocommit=False) as session, session.cursor() as cursor:
        cursor.execute(f"USE {database}")
        for case in cases:
            cursor.execute(f"INSERT INTO {case.name} SELECT * FROM {case.name}_all")
            states = [_state(cursor, case)]
            count = len(states[0])
            cursor.execute(f"UPDATE {case.name} a JOIN {case.name}_all b ON b.id=(a.id+1)%%{count} SET a.c=b.c" % ())
            states.append(_state(cursor, case))
            cursor.execute(f"DELETE FROM {case.name} WHERE id>=0")
            session.commit()
            expected[case.name] = states
    options = StreamOptions(flavour=Flavour(), schema=ServerSchema(server) if schema else None)
    seen: dict[str, dict[int, Any]] = {}
    inserted: dict[str, dict[int, Any]] = {}
    forms = {case.name: case.form for case in cases}
    reader = open_reader(f"{server.uri}?follow=0", start, options)
    for change in reader.changes():
        if not isinstance(change, RowBatch) or change.decoder.table.database != database:
            continue
        name = change.decoder.table.table
        form, rows = forms[name], seen.setdefault(name, {})
        for row in change.rows:
            if change.operation == "insert":
                rows[row["id"]] = decoded(form, row["c"])
                inserted.setdefault(name, {})[row["id"]] = rows[row["id"]]
            elif change.operation == "update":
                before, after = row
                if "c" in before and decoded(form, before["c"]) != rows[before["id"]]:
                    wrong.append(f"{name}: before image {before['c']!r}, the row held {rows[before['id']]!r}")
                if image == "MINIMAL" and "t" in after:
                    wrong.append(f"{name}: an unchanged column is in a MINIMAL image")
                rows[before["id"]] = decoded(form, after["c"]) if "c" in after else rows[before["id"]]
            elif "c" in row and decoded(form, row["c"]) != rows[row["id"]]:
                wrong.append(f"{name}: deleted image {row['c']!r}, the row held {rows[row['id']]!r}")
    for case in cases:
        for stage, found in zip(
            expected[case.name], (inserted.get(case.name, {}), seen.get(case.name, {})), strict=True
        ):
            for number, printed in stage.items():
                want = meaning(case.form, printed)
                if number not in found:
                    wrong.append(f"{case.name}: row {number} did not come")
                elif found[number] != want or type(found[number]) is not type(want):
                    wrong.append(
                        f"{case.name} ({case.sql}): decoded {found[number]!r:.80}, the server prints {want!r:.80}"
                    )
    return wrong


def _state(cursor: Any, case: TypeCase) -> dict[int, Any]:
    cursor.execute(f"SELECT id, {case.printed()} FROM {case.name}")
    return dict(cursor.fetchall())
