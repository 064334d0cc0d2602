"""Divide the rest of a table into ranges of its key, by the row estimates of the server's optimizer.

The server estimates the rows of a range from a few pages of its index, so this takes milliseconds for a table of any
size. Only the first key column whose value differs between the first and the last row is divided. The keys between two
ranges are keys of rows, and the server compares them: their order is right for every type and collation.
"""

from __future__ import annotations

from typing import Any

from cdc.model.schema import TableSchema
from ingest.mysql.key_points import divided, key_points
from ingest.mysql.mysql_connection import Connection, query
from ingest.records import chunks
from ingest.records.chunk_requests import Key

_BUDGET = 200  # values per table whose rows are estimated
_SURE = 0.4  # InnoDB never estimates a range to contain more than half of the table's rows


def cuts_of(connection: Connection, schema: TableSchema, after: Key, last: Key, wanted: int, least: int) -> list[Key]:
    """Return keys that divide the rows above `after` up to `last` into at most `wanted` ranges of about equal size.

    No range should have fewer than `least` rows. Raises PyMySQL's errors.
    """
    at = next((at for at, (low, high) in enumerate(zip(after, last, strict=True)) if low != high), None)
    column = None if at is None else schema.column(schema.primary_key[at])
    if at is None or column is None:
        return []
    points = key_points(column.type.kind, after[at], last[at], folds=not (column.collation or "").endswith("_bin"))
    if points is None or points.low >= points.high:
        return []

    total = _estimate(connection, chunks.select_every_key(schema))

    def estimate(number: int) -> float:
        if number >= points.high:
            return total
        value, begin = points.value(number), after[:at]
        below = _estimate(connection, chunks.select_between(schema, begin, after[at], value))
        if below < _SURE * total:
            return below
        above = _estimate(connection, chunks.select_between(schema, begin, value, last[at]))
        return max(below, total - above)

    wanted = min(wanted, int(total / least))
    if wanted < 2:
        return []
    found: list[Key] = []
    for number in divided(points.low, points.high, wanted, estimate, _BUDGET):
        sql = chunks.select_first(schema, found[-1] if found else after, [*after[:at], points.value(number)], last)
        rows = query(connection, sql)
        found += [[chunks.stored(value) for value in row] for row in rows]
    return found


def _estimate(connection: Connection, sql: str) -> float:
    """Return how many rows the server expects to find for a SELECT of one table."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN {sql}")
        names = [column[0] for column in cursor.description]
        plan: dict[str, Any] = dict(zip(names, cursor.fetchone() or (), strict=False))
    return float(plan.get("rows") or 0) * float(plan.get("filtered") or 100) / 100
