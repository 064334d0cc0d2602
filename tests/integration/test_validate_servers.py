"""`validate` and `explain-plan` with the schemas of the sources' own servers, before the first capture."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest
from typer.testing import CliRunner

from tailorbird.cli.app import app
from tailorbird.devtools.stack.settings import LOAD_LOGIN

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOPOLOGY = """\
name: {name}
sources:
  shop:
    type: mysql
    hostname: 127.0.0.1
    port: {port}
    username: {user}
    password: {password}
    database: {name}
    tables: [orders, customers, loud, gone]
    server_id: 7
log: {{bootstrap_servers: "127.0.0.1:9"}}
tables:
  wide:
    query: {query}
    row_key: [id]
indexes:
  wide: {{table: wide}}
dashboards:
  desk: {{index: wide, facets: [{facet}]}}
"""
SQL = (
    "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(20), mail VARCHAR(20) UNIQUE)",
    "CREATE TABLE orders (id INT PRIMARY KEY, customer_id INT, mail VARCHAR(20), place POINT, status SET('a','b'))",
    "CREATE VIEW loud AS SELECT id, UPPER(status) AS status FROM orders",
)
RIGHT = "SELECT o.*, c.name FROM shop.orders o LEFT JOIN shop.customers c ON c.id = o.customer_id"


class CheckedTopology:
    """A topology over a database of the test, and the output of the commands about it."""

    def __init__(self, file: Path, name: str) -> None:
        self.file, self.name = file, name
        self.port = int(os.environ["TAILORBIRD_PORT_MYSQL_SHOP"])

    def said(self, query: str, *options: str, command: str = "validate", facet: str = "name", port: int = 0) -> str:
        """Return the output of a command and the error that ends it, if any."""
        login = {"user": LOAD_LOGIN.user, "password": LOAD_LOGIN.password}
        text = TOPOLOGY.format(name=self.name, port=port or self.port, query=query, facet=facet, **login)
        self.file.write_text(text)
        result = CliRunner().invoke(app, [command, str(self.file), *options])
        return result.output + (str(result.exception) if result.exception else "")


@pytest.fixture
def checked(unique: Callable[[str], str], tmp_path: Path) -> Iterator[CheckedTopology]:
    """Create the topology and its database, which is dropped at the end."""
    found = CheckedTopology(tmp_path / "t.yml", unique("valid"))
    connection = pymysql.connect(host="127.0.0.1", port=found.port, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
    with connection, connection.cursor() as cursor:
        for statement in (f"CREATE DATABASE {found.name}", f"USE {found.name}", *SQL):
            cursor.execute(statement)
        yield found
        cursor.execute(f"DROP DATABASE {found.name}")


def test_queries_are_compiled_with_the_servers_columns(checked: CheckedTopology) -> None:
    """Misspelt columns, joins that miss the key, views and geometries used as text are reported before anything
    runs."""
    assert "is valid" in checked.said(RIGHT)
    columns = json.loads(checked.said(RIGHT, "--json"))["tables"]["wide"]
    assert columns == ["id", "customer_id", "mail", "place", "status", "name"]
    assert "unknown column nme" in checked.said(RIGHT, facet="nme")
    misspelt = checked.said("SELECT o.id, o.statsu AS name FROM shop.orders o")
    assert f"{checked.file}:15: tables.wide.query: unknown column o.statsu" in misspelt
    assert "or a join by the primary key" in checked.said(
        "SELECT o.id, c.name FROM shop.orders o LEFT JOIN shop.customers c ON c.mail = o.mail"
    )
    assert "is valid" in checked.said("SELECT o.id, ST_AsText(o.place) AS name FROM shop.orders o")
    assert "point in UPPER(o.place)" in checked.said("SELECT o.id, upper(o.place) AS name FROM shop.orders o")
    view = checked.said("SELECT l.id, l.status AS name FROM shop.loud l")
    assert f"{checked.name}.loud: is a view: the log contains no rows of it" in view
    assert "make its SELECT a query under `tables:`" in view
    assert "ENGINE" not in view


def test_unavailable_servers_and_missing_tables_are_reported(checked: CheckedTopology) -> None:
    """They leave a topology valid, as far as it can be checked."""
    gone = checked.said("SELECT g.id, g.name FROM shop.gone g")
    assert "is valid" in gone
    assert f"not checked: columns, keys and types of wide: source shop: {checked.name}.gone: there is no such" in gone
    unavailable = checked.said(RIGHT, port=9)
    assert "is valid" in unavailable
    assert "not checked: columns, keys and types of wide: source shop at 127.0.0.1:9: " in unavailable
    assert "not checked" not in checked.said(RIGHT, "--offline", port=9)


def test_a_plan_is_explained_before_anything_is_captured(checked: CheckedTopology) -> None:
    """Schemas that are not in the log are read from their servers; if neither has them, both are named."""
    reported = checked.said(RIGHT, command="explain-plan")
    assert f"read from the server: shop.{checked.name}.customers, shop.{checked.name}.orders" in reported
    assert "status" in reported
    neither = checked.said("SELECT g.id, g.name FROM shop.gone g", command="explain-plan")
    assert f"no schema of shop.{checked.name}.gone in the log at 127.0.0.1:9" in neither
    assert "there is no such table" in neither
