"""Digests of MySQL tables whose columns have a `%` in their name, which a driver could take for a parameter."""

from __future__ import annotations

import re
from types import TracebackType
from typing import Any

from cdc.merkle.canonical import covered
from cdc.merkle.leaves import grid_of
from cdc.topology.reader import read_topology
from ingest.mysql.mysql_digest import digest_sql, leaf_digests, range_digest
from tests.support.changes_made import schema_of


class Connection:
    """Records statements as PyMySQL would send them. It is its own cursor."""

    def __init__(self) -> None:
        self.sent = list[str]()

    def cursor(self) -> Connection:
        return self

    def __enter__(self) -> Connection:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        pass

    def execute(self, sql: str, arguments: Any = None) -> None:
        self.sent.append(sql if arguments is None else sql % arguments)

    def fetchall(self) -> list[tuple[Any, ...]]:
        return [("8.0.36",)] if self.sent[-1] == "SELECT VERSION()" else [(0, 0, "0")]


def test_a_percent_sign_in_a_name_is_sent_as_it_is() -> None:
    """The server would otherwise not know the column `rate%%`, and `verify` could not compare the table."""
    text = "sources: {s: {type: mysql, hostname: h, username: u, password: p, database: d, server_id: 1, tables: [t]}}"
    source = read_topology(f"name: t\n{text}\n", file="t.yml", environ={}).sources["s"]
    schema, connection = schema_of("t", 1, **{"rate%": "int", "x%s": "int"}), Connection()
    any_connection: Any = connection
    sql = digest_sql(any_connection, schema, covered(schema), grid_of(schema))
    leaf_digests(any_connection, source, sql, 0, 9)
    range_digest(any_connection, source, sql, 0, 9)
    asked = [one for one in connection.sent if "BIT_XOR" in one.upper()]
    assert len(asked) == 2
    for one in asked:
        assert set(re.findall("`([^`]*%[^`]*)`", one)) == {"rate%", "x%s"}
