"""Large tables of a real server, divided into ranges of their keys: each row once, ranges of similar size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from cdc.topology.reader import read_topology
from ingest.mysql.mysql_snapshot import MySqlChunks
from ingest.mysql.mysql_source import MySqlSource
from ingest.run_capture import tables_of
from tests.support.ranges_read import check_ranges, sizes_of_ranges

pytestmark = [pytest.mark.integration, pytest.mark.kafka("mysql-shop"), pytest.mark.timeout(180)]
ROWS = 3000
# table → columns of its key, and their values in the row n
KEYS: dict[str, tuple[str, str]] = {
    "even": ("k INT PRIMARY KEY", "n"),
    "far": ("k BIGINT UNSIGNED PRIMARY KEY", "IF(n = 2999, 18446744073709551615, n)"),
    "tenants": ("a INT, k BIGINT, PRIMARY KEY (a, k)", "7, n * n"),
    "folded": ("k VARCHAR(50) COLLATE utf8mb4_unicode_ci PRIMARY KEY", "CONCAT(IF(n % 2, 'Ä', 'a'), SHA1(n))"),
    "bytes": ("k BINARY(16) PRIMARY KEY", "UNHEX(MD5(n))"),
    "moments": ("k DATETIME(6) PRIMARY KEY", "TIMESTAMPADD(SECOND, n * 7919, '2020-01-01 00:00:00.5')"),
    "amounts": ("k DECIMAL(12,3) PRIMARY KEY", "n * 1.125 - 1000"),
    "several": ("a VARCHAR(9), k DATE, b INT, PRIMARY KEY (a, k, b)", "CONCAT('t', n % 50), '2020-01-01', n"),
}


@pytest.mark.matrix  # dividing without servers: tests/laws/test_capture.py, tests/ingest/mysql/test_key_points.py
def test_ranges_contain_each_row_once(capture: Callable[..., Any]) -> None:
    """Whatever the type and collation of the key, and with gaps; composite keys are divided, too."""
    captured = capture(*KEYS)
    digits = " UNION ALL ".join(f"SELECT {n} d" for n in range(10))
    captured.sql(
        "CREATE TABLE numbers (n INT PRIMARY KEY)",
        f"INSERT INTO numbers SELECT a.d + 10 * b.d + 100 * c.d + 1000 * e.d FROM ({digits}) a, ({digits}) b, "
        f"({digits}) c, ({digits}) e WHERE e.d < 3",
    )
    for name, (columns, values) in KEYS.items():
        captured.sql(f"CREATE TABLE {name} ({columns})", f"INSERT INTO {name} SELECT {values} FROM numbers")
    source = read_topology(captured.file.read_text(), file="t.yml", environ={}).sources["shop"]
    server = MySqlSource(source)
    seen, start = server.seen(), server.head()
    tables = tables_of(source)(seen)
    tables.begin(seen.catalog)
    schemas = {schema.table_id.table: schema for schema in tables.schemas()}
    reader = MySqlChunks(source, rows=50)
    try:
        for name in KEYS:
            check_ranges(*sizes_of_ranges(reader, schemas[name], start, 6), ROWS, 6)
    finally:
        reader.close()
