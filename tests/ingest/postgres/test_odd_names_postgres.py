"""Schemas, tables and columns of any name are captured from PostgreSQL, as from MySQL."""

from __future__ import annotations

import orjson
import pytest

from cdc.model.escapes import dotted
from tests.support.pg_captured import Capture

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
SCHEMA = "my.schema"
TABLES = [
    "order details",
    'bestellung "x"',
    "日本",
    "a.b",
    "50%",
    "it's",
    "Orders",
    "orders",
    "日" * 21,
    "{a}",
    "$1",
    "`",
]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def test_any_name_is_captured(capture: Capture) -> None:
    """Spaces, quotes, dots, `%`, capitals and other scripts, in the snapshot and in the log."""
    tables = orjson.dumps([dotted(SCHEMA, name) for name in TABLES]).decode()
    captured = capture(tables)
    captured.sql(f"CREATE SCHEMA {quoted(SCHEMA)}", f"GRANT USAGE ON SCHEMA {quoted(SCHEMA)} TO cdc")
    for name in TABLES:
        table = f"{quoted(SCHEMA)}.{quoted(name)}"
        captured.sql(
            f'CREATE TABLE {table} ("my id" int PRIMARY KEY, "a.b" int, "50%" text, "näme" int)',
            f"GRANT SELECT ON {table} TO cdc",
            f"INSERT INTO {table} VALUES (1, 10, 'x', 1), (2, 20, 'y', 2)",
        )
    captured.start()
    captured.caught_up(120)
    for name in TABLES:
        table = f"{quoted(SCHEMA)}.{quoted(name)}"
        captured.sql(f'UPDATE {table} SET "a.b" = 11 WHERE "my id" = 1', f'DELETE FROM {table} WHERE "my id" = 2')
    captured.caught_up(120)
    captured.stop()
    for name in TABLES:
        rows = list(captured.state(name, SCHEMA).values())
        assert rows == [{"my id": 1, "a.b": 11, "50%": "x", "näme": 1}], name
