"""Hidden columns stay on the host, whatever schema history a gateway returns and however the server logs rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.model.naming import history_topic
from ingest.records.position_writer import PositionWriter
from tests.hostile.policed import PolicedCapture, leaked, policed, policy_text
from tests.ingest.binlog.binlog_servers import Server, start
from tests.support.commands import tailorbird

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
POLICY = "{customers: {mask: {email: redact}, ignored_columns: [pin, level]}}"
SECRETS = [f"{name}SECRET{number}" for name in ("mail", "pin") for number in range(5)]
TABLE = (
    "CREATE TABLE customers (id INT PRIMARY KEY, name VARCHAR(60), email VARCHAR(60), pin VARCHAR(60),"
    " level ENUM('labelSECRET1', 'labelSECRET2') DEFAULT 'labelSECRET1')"
)


@pytest.fixture
def server(mysql80: Server) -> Server:
    """Return the server that all tests share."""
    return mysql80


def metadata(capture: PolicedCapture, value: str) -> None:
    capture.sql(f"SET GLOBAL binlog_row_metadata = {value}")


def insert(capture: PolicedCapture, number: int) -> None:
    capture.sql(
        "INSERT INTO customers (id, name, email, pin) VALUES "
        f"({number}, 'n{number}', 'mailSECRET{number}', 'pinSECRET{number}')"
    )


def names(capture: PolicedCapture) -> list[str]:
    rows = capture.rows("customers")
    assert all(set(row) == {"id", "name", "email"} and row["email"] in ("***", None) for row in rows), rows
    return [row["name"] for row in rows]


def swap(capture: PolicedCapture, left: str, right: str) -> None:
    """Exchange the names of two columns in the stored history, as a gateway could."""
    topic, exchanged = history_topic("live"), {left: right, right: left}

    def doctored(value: Any) -> Any:
        if isinstance(value, dict):
            known = {key: doctored(one) for key, one in value.items()}
            return {**known, "name": exchanged[known["name"]]} if known.get("name") in exchanged else known
        return [doctored(one) for one in value] if isinstance(value, list) else value

    capture.broker.records = [
        record._replace(value=orjson.dumps(doctored(orjson.loads(record.value))))
        if record.topic == topic and record.value else record
        for record in capture.broker.records
    ]  # fmt: skip


def test_a_table_that_hides_columns_is_left_out_while_the_log_does_not_name_them(server: Server) -> None:
    """A switch to MINIMAL while the capture runs leaves the table out, with the remedy; FULL brings it back."""
    capture = policed(server, "minimal", POLICY, "customers")
    capture.sql(TABLE)
    insert(capture, 0)
    capture.start()
    capture.wait(lambda: names(capture) == ["n0"], "the snapshot is missing")
    metadata(capture, "MINIMAL")
    try:
        insert(capture, 1)
        capture.wait(lambda: capture.left_out() == {"customers"}, "it is not left out")
        found = capture.state()["left_out"]["minimal.customers"]
        assert "does not name" not in found["remedy"]
        assert "binlog_row_metadata" in found["why"]
        assert "binlog_row_metadata = FULL" in found["remedy"]
        assert names(capture) == ["n0"]
        capture.stop()
        swap(capture, "name", "email")
        insert(capture, 2)
        capture.start()
        capture.wait(lambda: (capture.state()["left_out"]["minimal.customers"]["rows"]) >= 1, "rows are not counted")
        assert names(capture) == ["n0"]
    finally:
        metadata(capture, "FULL")
    capture.wait(lambda: names(capture) == ["n0", "n1", "n2"], "FULL does not bring it back")
    assert not capture.left_out()
    capture.stop()
    assert not leaked(capture.sent(), SECRETS)


def test_a_doctored_history_exchanges_no_columns(server: Server) -> None:
    """The names in the log count. A history in which the mask's column has another place has no effect."""
    capture = policed(server, "doctored", POLICY, "customers")
    capture.sql(TABLE)
    insert(capture, 0)
    capture.start()
    capture.wait(lambda: names(capture) == ["n0"], "the snapshot is missing")
    capture.stop()
    swap(capture, "name", "email")
    insert(capture, 1)
    capture.start()
    capture.wait(lambda: names(capture) == ["n0", "n1"], "the row is missing")
    capture.stop()
    assert not leaked(capture.sent(), SECRETS)


def test_a_false_foreign_key_reveals_no_values(server: Server) -> None:
    """Values of a checkpoint's foreign keys find changed child rows. Values of hidden columns stay out of it."""
    policy = "{customers: {mask: {email: redact}, ignored_columns: [pin]}, orders: {}}"
    capture = policed(server, "relations", policy, "customers", "orders")
    capture.sql(TABLE.replace(", level ENUM('labelSECRET1', 'labelSECRET2') DEFAULT 'labelSECRET1'", ""))
    capture.sql("CREATE TABLE orders (id INT PRIMARY KEY, total INT)", "INSERT INTO orders VALUES (1, 2)")
    insert(capture, 0)
    capture.start()
    capture.wait(lambda: names(capture) == ["n0"] and len(capture.rows("orders")) == 1, "the snapshot is missing")
    capture.stop()
    newest = capture.broker.checkpoints[-1]
    relation = ["relations", "orders", ["id"], "relations", "customers", ["pin"], "CASCADE", "CASCADE"]
    state = {**newest.state, "mends": {"relations": [relation]}}
    key, value, _ = PositionWriter("", b"planted").record(replace(newest, state=state), {}, (), 0)
    capture.broker.positions = {key: (len(capture.broker.checkpoints), value)}
    capture.sql("UPDATE customers SET pin = 'pinSECRET1', name = 'n1'")
    capture.start()
    capture.wait(lambda: names(capture) == ["n1"], "the update is missing")
    capture.wait_quiet()
    capture.stop()
    assert any("table is read again" in line for line in capture.reported.lines), "the foreign key was followed"
    assert not leaked(capture.sent(), SECRETS)


def test_statements_do_not_leave_the_host(server: Server) -> None:
    """Capture publishes columns: no literals, comments, defaults or labels of hidden columns, and no other tables."""
    capture = policed(server, "statements", POLICY, "customers")
    capture.sql(
        TABLE, "CREATE TABLE stranger1 (id INT PRIMARY KEY, c1 ENUM('strangerSECRET1') COMMENT 'strangerSECRET2')"
    )
    insert(capture, 0)
    capture.start()
    capture.wait(lambda: names(capture) == ["n0"], "the snapshot is missing")
    capture.sql(
        "ALTER TABLE customers ADD note VARCHAR(20) COMMENT 'commentSECRET1', COMMENT = 'commentSECRET2'",
        "ALTER TABLE customers /* commentSECRET3 */ ALTER pin SET DEFAULT 'defaultSECRET1'",
        "ALTER TABLE customers ADD sum INT AS (LENGTH(CONCAT(pin, 'literalSECRET1')))",
        "ALTER TABLE customers MODIFY level ENUM('labelSECRET1', 'labelSECRET2', 'labelSECRET3')",
        "CREATE TABLE stranger2 (id INT PRIMARY KEY, c2 INT DEFAULT 7 COMMENT 'strangerSECRET3')",
        "ALTER TABLE stranger1 ADD c3 ENUM('strangerSECRET4')",
        "CREATE TABLE stranger3 (c4 VARCHAR(30) DEFAULT 'strangerSECRET5')",
        "CREATE DATABASE IF NOT EXISTS stranger4",
        "ALTER TABLE customers DROP sum, DROP note",
    )
    capture.sql(
        "RENAME TABLE customers TO swapped, stranger2 TO customers",
        "RENAME TABLE customers TO stranger2, swapped TO customers",
    )
    insert(capture, 1)
    capture.wait(lambda: names(capture) == ["n0", "n1"], "the row is missing")
    capture.stop()
    insert(capture, 2)
    capture.start()
    capture.wait(lambda: names(capture) == ["n0", "n1", "n2"], "the history cannot be resumed from")
    capture.stop()
    sent = capture.sent()
    every = ("comment", "default", "literal", "label", "stranger")
    assert not leaked(sent, [*SECRETS, *(f"{name}SECRET{number}" for name in every for number in range(6))])
    assert b"stranger" not in sent
    assert b"ALTER" not in sent
    assert b"pin" in sent, "the history has the names of the table's columns"


def test_a_table_that_the_policy_allows_can_be_added(server: Server) -> None:
    """The history has its columns before it is captured, so it is read at once when the configuration names it."""
    capture = policed(server, "added", "{customers: {ignored_columns: [pin, email, level]}, orders: {}}", "orders")
    capture.sql(TABLE, "CREATE TABLE orders (id INT PRIMARY KEY)", "INSERT INTO orders VALUES (1)")
    insert(capture, 0)
    capture.start()
    capture.wait(lambda: len(capture.rows("orders")) == 1, "the snapshot is missing")
    capture.stop()
    capture.tables = ("customers", "orders")
    capture.start()
    capture.wait(lambda: [row["name"] for row in capture.rows("customers")] == ["n0"], "the added table is missing")
    capture.stop()
    assert not any("left out" in line for line in capture.reported.lines), capture.reported.lines
    assert not leaked(capture.sent(), [*SECRETS, "labelSECRET1"])


def test_every_table_leaves_except_for_the_exceptions(server: Server) -> None:
    """Tables that are created or copied while the capture runs leave, without the columns that no table may show.

    A table that the policy drops, and another case of its name, do not leave. Statements stay on the host as before.
    """
    options = "filter_policy: accept\nignored_columns: [PIN, level]\nmask: {email: redact}"
    exceptions = "{wages: , orders: {ignored_columns: [total]}, whole: {ignored_columns: []}}"
    capture = policed(server, "accepted", exceptions, options=options)
    capture.sql(
        TABLE, "CREATE TABLE wages (id INT PRIMARY KEY, v VARCHAR(30))",
        "INSERT INTO wages VALUES (1, 'strangerSECRET1')",
        "CREATE TABLE orders (id INT PRIMARY KEY, total VARCHAR(30), note VARCHAR(30))",
        "INSERT INTO orders VALUES (1, 'strangerSECRET2', 'plain')",
        "CREATE TABLE whole (id INT PRIMARY KEY)", "INSERT INTO whole VALUES (1)",
    )  # fmt: skip
    insert(capture, 0)
    capture.start()
    capture.wait(lambda: names(capture) == ["n0"] and len(capture.rows("orders")) == 1, "the snapshot is missing")
    capture.sql(
        "CREATE TABLE _customers_gho LIKE customers", "INSERT INTO _customers_gho SELECT * FROM customers",
        "CREATE TABLE Wages (id INT PRIMARY KEY, v VARCHAR(30) DEFAULT 'defaultSECRET1')",
        "INSERT INTO Wages VALUES (1, 'strangerSECRET3')", "INSERT INTO wages VALUES (2, 'strangerSECRET4')",
        "CREATE TABLE later (id INT PRIMARY KEY, pin VARCHAR(30), name VARCHAR(30))",
        "INSERT INTO later VALUES (1, 'pinSECRET1', 'plain')",
        "UPDATE orders SET total = 'strangerSECRET5', note = 'changed'",
    )  # fmt: skip
    insert(capture, 1)
    capture.wait(lambda: names(capture) == ["n0", "n1"], "the change is missing")
    capture.wait(
        lambda: len(capture.rows("later")) == len(capture.rows("_customers_gho")) == 1, "a new table is missing"
    )
    capture.stop()
    insert(capture, 2)
    capture.start()
    capture.wait(lambda: names(capture) == ["n0", "n1", "n2"], "it does not resume")
    capture.stop()
    assert capture.rows("later") == [{"id": 1, "name": "plain"}]
    assert capture.rows("_customers_gho") == [{"id": 0, "name": "n0", "email": "***"}]
    assert capture.rows("orders") == [{"id": 1, "note": "changed"}]
    assert capture.rows("whole") == [{"id": 1}]
    every = ("default", "label", "stranger")
    assert not leaked(capture.sent(), [*SECRETS, *(f"{name}SECRET{number}" for name in every for number in range(6))])
    assert b"wages" not in capture.sent().lower()


def test_the_check_shows_what_leaves(server: Server, tmp_path: Path) -> None:
    """`tailorbird agent policy check` reads the names on the server, and judges a request without it."""
    exceptions, options = "{users: {ignored_columns: [mail]}, wages: , misspelt: {}}", "filter_policy: accept"
    capture = policed(server, "checked", exceptions, options=options)
    capture.sql(
        "CREATE TABLE users (id INT PRIMARY KEY, Mail VARCHAR(9))", "CREATE TABLE wages (id INT PRIMARY KEY)",
        "CREATE TABLE new (id INT PRIMARY KEY)",
    )  # fmt: skip
    policy, request = tmp_path / "policy.yml", tmp_path / "request.json"
    policy.write_text(policy_text(server, exceptions, "checked", options))
    policy.chmod(0o600)
    done = tailorbird("agent", "policy", "check", "--policy", str(policy), "--json")
    assert done.returncode == 0, done.stderr
    found = {one["table"]: one for one in map(orjson.loads, done.stdout.splitlines())}
    assert {name: one["leaves"] for name, one in found.items()} == {
        "checked.misspelt": False, "checked.new": True, "checked.users": True, "checked.wages": False,
    }  # fmt: skip
    assert (found["checked.users"]["plain"], found["checked.users"]["hidden"]) == (["id"], ["Mail"])
    base = {"agents": ["a1"], "connection": "db", "database": "checked"}
    for table, code, why in (("wages", 1, "table checked.wages may not leave db"), ("new", 0, "accepted")):
        request.write_bytes(orjson.dumps({**base, "tables": {table: {}}}))
        done = tailorbird("agent", "policy", "check", "--policy", str(policy), "--request", str(request))
        assert (done.returncode, why in done.stdout) == (code, True), done.stdout + done.stderr


@pytest.mark.matrix
@pytest.mark.parametrize("flavour", ["mysql57", "mysql9", "maria10", "maria11"])
def test_other_servers(flavour: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    """MySQL 5.7 cannot name columns, so such a table is left out there. The others behave as MySQL 8.0."""
    running = start(flavour, tmp_path_factory.mktemp(flavour))
    try:
        if flavour == "mysql57":
            capture = policed(running, "minimal", POLICY, "customers")
            capture.sql(TABLE)
            insert(capture, 0)
            capture.start()
            capture.wait(lambda: capture.left_out() == {"customers"}, "it is not left out")
            assert "upgrade" in capture.state()["left_out"]["minimal.customers"]["remedy"]
            capture.stop()
            assert not leaked(capture.sent(), SECRETS)
            return
        tests: tuple[Callable[[Server], None], ...] = (
            test_a_table_that_hides_columns_is_left_out_while_the_log_does_not_name_them,
            test_a_doctored_history_exchanges_no_columns,
            test_a_false_foreign_key_reveals_no_values,
            test_statements_do_not_leave_the_host,
            test_every_table_leaves_except_for_the_exceptions,
        )
        for test in tests:
            test(running)
    finally:
        running.stop()
