"""A real database with marked secrets, an agent with a policy, and a hostile gateway that searches for the secrets."""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pymysql

from cdc.model.errors import UsageError
from ingest.agent.catalogs import seen
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.policy import Policy
from ingest.agent.policy_reader import read_policy
from ingest.agent.run_agent import captured
from ingest.fleet.fleet_pb2 import RequestType
from ingest.fleet.frames import FrameReader
from ingest.records.conditions import condition
from tests.hostile.hostile_gateway import HostileGateway, Lies, attending, wait_until
from tests.hostile.lies import configuration
from tests.hostile.policed import forms
from tests.ingest.binlog.binlog_servers import Server
from tests.support.gateways import certificates

MARK, NUMBER, PUBLIC = "Vx9SECRETq", 918_273_645_000, "PUBLICrow"
HONEST = "honest_source"
POLICY = """
dumps: true
limits: {{sources: 5000, assignments_per_minute: 1000000, signals_per_minute: 1000000}}
connections:
  db:
    type: {type}
    hostname: 127.0.0.1
    port: {port}
    username: cdc
    password: cdc
    ssl_mode: disabled
    databases:
      kept:
        {tables}
"""
LISTED = """tables:
          customers: {mask: {email: sha256(salt)}, ignored_columns: [pin, level]}
          accounts: {ignored_columns: [ssn]}
          orders: {}
"""
# the same, with every other table: what must not leave is an exception
ACCEPTED = f"""filter_policy: accept
        ignored_columns: [pin]
        tables:
          customers: {{mask: {{email: sha256(salt)}}, ignored_columns: [level]}}
          accounts: {{ignored_columns: [ssn]}}
          {MARK}table: {{}}
"""
TABLES = (
    "CREATE TABLE kept.customers (id INT PRIMARY KEY, name VARCHAR(60), email VARCHAR(60), pin VARCHAR(60) UNIQUE, "
    f"level ENUM('{MARK}label', 'b') DEFAULT '{MARK}label' COMMENT '{MARK}comment')",
    "CREATE TABLE kept.accounts (ssn BIGINT PRIMARY KEY, public_id INT NOT NULL UNIQUE, name VARCHAR(60))",
    "CREATE TABLE kept.orders (id INT PRIMARY KEY, total DECIMAL(10, 2))",
    f"CREATE TABLE kept.foreign_table (id INT PRIMARY KEY, pin VARCHAR(60) DEFAULT '{MARK}default', "
    "FOREIGN KEY (pin) REFERENCES kept.customers (pin) ON UPDATE CASCADE)",
    "CREATE TABLE other.secrets (id INT PRIMARY KEY, name VARCHAR(60), email VARCHAR(60), pin VARCHAR(60))",
    "CREATE TABLE kept2.customers LIKE kept.customers",
)
STATEMENTS = (
    f"ALTER TABLE kept.customers COMMENT = '{MARK}table', ALTER pin SET DEFAULT '{MARK}default' /* {MARK}text */",
    f"ALTER TABLE kept.orders ADD note VARCHAR(20) COMMENT '{MARK}note', ADD n INT AS (LENGTH('{MARK}literal'))",
    f"CREATE TABLE kept.{MARK}table (id INT PRIMARY KEY, a ENUM('{MARK}label'))",
    f"ALTER TABLE other.secrets ADD a INT COMMENT '{MARK}other'",
    "ALTER TABLE kept.orders DROP n, DROP note",
)
BASE: dict[str, Any] = {
    "agents": ["a1"], "connection": "db", "database": "kept",
    "tables": {"customers": {}, "accounts": {"message_key_columns": ["public_id"]}, "orders": {}},
}  # fmt: skip


def digests_of(value: str) -> list[bytes]:
    """Return the digests by which a short value could be found out."""
    digests = [hashlib.new(kind, value.encode()) for kind in ("md5", "sha1", "sha256")]
    return [form for one in digests for form in (one.hexdigest().encode(), one.digest())]


def secret_forms() -> list[bytes]:
    """Return the forms in which a marked value could leave."""
    return [form for text in (MARK, str(NUMBER)[:9]) for form in forms(text)]


@dataclass
class GuardedDatabase:
    """The database, the gateway, and an agent between them."""

    server: Server
    gateway: HostileGateway
    policy: Policy
    base: dict[str, Any] = field(default_factory=lambda: BASE)  # the honest configuration
    key: RequestType | None = None  # the type of request that is sent, if it is not that of the message
    selected: bytes = b'"op":"r"'  # what a row that a snapshot has read contains
    histories: int = 3  # entries of the schema history, at least
    secrets: list[bytes] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)  # attacks that a session answered, by kind
    leaks: list[str] = field(default_factory=list)
    received: int = 0
    public: int = 0
    rows: int = 0
    _names: int = 0
    _changes: int = 0
    _honest: bytes = b""

    def fill(self) -> None:
        """Create databases and rows, and find out in which forms a secret could leave."""
        with self.server.session() as connection, connection.cursor() as cursor:
            for name in ("kept", "kept2", "other"):
                cursor.execute(f"DROP DATABASE IF EXISTS {name}")
                cursor.execute(f"CREATE DATABASE {name} DEFAULT CHARSET utf8mb4")
            for sql in TABLES:
                cursor.execute(sql)
            for row in range(8):
                mail, pin = f"{MARK}mail{row}", f"{MARK}pin{row}"
                public = f"{PUBLIC}{row}"
                for table in ("kept.customers", "kept2.customers"):
                    values = (row, public, mail, pin)
                    cursor.execute(f"INSERT INTO {table} (id, name, email, pin) VALUES (%s, %s, %s, %s)", values)
                cursor.execute("INSERT INTO kept.accounts VALUES (%s, %s, %s)", (NUMBER + row, row, public))
                cursor.execute("INSERT INTO kept.orders VALUES (%s, 1.5)", (row,))
                cursor.execute("INSERT INTO kept.foreign_table VALUES (%s, %s)", (row, pin))
                cursor.execute("INSERT INTO other.secrets VALUES (%s, %s, %s, %s)", (row, mail, mail, pin))
                self.secrets += [form for value in (pin, str(NUMBER + row)) for form in digests_of(value)]
            for sql in STATEMENTS:
                cursor.execute(sql)
        self.secrets += secret_forms()

    def change(self, connection: Any) -> None:
        """Change rows of every table, hidden and plain columns, in one transaction each."""
        self._changes += 1
        turn, row = self._changes, self._changes % 8
        with connection.cursor() as cursor:
            for sql in (
                f"UPDATE kept.customers SET name = '{PUBLIC}{turn}', pin = '{MARK}pin{row}t{turn}', "
                f"email = '{MARK}mail{turn}' WHERE id = {row}",
                f"UPDATE kept.accounts SET name = '{PUBLIC}{turn}' WHERE public_id = {row}",
                f"UPDATE kept.orders SET total = total + 1 WHERE id = {row}",
                f"UPDATE other.secrets SET email = '{MARK}mail{turn}' WHERE id = {row}",
                f"INSERT INTO kept.accounts VALUES ({NUMBER + 100 + turn % 100}, {100 + turn}, '{PUBLIC}')",
                f"DELETE FROM kept.accounts WHERE public_id = {100 + turn}",
            ):
                cursor.execute(sql)

    def name(self) -> str:
        """Return a name of a source that was not used before."""
        self._names += 1
        return f"s{self._names}"

    def end(self, name: str, what: object, *, no_rows: bool = False) -> None:
        """Withdraw a source, and search what it sent. With `no_rows`, any row that a SELECT found is a leak."""
        self.gateway.withdraw(name)
        lies = self.gateway.sources.pop(name)
        self._search(bytes(lies.heard), what)
        self._search(bytes(lies.frames), what)
        with self.gateway.lock:
            heard = bytes(self.gateway.heard)
            self.gateway.heard.clear()
        self._search(heard, what)
        read = lies.frames.count(self.selected)
        self.rows += read
        if no_rows and read:
            self.leaks.append(f"{read} rows found by a hidden column: {_conditions(what)}")

    def _search(self, sent: bytes, what: object) -> None:
        self.received += len(sent)
        self.public += sent.count(PUBLIC.encode())
        for form in self.secrets:
            if form in sent:
                at = sent.index(form)
                self.leaks.append(f"{sent[max(0, at - 200) : at + 60]!r} after {what!r:.600}")
                return

    def ask(self, table: str, text: str) -> None:
        """Run a condition on a hidden column, if the policy does not refuse it. It must find no row."""
        allowed = self.policy.connections["db"].table("kept", table)
        assert allowed is not None
        try:
            safe = condition(text, allowed.may_compare)
        except UsageError:
            return
        session = self.server.session(ssl_disabled=True)
        with session as connection, connection.cursor() as cursor, suppress(pymysql.err.Error):
            cursor.execute(f"SELECT COUNT(*) FROM kept.{table} WHERE ({safe})")  # mostly: no such column
            if cursor.fetchone()[0]:
                self.leaks.append(f"{table}: {text!r} found rows as {safe!r}")

    def capture_honestly(self) -> None:
        """Capture once without lies, and keep what a true gateway would answer to `recover` afterwards."""
        lies = self.gateway.assign(HONEST, self.base, key=self.key)
        whole = wait_until(lambda: self.is_whole(lies), 60)
        assert whole, [str(report) for report in lies.reports]
        answer = {"checkpoint": lies.last.decode(), **stored_of(bytes(lies.frames)), "behind": []}
        self.end(HONEST, "an honest capture")
        assert len(answer["history"]) >= self.histories, "the history of all tables"
        self._honest = orjson.dumps(answer)

    def is_whole(self, lies: Lies) -> bool:
        """Return whether an honest capture has sent what later sessions resume from."""
        return b'"snapshot":"done"' in lies.last

    def configuration(self, random: Random) -> Any:
        """Return a false configuration."""
        return configuration(random)

    def renamed(self, value: Any) -> Any:
        """Return what a generator made with the names of this source's tables and columns."""
        return value

    def honest(self, name: str) -> dict[str, Any]:
        """Return the true answer to `recover` for a source of this name."""
        return orjson.loads(self._honest.replace(HONEST.encode(), name.encode()))  # type: ignore[no-any-return]


def _conditions(signals: Any) -> list[tuple[str, str]]:
    """Return (table, condition) of each signal."""
    found = [one["data"].get("additional-conditions", [{}])[0] for one in signals]
    return [(one.get("data-collection", ""), one.get("filter", "")) for one in found]


def stored_of(frames: bytes) -> dict[str, Any]:
    """Return history and schemas from the records that one session sent."""
    history, schemas = list[Any](), list[Any]()
    for record in FrameReader().read(frames):
        if record.topic.endswith("history") and record.value:
            history.append([record.key.decode(), orjson.loads(record.value)])
        elif record.topic.endswith("schemas") and record.value:
            schemas.append(orjson.loads(record.value))
    return {"history": history, "schemas": schemas}


@contextmanager
def guarded(server: Server, folder: Path, tables: str = LISTED) -> Iterator[GuardedDatabase]:
    """Start a gateway and an agent with a policy for a server's database. `tables` is that of the database `kept`."""
    gateway = HostileGateway(certificates(folder))
    kind = "mariadb" if server.maria else "mysql"
    text = POLICY.format(type=kind, port=server.port, tables=tables)
    policy = read_policy(text, file="policy.yml", environ={}, content=str)
    database = GuardedDatabase(server, gateway, policy)
    database.fill()
    stopped = threading.Event()
    traffic = threading.Thread(target=_traffic, args=(database, stopped))
    try:
        with attending(FleetAgent("a1", policy, captured, seen), gateway, folder):
            traffic.start()
            try:
                yield database
            finally:
                stopped.set()
                traffic.join(60)
    finally:
        gateway.close()


def _traffic(database: GuardedDatabase, stopped: threading.Event) -> None:
    with database.server.session(ssl_disabled=True) as connection:
        while not stopped.wait(0.25):
            with suppress(
                pymysql.err.OperationalError
            ):  # a deadlock with a foreign key: the next turn changes it again
                database.change(connection)
