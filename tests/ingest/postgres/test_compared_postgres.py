"""The comparison's own reading of PostgreSQL, independent of the capture's code, equals the captured rows."""

from __future__ import annotations

import pytest

from tailorbird.verify.pg_tables import read_postgres
from tailorbird.verify.sql_oracle import answer
from tests.support.pg_captured import Capture


@pytest.mark.integration
def test_the_databases_answer_equals_the_log(capture: Capture) -> None:
    """Row by row and field by field, over columns of many types."""
    captured = capture()
    captured.sql(
        "CREATE TABLE t (id INT PRIMARY KEY, title VARCHAR(200) NOT NULL, price NUMERIC(10,2), ok BOOL, "
        "made TIMESTAMP, at TIMESTAMPTZ, due DATE, ratio FLOAT8, note TEXT, part INT2, sum INT8, code CHAR(5), "
        "exact NUMERIC, tags TEXT[], about JSONB, said JSON, who UUID, span TIME)",
        "INSERT INTO t SELECT g, 'ä' || g, g / 3.0, g % 2 = 0, timestamp '2020-01-01' + g * interval '1.5 seconds', "
        "to_timestamp(g), date '2020-01-01' + g, g / 7.0, CASE WHEN g % 3 = 0 THEN NULL ELSE 'n' END, g, g, "
        "'c' || g % 9, g / 7.0, ARRAY['a', g::text, NULL], jsonb_build_object('n', g, 'l', '[1, 2.50]'::jsonb), "
        "'{\"b\":  1, \"a\": [1,2]}', md5(g::text)::uuid, time '10:00' + g * interval '0.25 s' "
        "FROM generate_series(1, 200) g",
    )
    captured.start()
    captured.caught_up()
    captured.sql("UPDATE t SET price = 5 WHERE id < 10", "DELETE FROM t WHERE id = 11")
    captured.caught_up()
    captured.stop()
    tables = read_postgres(captured.topology.sources["shop"])
    query = "SELECT a.id, a.title, a.price, a.ok, a.made, a.at, a.due, a.ratio, a.note, a.part, a.sum, "
    query += "a.code, a.exact, a.tags, a.about, a.said, a.who, a.span FROM shop.t a"
    (table,) = captured.topology.tables.values()
    found = answer(
        captured.topology, type(table)(name="w", query=query, row_key=("id",), family="d", salt_buckets=1), tables
    )
    assert {row["id"]: row for row in found.rows} == {row["id"]: row for row in captured.state("t").values()}
    assert len(found.rows) == 199
