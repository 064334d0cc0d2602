"""Queries as analysts write them, in Spark's SQL and in that of MySQL and PostgreSQL (analysts/*.yml), with random
rows for them."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.joins.joincase import Case
from tests.joins.joinrandom import value_of

_JSON = (
    '{"plan":"pro","seats":"3","color":"red"}', '{"plan":"free","seats":"12","color":null}', '{"a":1}',
    '{"color":"blue","temp":"19"}',
)  # fmt: skip
CHANGES = 80


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """One query: its name, its text, and the row key that its writer expects.

    `answered` is DuckDB's form if it differs from Spark's. `refused` is a part of the error if it does not compile."""

    name: str
    query: str
    key: str
    answered: str = ""
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Reports:
    """The queries of one file: their tables (as in `Case`), the values of some columns by name, and the queries."""

    tables: Mapping[str, dict[str, Any]]
    pool: Mapping[str, Sequence[Any]]
    reports: tuple[Report, ...]


def _read(path: Path) -> Reports:
    read = yaml.safe_load(path.read_text())
    return Reports(read["tables"], read["pool"], tuple(Report(**one) for one in read["reports"]))


SETS = tuple(_read(path) for path in sorted((Path(__file__).parent / "analysts").glob("*.yml")))


def case_of(report: Report, tables: Mapping[str, dict[str, Any]], pool: Mapping[str, Sequence[Any]], seed: int) -> Case:
    """Return a query with a random history of its tables. `pool` has the values of some columns, by name."""
    used = {name: columns for name, columns in tables.items() if re.search(rf"\b{re.escape(name)}\b", report.query)}
    history = _history(used, pool, random.Random(seed))
    return Case(tables=used, query=report.query, row_key=report.key.split(", "), history=history)


def _history(
    tables: Mapping[str, dict[str, Any]], pool: Mapping[str, Sequence[Any]], chance: random.Random
) -> list[list[Any]]:
    history: list[list[Any]] = []
    for _ in range(CHANGES):
        name = chance.choice(list(tables))
        row = {column: _value(column, type_, pool, chance) for column, type_ in tables[name].items() if column != "key"}
        dice = chance.random()
        if dice < 0.2:
            history.append(["delete", name, {column: row[column] for column in tables[name]["key"]}])
        elif dice < 0.25:
            history.append(["quiet"])
        elif dice < 0.27:
            history.append(chance.choice([["truncate", name], ["snapshot", name, []]]))
        else:
            history.append(["put", name, row])
    return history


def _value(column: str, type_: str, pool: Mapping[str, Sequence[Any]], chance: random.Random) -> Any:
    if type_.endswith("?") and chance.random() < 0.2:
        return None
    if column in pool:
        return chance.choice(pool[column])
    n = chance.randint(1, 5)
    match type_.removesuffix("?").partition("(")[0]:
        case "char":
            return f"n{n}"
        case "date":
            return chance.choice([f"2026-01-0{n}Z", f"2026-0{n}-28Z", "2025-12-31Z"])
        case "datetime":
            near = f"2026-01-0{n}T0{n}:1{n}:00{chance.choice(['', '.5'])}Z"
            return chance.choice([near, f"2026-0{n}-28T10:30:00Z", "2025-12-31T23:59:59Z"])
        case "bit":
            return chance.random() < 0.5
        case "json":
            return chance.choice(_JSON)
    return value_of(type_.removesuffix("?"), chance)
