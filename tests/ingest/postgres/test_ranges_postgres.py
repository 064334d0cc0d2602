"""Large tables of PostgreSQL, divided into ranges of their keys: each row once, ranges of similar size."""

from __future__ import annotations

import pytest

from ingest.postgres.pg_snapshot import PgChunks, StreamedTransactions
from ingest.postgres.pg_source import PgSource
from ingest.run_capture import tables_of
from tests.support.pg_captured import Capture
from tests.support.ranges_read import check_ranges, sizes_of_ranges

ROWS = 12_000
# table → columns, and the values of the row n; `filler` makes blocks of few rows
KEYS = {
    "even": ("k int PRIMARY KEY, filler text", "n, repeat('x', 300)"),
    "far": ("k bigint PRIMARY KEY, filler text", "CASE n WHEN 11999 THEN 2 ^ 62 ELSE n END, repeat('x', 300)"),
    "ids": ("k uuid PRIMARY KEY, filler text", "md5(n::text)::uuid, repeat('x', 300)"),
    "several": ("a text, k int, filler text, PRIMARY KEY (a, k)", "'t' || n % 5, n, repeat('x', 300)"),
    "parts": ("k int PRIMARY KEY, filler text", "n, repeat('x', 300)"),
}


@pytest.mark.matrix  # dividing without servers: tests/laws/test_capture.py, tests/ingest/mysql/test_key_points.py
def test_ranges_contain_each_row_once(capture: Capture) -> None:
    """Whatever the type of the key, and with gaps; partitioned tables and those without statistics are divided."""
    captured = capture(f"[{', '.join(KEYS)}]")
    for name, (columns, values) in KEYS.items():
        rows = f"generate_series(0, {ROWS - 1}) n"
        if name == "parts":
            captured.sql(
                f"CREATE TABLE parts ({columns}) PARTITION BY RANGE (k)",
                "CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (MINVALUE) TO (3000)",
                "CREATE TABLE parts_2 PARTITION OF parts FOR VALUES FROM (3000) TO (MAXVALUE)",
            )
        else:
            captured.sql(f"CREATE TABLE {name} ({columns})")
        captured.sql(f"INSERT INTO {name} SELECT {values} FROM {rows}")
        if name in ("even", "parts"):
            captured.sql(f"ANALYZE {name}")
    server = PgSource(captured.source, captured.name)
    seen, start = server.seen(), server.head()
    tables = tables_of(captured.source)(seen)
    tables.begin(seen.catalog)
    reader = PgChunks(captured.source, StreamedTransactions(), rows=50)
    try:
        for schema in tables.schemas():
            check_ranges(*sizes_of_ranges(reader, schema, start, 6), ROWS, 6)
    finally:
        reader.close()
