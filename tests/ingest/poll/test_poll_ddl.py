"""`tailorbird poll ddl`: the DDL that a table needs before it can be polled."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.model.errors import UsageError
from cdc.model.polling import Poll
from cdc.model.schema import TableId
from ingest.poll.ddl import statements
from tailorbird.cli.app import app

ROOT = Path(__file__).parents[3]
POLLED = str(ROOT / "topologies" / "polled.yml")
TABLE = TableId(source="s", database="shop", table="or`ders")
UPDATED_AT = Poll(cursor="updated_at", mode="updated_at", limit=1, interval=1.0, lag=1.0)
FEED = Poll(cursor="feed_sync_id", mode="feed", limit=1, interval=1.0, lag=0.0)


def test_mysql_gets_the_column_and_its_index() -> None:
    """One ALTER TABLE adds the column that the server maintains itself."""
    assert [" ".join(sql.split()) for sql in statements("mysql", TABLE, UPDATED_AT)] == [
        "ALTER TABLE `shop`.`or``ders` ADD COLUMN `updated_at` TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) "
        "ON UPDATE CURRENT_TIMESTAMP(3), ADD INDEX `idx__updated_at` (`updated_at`)"
    ]
    assert "UNIQUE INDEX" in statements("mariadb", TABLE, FEED)[0]


def test_every_dialect_with_a_recipe_gets_an_index() -> None:
    """Without the index every poll would read the whole table."""
    for dialect in ("mysql", "mariadb", "postgresql", "sqlite"):
        for poll in (UPDATED_AT, FEED):
            assert any("INDEX" in sql and poll.cursor in sql for sql in statements(dialect, TABLE, poll))


def test_for_an_unknown_dialect_manual_steps_are_printed() -> None:
    """No DDL is guessed for an unsupported database."""
    with pytest.raises(UsageError, match="set updated_at in every INSERT"):
        statements("oracle", TABLE, UPDATED_AT)


def test_the_command_prints_sql_or_json_for_polled_tables_only() -> None:
    """The output can be piped into a client; `--json` names the table of each statement."""
    printed = CliRunner().invoke(app, ["poll", "ddl", POLLED])
    assert printed.exit_code == 0, printed.output
    assert printed.output.startswith("ALTER TABLE `crm`.`customers`")
    assert printed.output.endswith(";\n")
    reported = CliRunner().invoke(app, ["poll", "ddl", POLLED, "--table", "crm.customers", "--json"])
    assert json.loads(reported.stdout)["table"] == "crm.crm.customers"
    with pytest.raises(UsageError, match="polls no such table"):
        CliRunner().invoke(app, ["poll", "ddl", POLLED, "--table", "none"], catch_exceptions=False)
