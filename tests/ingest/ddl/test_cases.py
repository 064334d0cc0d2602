"""Compare the DDL reader with five servers' answers to our own cases, statement by statement."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect
from ingest.ddl.statements import apply

CASES = sorted((Path(__file__).parents[2] / "cases" / "ddl").glob("*.case"))
SERVERS = {
    "mysql57": Dialect(server="mysql", version=50722),
    "mysql80": Dialect(server="mysql", version=80015),
    "mysql97": Dialect(server="mysql", version=90704),
    "mariadb10": Dialect(server="mariadb", version=101119),
    "mariadb11": Dialect(server="mariadb", version=110405),
}
_MODE = re.compile(r"set sql_mode = '(.*)'")
_OURS = "tailorbird quarantines"


def blocks(path: Path) -> list[tuple[str, dict[str, str], bool]]:
    """Return statements with each server's answer, and whether the reader must report that it does not understand
    them."""
    found = []
    for block in path.read_text(encoding="utf-8").split("\n\n"):
        if not block.strip():
            continue
        sql, *lines = block.rstrip("\n").split("\n-> ")
        answers = {}
        for line in lines:
            names, _, text = line.partition(" ")
            if line != _OURS:
                answers.update(dict.fromkeys(names.split(","), text))
        found.append((sql, answers, _OURS in lines))
    return found


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_each_statement_does_what_the_server_did(path: Path, server: str) -> None:
    """Whatever a server executes changes our tables as it changed its own, or is reported as not understood."""
    dialect, database = SERVERS[server], "shop_ddl"
    catalog = Catalog(default_charset=dialect.default_charset, databases={database: "utf8mb4"})
    asked = 0
    for sql, answers, is_ours in blocks(path):
        if answers[server] == "refused":
            continue
        if mode := _MODE.match(sql):
            dialect = dialect.in_mode(mode.group(1))
        wanted = json.loads(answers[server])
        applied = apply(catalog, sql, database=database, dialect=dialect)
        asked += 1
        if is_ours:
            assert applied.error, sql
            assert {".".join(name) for name in applied.quarantined} == set(wanted["tables"]), sql
            continue
        assert applied.error is None, sql
        tables = {
            ".".join(name): [[c.name, c.column_type, c.nullable, c.charset] for c in table.columns]
            for name, table in applied.catalog.tables.items()
        }
        for table, columns in wanted["tables"].items():
            assert tables[table] == columns, sql
        assert [".".join(name) for name in applied.gone] == wanted["gone"], sql
        # changes in addition to the compared columns: keys, defaults, generation
        assert {".".join(name) for name in applied.changed} >= set(wanted["tables"]), sql
        catalog, database = applied.catalog, applied.database
    assert asked > 10
