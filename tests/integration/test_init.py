"""`tailorbird init` on a real MySQL: databases in shapes that people try first become valid topologies."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cdc.process.file_topology import load_topology
from tailorbird.cli.app import app
from tailorbird.deploy.draft.address import address_of
from tailorbird.deploy.draft.guess import guess
from tailorbird.deploy.draft.mysql_shape import count_keys, read_shape
from tailorbird.deploy.draft.settle import settled
from tests.integration.made_databases import Makes, made, reported
from tests.support.pg_servers import PgServer
from tests.support.schemas_made import SHAPES, SampleDatabase

pytestmark = pytest.mark.integration
__all__ = ["made"]  # the fixture


@pytest.mark.parametrize("shape", SHAPES)
def test_a_database_becomes_a_topology(
    made: Makes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: str
) -> None:
    """The shape read from a server equals the declared one, and the written file validates; its source has no
    faults."""
    monkeypatch.setenv("MINE", "cdc")
    url, file = made(SHAPES[shape]()), tmp_path / "mine.yml"
    said = reported("init", url, "--out", str(file), "--name", "mine", "--password-env", "MINE")
    assert f"tailorbird run {file} --page-port 8080" in said
    # the password is "cdc", too: the file has the word only as the user name
    assert not re.search(r"\bcdc\b", file.read_text().replace("username: cdc", ""))
    assert f"{file} is valid: 1 source," in reported("validate", str(file))
    server, _ = address_of(url)
    topology = load_topology(str(file))
    (source,) = topology.sources.values()
    assert source.database == server.database
    # the same as of the shape itself, but for the database's name
    found = SHAPES[shape]().found(source.name)
    drafted, _ = settled(guess("mine", [found], 2), "mine.yml")
    assert list(topology.tables) == [table.name for table in drafted.tables]
    for table in drafted.tables:
        assert topology.tables[table.name].row_key == tuple(table.row_key)
        assert list(topology.dashboards[table.name].columns)
    assert {t.table for t in source.tables} == {t.name for s in drafted.sources for t in drafted.captured(s)}


def test_databases_apart_are_joined_by_names(made: Makes) -> None:
    """No foreign key connects two servers: matching names do, if the values agree."""
    shop = SampleDatabase(
        name="shop",
        tables={"orders": "id INT PRIMARY KEY, customer_id BIGINT NOT NULL, city_id INT, note VARCHAR(80)"},
        rows={"orders": [{"id": n, "customer_id": n % 9 + 1, "city_id": 100 + n} for n in range(1, 40)]},
    )
    crm = SampleDatabase(
        name="crm",
        tables={"customers": "id INT PRIMARY KEY, name VARCHAR(60)", "cities": "id INT PRIMARY KEY, name VARCHAR(60)"},
        rows={key: [{"id": n, "name": f"Name {n}"} for n in range(1, 20)] for key in ("customers", "cities")},
    )
    urls = [made(each).replace("cdc@", "cdc:cdc@") for each in (shop, crm)]
    text = reported("init", urls[0], urls[1], "--out", "-", "--tables", "1")
    assert "customer ON customer.id = orders.customer_id" in text
    assert "9 of 9 values read are keys there" in " ".join(text.split())
    assert "orders.city_id =" not in text  # none of its values is a city


def test_mysql_and_postgresql_are_one_topology(
    made: Makes, postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """Foreign keys of PostgreSQL are followed, matching names join the servers if the values agree, and tables that
    cannot be published are left out with the reason. The file validates against both servers.
    """
    shop = SampleDatabase(
        name="shop",
        tables={"orders": "id INT PRIMARY KEY, customer_id BIGINT NOT NULL, note VARCHAR(80)"},
        rows={"orders": [{"id": n, "customer_id": n % 9 + 1} for n in range(1, 40)]},
    )
    name, file = unique("billing"), tmp_path / "mixed.yml"
    with postgres_server.session() as owner:
        owner.execute(f"CREATE DATABASE {name} OWNER app")
    with postgres_server.session(name) as session:
        for statement in (
            "CREATE SCHEMA sales",
            "CREATE TABLE sales.regions (id SMALLINT PRIMARY KEY, title TEXT)",
            "CREATE TABLE sales.customers (id INT PRIMARY KEY, name TEXT, region SMALLINT REFERENCES sales.regions)",
            "CREATE TABLE sales.heap (a INT)",
            "CREATE UNLOGGED TABLE sales.scratch (id INT PRIMARY KEY)",
            "CREATE VIEW sales.shown AS SELECT id FROM sales.customers",
            "INSERT INTO sales.regions SELECT g, 'r' || g FROM generate_series(1, 3) g",
            "INSERT INTO sales.customers SELECT g, 'Name ' || g, g % 3 + 1 FROM generate_series(1, 20) g",
        ):
            session.execute(statement)
    postgres = f"postgresql://cdc:cdc@127.0.0.1:{postgres_server.port}/{name}"
    monkeypatch.setenv("MINE", "cdc")
    urls = made(shop).replace("cdc@", "cdc:cdc@"), f"{postgres}?schema=sales"
    reported("init", *urls, "--out", str(file), "--tables", "1", "--password-env", "MINE")
    text = " ".join(file.read_text().split())
    assert "customer ON customer.id = orders.customer_id" in text
    assert "region ON region.id = customer.region" in text
    assert "type: postgresql" in text
    assert "database: sales" in text
    for reason in ("heap: has no replica identity", "scratch: a unlogged table", "shown: a view"):
        assert reason in text, text
    assert f"{file} is valid: 2 sources" in reported("validate", str(file))
    topology = load_topology(str(file))
    assert {(s.type, len(s.tables)) for s in topology.sources.values()} == {("mysql", 1), ("postgresql", 2)}
    runner = CliRunner()
    for wrong, reason in ((f"{postgres}?schema=nope", "no schema nope"), (f"{postgres}?x=1", "option 'x'")):
        result = runner.invoke(app, ["init", wrong, "--out", "-"])
        assert reason in str(result.exception)
        assert "cdc:cdc" not in str(result.exception)


def test_two_databases_and_wrong_arguments(made: Makes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each database becomes a source; a wrong password, a missing database and an unavailable server are reported in
    one line.
    """
    first, second = made(SHAPES["music"]()), made(SHAPES["trade"]())
    file = tmp_path / "both.yml"
    with_password = [url.replace("cdc@", "cdc:cdc@") for url in (first, second)]
    words = ["init", with_password[0], with_password[1], "--out", str(file)]
    said = reported(*words)
    assert "export " in said  # the file's variables are not set yet
    assert "cdc:cdc" not in said + file.read_text()
    runner = CliRunner()
    nowhere = first.rpartition("/")[0] + "/nowhere"
    unavailable = "mysql://cdc:cdc@127.0.0.1:1/shop"
    for wrong, reason in (
        ([*words], "already exists"),
        (["init", first, "--out", str(tmp_path / "a.yml")], "no password for cdc"),
        (["init", first.replace("cdc@", "cdc:no@"), "--out", "-"], "Access denied"),
        (["init", nowhere.replace("cdc@", "cdc:cdc@"), "--out", "-"], "no database nowhere"),
        (["init", first, "--out", "-", "--password-env", "a-b"], "not a variable name"),
        (["init", unavailable, "--out", "-"], "127.0.0.1:1"),
    ):
        result = runner.invoke(app, wrong)
        assert reason in str(result.exception)
        assert getattr(result.exception, "exit_code", None) == 2, result.exception
        assert getattr(result.exception, "hint", "")
    server, password = address_of(with_password[0])
    shown = read_shape(replace(server, source="one"), password or "")
    (employee,) = (r for r in shown.references if str(r) == "Employee.ReportsTo")
    assert count_keys(shown, "cdc", employee, ["1", "2", "99"]) == 2
    assert {t.name: t.count for t in read_shape(server, password or "").tables}.keys() == set(SHAPES["music"]().tables)
