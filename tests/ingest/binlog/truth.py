"""Replay row changes into tables and compare the result with the server's content, for the sample binlogs."""

from __future__ import annotations

import base64
import json
import re
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

Row = tuple[Any, ...]


def canonical(value: Any, declared: str) -> Any:
    """Convert a cell so that the server's text and the decoder's value are equal exactly when they have the same
    meaning."""
    if value is None:
        return None
    kind = declared.lower()
    if isinstance(value, dict) and set(value) == {"b64"}:
        value = base64.b64decode(value["b64"])
    if kind.startswith("json"):
        text = value if isinstance(value, str) else json.dumps(value)
        return ("json", json.dumps(json.loads(text, parse_float=Decimal), sort_keys=True, default=lambda d: float(d)))
    if kind.startswith("bit"):
        return int.from_bytes(value, "big") if isinstance(value, bytes) else int(value)
    if re.match(r"(tiny|small|medium|big)?int|year", kind):
        return int(value)
    if kind.startswith("decimal"):
        return Decimal(str(value))
    if kind.startswith("float"):
        return f"{float(value):.5g}"
    if kind.startswith("double"):
        return float(value)
    if kind.startswith(("datetime", "timestamp", "time")):
        return str(value)
    if isinstance(value, bytes) and re.match(r"char|varchar|(tiny|medium|long)?text|enum|set", kind):
        return value.decode()
    return value


def play(lines: Iterable[bytes], truth: dict[str, Any]) -> dict[str, Counter[Row]]:
    """Return the rows of every table at the end; raise AssertionError if a change does not find its row."""
    names = {name.lower(): name for name in truth}
    tables: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        change = json.loads(line)
        key = f"{change['db']}.{change['table']}".lower()
        rows = tables.setdefault(key, [])
        if change["op"] == "insert":
            rows.append(change["after"])
        elif change["op"] in ("update", "delete"):
            place = next((i for i, row in enumerate(rows) if row == change["before"]), None)
            assert place is not None, f"{change['op']} of a row that is not there: {line[:200]!r}"
            rows[place : place + 1] = [change["after"]] if change["op"] == "update" else []
        elif change["op"] == "truncate":
            rows.clear()
        elif change["op"] == "drop":
            del tables[key]
        elif change["op"] == "rename":
            tables[f"{change['to_db']}.{change['to_table']}".lower()] = tables.pop(key)
    result: dict[str, Counter[Row]] = {}
    for key, name in names.items():
        columns = truth[name]["columns"]
        result[name] = Counter(
            tuple(canonical({k.lower(): v for k, v in row.items()}[c[0].lower()], c[1]) for c in columns)
            for row in tables.get(key, [])
        )
    return result


def expected(truth: dict[str, Any]) -> dict[str, Counter[Row]]:
    """Return the server's content."""
    return {
        name: Counter(
            tuple(canonical(cell, column[1]) for cell, column in zip(row, table["columns"], strict=True))
            for row in table["rows"]
        )
        for name, table in truth.items()
    }
