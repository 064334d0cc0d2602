"""`tailorbird stack mysql` against the real servers, and the privileges of the stack's users there."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator

import pytest

from cdc.model.errors import Retriable, UsageError
from cdc.model.schema import TableId
from cdc.topology.topology import Source
from tailorbird.devtools.stack.mysql_client import MySqlClient, opened
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.doctor.doctor import grants
from tailorbird.operate.probes.login import Login
from tests.support.commands import tailorbird

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def port() -> int:
    return int(os.environ["TAILORBIRD_PORT_MYSQL_SHOP"])


@pytest.fixture
def database(unique: Callable[[str], str]) -> Iterator[str]:
    """A test's database, created by the command itself."""
    name = unique("sql")
    assert said(f"CREATE DATABASE {name}") == ""
    yield name
    assert said(f"DROP DATABASE {name}") == ""


def said(text: str, *options: str, code: int = 0) -> str:
    """Return the output of the command for SQL that is piped into it."""
    done = tailorbird("stack", "mysql", "shop", *options, given=text)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def test_piped_statements_run_in_order(database: str) -> None:
    """A dump loads, rows are printed with tabs; the first error ends the command, in one line with the statement."""
    rows = "(1, 'ä;\tb', NULL), (2, '%', 0xff00)"
    dump = f"CREATE TABLE t (id INT PRIMARY KEY, v TEXT, b VARBINARY(4));\nINSERT INTO t VALUES {rows};"
    assert said(dump, "-D", database) == ""
    assert said("", "-D", database, "-e", "SELECT * FROM t ORDER BY id") == "id\tv\tb\n1\tä;\\tb\tNULL\n2\t%\t0xff00\n"
    fault = said("INSERT INTO t VALUES (3, '', ''); SELECT no;\nDELETE FROM t;", "-D", database, code=2)
    assert "Unknown column 'no'" in fault
    assert len(fault.strip().splitlines()) == 1
    assert said("SELECT COUNT(*) AS n FROM t", "-D", database) == "n\n3\n"


def test_the_prompt_continues_after_an_error(database: str) -> None:
    """The prompt prints an error and reads the next statement; statements may span several lines."""
    out, faults, asked = io.StringIO(), list[str](), list[str]()
    lines = iter(["SELECT no;", "SELECT 'a'", "  AS x;", "exit"])

    def ask(prompt: str) -> str:
        asked.append(prompt)
        return next(lines)

    with opened("127.0.0.1", port(), LOAD_LOGIN, database, "shop") as connection:
        MySqlClient(connection, out, plain=False).converse(ask, "shop", faults.append)
    assert asked == ["shop> ", "shop> ", "  ->  ", "shop> "]
    assert ["Unknown column" in fault for fault in faults] == [True]
    assert "│ a │" in out.getvalue()
    assert "1 row\n" in out.getvalue()


def test_a_refused_login_is_reported_with_its_remedy() -> None:
    """A wrong login, a wrong database and an unavailable server are reported as such."""
    with pytest.raises(UsageError, match="--user"):
        opened("127.0.0.1", port(), Login(user="app", password="wrong"), None, "shop")
    with pytest.raises(UsageError, match="--database"):
        opened("127.0.0.1", port(), LOAD_LOGIN, "no_such_database", "shop")
    with pytest.raises(Retriable, match="stack up"):
        opened("127.0.0.1", 9, LOAD_LOGIN, None, "shop")


@pytest.mark.parametrize("policy", ["drop", "accept"])
def test_the_grants_that_doctor_prints_can_be_run(database: str, policy: str) -> None:
    """The login that `stack up` prints may grant another user what capture needs."""
    user = f"u_{database[-12:]}"
    source = Source(
        name="shop", type="mysql", hostname="127.0.0.1", port=port(), username=user, password="x", database=database,
        tables=(TableId(source="shop", database=database, table="t"),), server_id=5, snapshot_mode="initial",
        filter_policy="accept" if policy == "accept" else "drop",
    )  # fmt: skip
    granted = "; ".join(grants(source))
    made = f"CREATE TABLE t (id INT PRIMARY KEY); CREATE USER '{user}'@'%' IDENTIFIED BY 'x';"
    assert said(f"{made} {granted}; DROP USER '{user}'@'%'", "-D", database) == ""
