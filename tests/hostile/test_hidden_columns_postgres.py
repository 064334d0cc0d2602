"""Hidden columns of a PostgreSQL server stay on the host, in whatever form its log and its catalog have them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b, sha256
from typing import Any

import orjson
import pytest

from cdc.model.naming import history_topic
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source
from ingest.agent.catalogs import databases_of, seen
from ingest.agent.policy import Policy, narrowed
from ingest.agent.policy_check import findings
from ingest.agent.policy_reader import read_policy
from ingest.fleet.desired import source_of, spec_of
from ingest.records.conditions import condition
from tests.hostile.policed import leaked
from tests.support.pg_captured import PgCaptured, topology_text
from tests.support.pg_policies import postgres_policy
from tests.support.pg_servers import PgServer
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]
LISTED = """
        tables:
          customers: {mask: {email: redact, born: sha256(salt)}, ignored_columns: [pin, level, later]}
          accounts: {columns: [id, name]}
          orders: {}
"""
KINDS = ("mail", "pin", "label", "default", "other", "stranger")
SECRETS = [f"{kind}SECRET{number}" for kind in KINDS for number in range(10)]
TABLES = (
    "CREATE TYPE level AS ENUM ('labelSECRET1', 'labelSECRET2')",
    "CREATE TABLE customers (id INT PRIMARY KEY, name TEXT, email TEXT, pin TEXT, level level DEFAULT 'labelSECRET1',"
    ' born DATE, "PIN" TEXT, big TEXT STORAGE EXTERNAL)',
    "CREATE TABLE accounts (id INT PRIMARY KEY, name TEXT, number TEXT DEFAULT 'defaultSECRET1')",
    "ALTER TABLE accounts REPLICA IDENTITY FULL",
    "CREATE TABLE orders (id INT PRIMARY KEY, total NUMERIC(10, 2))",
    "CREATE TABLE salaries (id INT PRIMARY KEY, stranger TEXT)",
    "INSERT INTO salaries VALUES (1, 'strangerSECRET1')",
)


@dataclass
class PolicedPg(PgCaptured):
    """A capture whose source a policy restricts. `asked` are keys of the configuration."""

    policy: str = LISTED
    asked: Any = None
    dumps: bool = True

    @property
    def allowed(self) -> Policy:
        """Return the policy of the host."""
        databases = f"      public:\n{self.policy}"
        text = postgres_policy(self.server.port, self.name, databases, dumps=self.dumps)
        return read_policy(text, file="policy.yml", environ={}, content=str)

    @property
    def source(self) -> Source:
        asked = self.asked or {"tables": ["customers", "accounts", "orders"]}
        spec = spec_of({"agents": ["a1"], "connection": "db", "type": "postgresql", **asked}, self.name, "shop")
        return narrowed(self.allowed, spec, source_of(spec, self.name, "shop"), condition).source

    def insert(self, number: int) -> None:
        mail, pin, big = f"mailSECRET{number}", f"pinSECRET{number}" * 400, "b" * 4000
        self.sql(
            'INSERT INTO customers (id, name, email, pin, born, "PIN", big) VALUES'
            f" ({number}, 'n{number}', '{mail}', '{pin}', 'infinity', '{pin}', '{big}')",
            f"INSERT INTO accounts VALUES ({number}, 'n{number}', 'otherSECRET{number}')",
        )

    def rows(self, table: str) -> list[dict[str, Any]]:
        return sorted(self.state(table).values(), key=lambda row: row["id"])

    def wait(self, condition: Callable[[], bool], otherwise: str) -> None:
        def holds() -> bool:
            if self.failed is not None:
                raise self.failed
            return condition()

        wait_for(holds, otherwise)

    def sent(self) -> bytes:
        """Return all bytes that would leave the host: committed records, and checkpoints."""
        records = [part for record in self.broker.records for part in (record.key, record.value or b"")]
        return b"\n".join([*records, *(orjson.dumps(one.state, default=str) for one in self.broker.checkpoints)])

    def changes(self) -> list[Any]:
        """Return the keys of the schema history's records, without marks, which each session may add."""
        keys = [orjson.loads(record.key) for record in self.broker.records if record.topic == history_topic(self.name)]
        return [key for key in keys if key[0] != "mark"]


@pytest.fixture
def policed(postgres_server: PgServer, unique: Callable[[str], str]) -> Iterator[Callable[..., PolicedPg]]:
    """`policed(**fields)`: an empty database with tables, and its capture under a policy."""
    made: list[PolicedPg] = []

    def make(**fields: Any) -> PolicedPg:
        name = unique("kept")
        with postgres_server.session() as connection:
            connection.execute(f"CREATE DATABASE {name} OWNER app")
        topology = read_topology(topology_text(postgres_server, name, "[t]"), file="t.yml", environ={})
        made.append(PolicedPg(postgres_server, name, topology, **fields))
        made[-1].sql(*TABLES)
        return made[-1]

    yield make
    for one in made:
        one.close()


def customers(capture: PolicedPg) -> list[str]:
    """Return the names of the customers, after a check of the other columns."""
    found = capture.rows("customers")
    masked = sha256(b"saltinfinity").hexdigest()
    assert all(set(row) == {"id", "name", "email", "born", "big"} for row in found), found
    assert all((row["email"], row["born"]) == ("***", masked) for row in found), found
    assert all(set(row) == {"id", "name"} for row in capture.rows("accounts"))
    return [row["name"] for row in found]


@pytest.mark.parametrize("unrepresentable", [pytest.param("null", marks=pytest.mark.matrix), "dead_letter"])
def test_hidden_columns_stay_on_the_host(policed: Callable[..., PolicedPg], unrepresentable: str) -> None:
    """Whatever the log has: whole old rows, omitted large values, values without a form, defaults, renamed labels.

    The same after restarts, which do not write the history again.
    """
    asked = {"tables": ["customers", "accounts", "orders"], "unrepresentable": unrepresentable}
    capture = policed(asked=asked)
    capture.insert(0)
    capture.start()
    capture.wait(lambda: customers(capture) == ["n0"], "the snapshot is missing")
    capture.insert(1)
    capture.caught_up()
    capture.sql(
        "UPDATE customers SET name = 'a' WHERE id = 0",  # the log omits the large values
        "UPDATE customers SET pin = 'pinSECRET5', email = 'mailSECRET5' WHERE id = 1",
        "UPDATE accounts SET name = 'a', number = 'otherSECRET5' WHERE id = 0", "DELETE FROM accounts WHERE id = 1",
        "ALTER TABLE customers ADD later TEXT DEFAULT 'defaultSECRET2'",
        "ALTER TABLE accounts ADD wide TEXT DEFAULT 'defaultSECRET3'",
        "ALTER TYPE level RENAME VALUE 'labelSECRET1' TO 'labelSECRET3'",
        "CREATE TABLE stranger4 (id INT PRIMARY KEY, stranger TEXT DEFAULT 'strangerSECRET4')",
        "INSERT INTO stranger4 VALUES (1)",
    )  # fmt: skip
    capture.insert(2)
    capture.wait(lambda: customers(capture) == ["a", "n1", "n2"], "the changes are missing")
    capture.caught_up()
    capture.stop()
    before = capture.changes()
    for number in (3, 4):
        capture.insert(number)
        capture.start()
        capture.caught_up()
        capture.stop()
    assert customers(capture) == ["a", "n1", "n2", "n3", "n4"]
    assert [row["id"] for row in capture.rows("accounts")] == [0, 2, 3, 4]
    assert capture.changes() == before, "a restart finds other definitions than it has stored"
    sent = capture.sent()
    assert not leaked(sent, SECRETS)
    for label in ("labelSECRET1", "labelSECRET2", "labelSECRET3"):
        assert blake2b(label.encode(), digest_size=4).hexdigest().encode() not in sent, "a hash can be guessed"
    assert b"stranger" not in sent
    assert b"salaries" not in sent


def test_every_table_leaves_except_for_the_exceptions(policed: Callable[..., PolicedPg]) -> None:
    """Tables that are created or renamed while the capture runs leave, without the columns that no table may show."""
    policy = """
        filter_policy: accept
        ignored_columns: [pin, level, born, number]
        mask: {email: redact}
        tables: {salaries: , orders: {ignored_columns: [total]}}
"""
    capture = policed(policy=policy, asked={"filter_policy": "accept"})
    capture.insert(0)
    capture.sql("INSERT INTO orders VALUES (1, 2.5)")
    capture.start()
    capture.wait(lambda: bool(capture.rows("customers") and capture.rows("orders")), "the snapshot is missing")
    capture.sql(
        'CREATE TABLE later (id INT PRIMARY KEY, name TEXT, "Email" TEXT, pin TEXT)',
        "INSERT INTO later VALUES (1, 'plain', 'mailSECRET7', 'pinSECRET7')",
        'CREATE TABLE "Salaries" (id INT PRIMARY KEY, stranger TEXT)',
        "INSERT INTO \"Salaries\" VALUES (1, 'strangerSECRET2')",
        "UPDATE salaries SET stranger = 'strangerSECRET3'",
    )
    capture.wait(lambda: bool(capture.rows("later")), "the new table is missing")
    capture.sql("ALTER TABLE accounts RENAME TO renamed")
    capture.wait(lambda: bool(capture.rows("renamed")), "the renamed table is missing")
    capture.stop()
    assert capture.rows("later") == [{"id": 1, "name": "plain", "Email": "***"}]
    assert capture.rows("orders") == [{"id": 1}]
    assert capture.rows("renamed") == [{"id": 0, "name": "n0"}]
    assert not leaked(capture.sent(), SECRETS)
    assert b"salaries" not in capture.sent().lower()


def left_out(capture: PolicedPg) -> set[str]:
    """Return the names of the tables that the newest checkpoint lists as left out."""
    state = capture.checkpoint.state if capture.checkpoint else {}
    return {name.rpartition(".")[2] for name in state.get("left_out", {})}


def test_a_hidden_key_stays_on_the_host(policed: Callable[..., PolicedPg]) -> None:
    """It is in the log's old rows, and a snapshot would order its rows by it. Another key identifies its rows.

    Without another key, or if the log identifies rows by the hidden one, the table is left out.
    """
    policy = """
        tables:
          members: {ignored_columns: [ssn]}
          by_ssn: {ignored_columns: [ssn]}
          sealed: {ignored_columns: [ssn]}
"""
    key = {"message_key_columns": ["public_id"]}
    capture = policed(policy=policy, asked={"tables": {"members": key}})
    columns = "(ssn TEXT PRIMARY KEY, public_id INT NOT NULL UNIQUE, name TEXT)"
    capture.sql(
        f"CREATE TABLE members {columns}", "ALTER TABLE members REPLICA IDENTITY USING INDEX members_public_id_key",
        f"CREATE TABLE by_ssn {columns}", f"CREATE TABLE sealed {columns}",
        "INSERT INTO members SELECT 'pinSECRET' || g, g, 'n' || g FROM generate_series(0, 5) g",
    )  # fmt: skip
    capture.start()
    capture.wait(lambda: len(capture.state("members")) == 6, "the snapshot is missing")
    capture.sql(
        "UPDATE members SET ssn = 'pinSECRET8', name = 'a' WHERE public_id = 1",
        "UPDATE members SET public_id = 7 WHERE public_id = 2", "DELETE FROM members WHERE public_id = 3",
    )  # fmt: skip
    capture.caught_up()
    capture.stop()
    capture.sql("DELETE FROM members WHERE public_id = 4")
    capture.start()
    capture.caught_up()
    capture.stop()
    found = capture.state("members").values()
    wanted = {(0, "n0"), (1, "a"), (5, "n5"), (7, "n2")}
    assert {(row["public_id"], row["name"]) for row in found} == wanted
    assert all(set(row) == {"public_id", "name"} for row in found)
    capture.asked = {"tables": {"members": key, "by_ssn": key, "sealed": {}}}
    capture.start()
    capture.wait(lambda: left_out(capture) == {"by_ssn", "sealed"}, "they are not left out")
    capture.stop()
    assert not leaked(capture.sent(), SECRETS)


def test_without_dumps_only_changes_leave(policed: Callable[..., PolicedPg]) -> None:
    """Rows that the log has in part would have to be read: their table is incomplete, and says so."""
    capture = policed(dumps=False)
    capture.insert(0)
    capture.start()
    capture.wait(lambda: capture.checkpoint is not None, "it does not start")
    capture.insert(1)
    capture.wait(lambda: customers(capture) == ["n1"], "the change is missing")
    capture.sql("UPDATE customers SET name = 'a' WHERE id = 0")
    capture.insert(2)
    capture.wait(lambda: customers(capture) == ["n1", "n2"], "the change is missing")
    capture.stop()
    assert capture.checkpoint is not None
    assert "public.customers" in str(capture.checkpoint.state["partial"])
    assert not leaked(capture.sent(), SECRETS)


def test_the_catalog_has_what_may_leave(policed: Callable[..., PolicedPg]) -> None:
    """The agent reports it; the check on the host shows more."""
    capture = policed()
    capture.insert(0)
    capture.sql("ANALYZE")
    local = capture.allowed.connections["db"]
    [found] = seen(local, "a1")
    shown = {table.name: ([name for name, _ in table.columns], table.rows) for table in found.tables}
    assert shown == {
        "customers": (["id", "name", "email", "born", "big"], 1), "accounts": (["id", "name"], 1),
        "orders": (["id", "total"], 0),
    }  # fmt: skip
    assert not leaked(orjson.dumps(found.to_json()), SECRETS)
    [database] = databases_of(local)
    checked = {one.table: one for one in findings(local, database)}
    assert checked["public.customers"].hidden == ("pin", "level", "PIN")
    assert (checked["public.accounts"].hidden, checked["public.salaries"].leaves) == (("number",), False)
