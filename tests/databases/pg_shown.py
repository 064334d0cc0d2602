"""The oracle of random databases: rows that PostgreSQL returns to SELECT, as a consumer of the topics should have them.

The conversions are independent and use no code under test.
"""

from __future__ import annotations

import base64
import json
import math
import re
import struct
from collections.abc import Callable
from typing import Any

from tests.databases.mysql_shown import as_json
from tests.databases.pg_tables import quoted
from tests.databases.shown import Cell, OddValue, ShownColumn, ShownTable

_SET = (
    "SET TimeZone = 'UTC'", "SET DateStyle = 'ISO'", "SET IntervalStyle = 'iso_8601'", "SET bytea_output = 'hex'",
    "SET extra_float_digits = 1",
)  # fmt: skip
_TABLES = """
SELECT c.oid::int8, c.relname, c.relkind::text, c.relpersistence::text, c.relreplident::text
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = 'public' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
"""
_COLUMNS = """
SELECT a.attrelid::int8, a.attname, format_type(a.atttypid, a.atttypmod), t.typtype::text, NOT a.attnotnull,
    CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, t.typtypmod) END, a.attgenerated::text
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid WHERE a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attrelid, a.attnum
"""
_KEYS = """
SELECT i.indrelid::int8, i.indisprimary, i.indisreplident, array_agg(a.attname ORDER BY k.n), bool_and(a.attnotnull)
FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey::int2[]) WITH ORDINALITY k (at, n)
JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.at
WHERE i.indisunique AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid GROUP BY i.indexrelid, 1, 2, 3
"""


def shown(connection: Any) -> dict[str, ShownTable]:
    """Return every table of the schema public, by name; partitions belong to their table, inheriting tables do not."""
    for statement in _SET:
        connection.execute(statement)
    columns: dict[int, list[ShownColumn]] = {}
    for oid, name, kind, sort, nullable, base, generated in connection.execute(_COLUMNS).fetchall():
        reported = "enum" if sort == "e" else base or kind
        one = ShownColumn(name=name, kind=reported, column_type=generated or kind, nullable=nullable)
        columns.setdefault(oid, []).append(one)
    keys: dict[int, list[tuple[bool, bool, tuple[str, ...], bool]]] = {}
    for oid, primary, identity, names, whole in connection.execute(_KEYS).fetchall():
        keys.setdefault(oid, []).append((primary, identity, tuple(names), whole))
    found = {}
    for oid, name, kind, persistence, identity in connection.execute(_TABLES).fetchall():
        usable = [one for one in keys.get(oid, []) if one[3] and (one[0] or one[1])]
        key = sorted(usable, key=lambda one: not one[0])[0][2] if usable else ()
        virtual = any(column.column_type == "v" for column in columns.get(oid, []))
        safe = _published(identity, keys.get(oid, [])) and not (virtual and identity == "f")
        leaves = kind == "p" and identity != "d"  # partitions do not inherit the replica identity
        engine = "logged" if persistence == "p" and identity != "n" and safe and not leaves else ""
        found[name] = ShownTable(
            name=name, kind=persistence, engine=engine, columns=tuple(columns.get(oid, [])), key=key,
            rows=_rows(connection, ("" if kind == "p" else "ONLY ") + quoted(name), columns.get(oid, [])),
        )  # fmt: skip
    return found


def _published(identity: str, keys: list[tuple[bool, bool, tuple[str, ...], bool]]) -> bool:
    """Return whether the application's UPDATEs work once the table is published."""
    return identity == "f" or any(primary if identity == "d" else named for primary, named, _, _ in keys)


def _rows(connection: Any, table: str, columns: list[ShownColumn]) -> list[dict[str, Cell]]:
    readers = [(column.name, _reader(column.kind)) for column in columns]
    asked = ", ".join(quoted(column.name) for column in columns)
    found = connection.execute(f"SELECT {asked} FROM {table}").pgresult
    rows = []
    for number in range(found.ntuples):
        row: dict[str, Cell] = {}
        for place, (name, read) in enumerate(readers):
            printed = found.get_value(number, place)
            row[name] = None if printed is None else read(printed.decode())
        rows.append(row)
    return rows


def _reader(kind: str) -> Callable[[str], Cell]:
    if kind.endswith("[]"):
        element = _reader(kind.removesuffix("[]"))
        return lambda printed: ("json", repr(_array(printed, element)))
    if kind in ("smallint", "integer", "bigint", "oid"):
        return int
    if kind == "boolean":
        return lambda printed: printed.startswith("t")
    if kind == "bit(1)":
        return lambda printed: printed == "1"
    if kind == "real":
        return lambda printed: _number(struct.unpack("f", struct.pack("f", float(printed)))[0], printed)
    if kind == "double precision":
        return lambda printed: _number(float(printed), printed)
    if found := re.fullmatch(r"numeric\((\d+),(-?\d+)\)", kind):
        digits, scale = int(found[1]), int(found[2])
        if digits <= 65 and 0 <= scale <= min(digits, 30):
            return lambda printed: OddValue(printed) if printed[-1].isalpha() else printed
    if kind == "date":
        return lambda printed: f"{printed}Z" if re.fullmatch(r"\d{4}-\d\d-\d\d", printed) else OddValue(printed)
    if kind.startswith("timestamp"):
        return _moment
    if kind == "bytea":
        return lambda printed: base64.b64encode(bytes.fromhex(printed[2:])).decode()
    if kind == "point":
        return _point
    if kind in ("json", "jsonb"):
        return as_json
    return str


def _number(value: float, printed: str) -> Cell:
    """Convert a number; NaN and infinities are texts, as Debezium publishes them."""
    return value if math.isfinite(value) else printed


def _point(printed: str) -> Cell:
    x, y = (float(one) for one in printed[1:-1].split(","))
    return ("point", f"{x} {y}") if math.isfinite(x) and math.isfinite(y) else OddValue(printed)


def _moment(printed: str) -> Cell:
    found = re.fullmatch(r"(\d{4}-\d\d-\d\d) (\d\d:\d\d:\d\d(?:\.\d+)?)(?:\+00)?", printed)
    return f"{found[1]}T{found[2]}Z" if found else OddValue(printed)


def _array(printed: str, element: Callable[[str], Cell]) -> Any:
    """Return the elements of an array as the server prints it, numbers as floats."""
    text = re.sub(r'"((?:[^"\\]|\\.)*)"|([{},])|([^{},"]+)', _token, printed)

    def read(one: Any) -> Any:
        if isinstance(one, list):
            return [read(each) for each in one]
        found = None if one is None else element(one)
        return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else found

    return read(json.loads(text))


def _token(found: re.Match[str]) -> str:
    if found[2]:
        return {"{": "[", "}": "]", ",": ","}[found[2]]
    if found[3] is not None:
        return "null" if found[3] == "NULL" else json.dumps(found[3])
    return json.dumps(re.sub(r"\\(.)", r"\1", found[1]))
