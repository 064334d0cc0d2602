"""Dead letters, counts and checkpoints contain no values of masked or ignored columns, on MySQL and PostgreSQL.

Rows have such values in every place where capture judges values: in the log, in a snapshot, in a row of a refused key,
in a row that is too large, and in an event that cannot be decoded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from tests.hostile.policed import leaked, policed
from tests.ingest.binlog.binlog_servers import Server
from tests.support.pg_captured import captured
from tests.support.pg_servers import PgServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
# dates that capture cannot represent, as the servers print them
MYSQL_DAYS, PG_DAYS = ("1987-00-00", "1944-00-17", "2003-02-00"), ("31987-01-02", "41944-03-04", "52003-05-06")
SECRETS = ["maskedSECRET", "ignoredSECRET"]


@pytest.fixture
def mysql(mysql80: Server) -> Iterator[Server]:
    """Let the server accept dates that are no days, for one test."""
    with mysql80.session() as connection, connection.cursor() as cursor:
        cursor.execute("SELECT @@GLOBAL.sql_mode")
        (before,) = cursor.fetchone()
        cursor.execute("SET GLOBAL sql_mode = ''")
        yield mysql80
        cursor.execute("SET GLOBAL sql_mode = %s", (before,))


def found_in(records: list[Any]) -> list[dict[str, Any]]:
    return [orjson.loads(one.value) for one in records if one.topic.endswith(".deadletters") and one.value]


def test_mysql(mysql: Server) -> None:
    """Columns `born` and `died` are masked and ignored; a wrong `seen` makes the row a dead letter."""
    policy = "{people: {mask: {born: redact, secret: redact}, ignored_columns: [died, hidden]}}"
    capture = policed(mysql, "people", policy, "people")
    capture.unrepresentable = "dead_letter"
    capture.sql(
        "CREATE TABLE people (id INT PRIMARY KEY, born DATE, died DATE, seen DATE, big LONGTEXT,"
        " secret VARCHAR(60), hidden VARCHAR(60))"
    )
    row = "INSERT INTO people VALUES ({0}, '{1}', '{2}', {3}, {4}, 'maskedSECRET', 'ignoredSECRET')"
    born, died, seen = MYSQL_DAYS
    capture.sql(row.format(1, born, died, f"'{seen}'", "''"), row.format(2, born, died, "'2020-01-01'", "''"))
    capture.start()
    capture.wait(lambda: [one["id"] for one in capture.rows("people")] == [2], "the snapshot is missing")
    capture.sql(
        row.format(3, born, died, f"'{seen}'", "''"),
        row.format(4, born, died, "'2020-01-01'", "REPEAT('x', 9000000)"),
        row.format(5, born, died, "'2020-01-01'", "''"),
        "UPDATE people SET secret = 'maskedSECRET2', hidden = 'ignoredSECRET2', seen = '2003-02-00' WHERE id = 2",
    )
    capture.wait(lambda: 5 in [one["id"] for one in capture.rows("people")], "a row is missing")
    capture.stop()
    dead_letters = found_in(capture.broker.records)
    assert {orjson.loads(one["key"])["id"] for one in dead_letters if one.get("key")} >= {1, 3, 4}
    whys = [one["why"] for one in dead_letters if "values" in one]
    assert any(f"column seen: {seen}" in why for why in whys), "the reason names visible columns"
    sent = capture.sent()
    assert not leaked(sent, SECRETS)
    assert not leaked(sent, [born, died])
    assert all(not {"died", "hidden"} & set(one["values"]) for one in dead_letters if "values" in one)


def test_postgresql(postgres_server: PgServer) -> None:
    """The same for a topology that masks and ignores columns."""
    options = "{t: {mask: {born: redact, secret: redact}, ignored_columns: [died, hidden]}}"
    capture = captured(postgres_server, "people35", options, ", unrepresentable: dead_letter")
    try:
        capture.sql(
            "CREATE TABLE t (id INT PRIMARY KEY, born DATE, died DATE, seen DATE, big TEXT, secret TEXT, hidden TEXT)"
        )
        row = "INSERT INTO t VALUES ({0}, '{1}', '{2}', '{3}', {4}, 'maskedSECRET', 'ignoredSECRET')"
        born, died, seen = PG_DAYS
        capture.sql(row.format(1, born, died, seen, "''"), row.format(2, born, died, "2020-01-01", "''"))
        capture.start()
        capture.caught_up()
        capture.sql(
            row.format(3, born, died, seen, "''"),
            row.format(4, born, died, "2020-01-01", "REPEAT('x', 9000000)"),
            row.format(5, born, died, "2020-01-01", "''"),
            "UPDATE t SET secret = 'maskedSECRET2', hidden = 'ignoredSECRET2' WHERE id = 2",
        )
        capture.caught_up()
        capture.stop()
        dead_letters = capture.dead_letters()
        assert {orjson.loads(one["key"])["id"] for one in dead_letters if one.get("key")} >= {1, 3, 4}
        assert any(f"column seen: {seen}" in one["why"] for one in dead_letters if "values" in one)
        sent = b"\n".join(part for one in capture.broker.records for part in (one.key, one.value or b""))
        sent += orjson.dumps([one.state for one in capture.broker.checkpoints], default=str)
        assert not leaked(sent, [*SECRETS, born, died])
        assert all(not {"died", "hidden"} & set(one["values"]) for one in dead_letters if "values" in one)
    finally:
        capture.close()
