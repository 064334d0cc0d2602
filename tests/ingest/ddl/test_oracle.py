"""Measure how much of other projects' DDL is understood like two real servers understood it.

Also a command: `python tests/ingest/ddl/test_oracle.py [FILE …]` scores files of oracle lines (see tests/cases/ddl).
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect, dialect_of
from ingest.ddl.statements import Applied, apply

CASES = Path(__file__).parents[2] / "cases" / "ddl"
ENOUGH = 0.97
Columns = list[list[Any]]


def oracle_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Return the lines of an oracle file; columns in the long format of information_schema are cut to the four that
    count."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            found = json.loads(line)
            if found.get("result", "ok") != "ok":
                continue
            changed: dict[str, Columns] = found.get("changed") or {}
            found["changed"] = {
                table: [c if len(c) == 4 else [c[0], c[1], c[2] == "YES", c[6]] for c in columns]
                for table, columns in changed.items()
            }
            yield found


def score(path: Path, dialect: Dialect) -> tuple[int, int, list[str]]:
    """Return the number of column-changing statements answered exactly like the server, their total, and the misses."""
    right = total = 0
    misses: list[str] = []
    file, catalog, database = "", Catalog(), ""
    for line in oracle_lines(path):
        if line["file"] != file:
            file, database = line["file"], "sample"
            catalog = Catalog(default_charset=dialect.default_charset, databases={database: "utf8mb4"})
        applied = apply(catalog, line["sql"], database=database, dialect=dialect)
        catalog, database = applied.catalog, applied.database
        wanted = (line["changed"], sorted(line.get("gone") or []))
        changes = bool(wanted[0] or wanted[1])
        total += changes
        if applied.error is None and answer(applied) == wanted:
            right += changes
        else:
            misses.append(f"{file}: {line['sql']!r}: {applied.error or answer(applied)}, the server: {wanted}")
    return right, total, misses


def answer(applied: Applied) -> tuple[dict[str, Columns], list[str]]:
    """Return tables created or changed and tables dropped, in the oracle's format."""
    tables = {
        ".".join(name): [[c.name, c.column_type, c.nullable, c.charset] for c in table.columns]
        for name, table in applied.changed.items()
    }
    return tables, sorted(".".join(name) for name in applied.gone)


def dialect_in(path: Path) -> Dialect:
    """Return the dialect in a file's name."""
    return dialect_of("mariadb" if "mariadb" in path.name else "mysql")


@pytest.mark.parametrize("server", ["mysql97", "mariadb10"])
def test_the_servers_results_of_ddl_are_reproduced(server: str) -> None:
    """At least 97% of the statements that change columns are answered exactly as the server's information_schema;
    statements that change none have an empty answer."""
    path = CASES / f"oracle_{server}.jsonl.gz"
    right, total, misses = score(path, dialect_in(path))
    assert total > 1000
    assert right / total >= ENOUGH, "\n".join(misses[:20])


def test_a_wrong_answer_is_a_miss() -> None:
    """The score can fail: read in the other server's dialect, most statements have other answers."""
    right, total, _ = score(CASES / "oracle_mysql97.jsonl.gz", dialect_of("mariadb"))
    assert right / total < 0.8


if __name__ == "__main__":
    for given in [Path(argument) for argument in sys.argv[1:]] or sorted(CASES.glob("oracle_*.jsonl.gz")):
        found, of, missed = score(given, dialect_in(given))
        print(f"{given.name}: {found}/{of} = {found / of:.2%}", *missed, sep="\n  ")
