"""Databases with thousands of tables, and statements to measure: MySQL 8.0 and PostgreSQL 18 of the local stack."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import psycopg
import pymysql

from cdc.model.errors import TailorbirdError
from tailorbird.devtools.stack.settings import CAPTURE_LOGIN, LOAD_LOGIN

HOST = "127.0.0.1"
_CONNECTIONS = 4
_ALTERS = 40
_TRANSACTIONS = 15  # times as many transactions as other statements, because they cost so little
Measured = tuple[str, Callable[[], None], int]  # name, what executes the statements, and their number


class Load(Protocol):
    """A database with the tables `table_0`, `table_1` and so on. `source` are the keys of its source in YAML,
    with `{}` for a name.
    """

    tables: int
    port: int
    database: str
    source: str
    debezium_topic: str

    def debezium(self, brokers: str) -> list[str]:
        """Return the arguments of the program that runs Debezium's engine."""

    def prepare(self) -> None:
        """Create the tables, unless an earlier run has."""

    def insert(self, count: int) -> None:
        """Insert rows into `table_1`, each in its own transaction."""

    def empty(self) -> None:
        """Delete the rows of all tables."""

    def change_each(self) -> None:
        """Insert a row into each table."""

    def measured(self, repeat: int) -> list[Measured]:
        """Return the statements to measure."""


class _Base:
    """What both kinds of servers have in common."""

    after_alter: Sequence[str] = ()  # PostgreSQL's log contains an ALTER only with a later row
    insert_text = "INSERT INTO table_{} (column_1) VALUES ('v')"

    def __init__(self, port: int, tables: int, columns: int) -> None:
        self.port, self.tables, self.columns = port, tables, columns
        self._added = 0

    @property
    def names(self) -> list[str]:
        """Return the names of the tables."""
        return [f"table_{number}" for number in range(self.tables)]

    def connect(self) -> Any:
        """Return a connection that commits each statement."""
        raise NotImplementedError

    def execute(self, statements: Sequence[str]) -> None:
        """Execute statements, one after another."""
        connection = self.connect()
        try:
            cursor = connection.cursor()
            for statement in statements:
                cursor.execute(statement)
        finally:
            connection.close()

    def shared(self, statements: Sequence[str]) -> None:
        """Execute statements with several connections."""
        failed = list[Exception]()

        def work(mine: Sequence[str]) -> None:
            try:
                self.execute(mine)
            except Exception as error:  # noqa: BLE001  # raised below, in the caller's thread
                failed.append(error)

        threads = [threading.Thread(target=work, args=(statements[at::_CONNECTIONS],)) for at in range(_CONNECTIONS)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        if failed:
            raise TailorbirdError(f"cannot prepare the tables: {failed[0]}")

    def insert(self, count: int) -> None:
        """Insert rows into `table_1`, each in its own transaction."""
        self.execute([self.insert_text.format(1)] * count)

    def empty(self) -> None:
        """Delete the rows of all tables."""
        self.shared([f"DELETE FROM {name}" for name in self.names])

    def change_each(self) -> None:
        """Insert a row into each table."""
        self.shared([self.insert_text.format(number) for number in range(self.tables)])

    def measured(self, repeat: int) -> list[Measured]:
        """Return the statements to measure."""
        many = _TRANSACTIONS * repeat
        first, self._added = self._added, self._added + _ALTERS
        alters = list[str]()
        for number in range(first, first + _ALTERS):
            alters += [f"ALTER TABLE table_2 ADD COLUMN added_{number} INT", *self.after_alter]
        return [
            ("transaction", lambda: self.shared([self.insert_text.format(1)] * many), many),
            ("alter", lambda: self.execute(alters), _ALTERS),
            ("grant", lambda: self.execute(["GRANT SELECT ON table_3 TO cdc"] * repeat), repeat),
        ]


class MysqlTables(_Base):
    """A MySQL 8.0 with the database `many`."""

    database = "many"
    source = "type: mysql, database: many, server_id: 9506"
    debezium_topic = "debezium.many.table_1"

    def connect(self) -> Any:
        """Return a connection that commits each statement."""
        login = LOAD_LOGIN
        return pymysql.connect(
            host=HOST, port=self.port, user=login.user, password=login.password, autocommit=True, database=self.database
        )  # fmt: skip

    def prepare(self) -> None:
        """Create the tables, unless an earlier run has. `table_2`, which is altered, is always created again."""
        login = LOAD_LOGIN
        with pymysql.connect(host=HOST, port=self.port, user=login.user, password=login.password) as connection:
            cursor = connection.cursor()
            for text in ("sync_binlog = 0", "innodb_flush_log_at_trx_commit = 0", "innodb_file_per_table = 0"):
                cursor.execute(f"SET GLOBAL {text}")
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {self.database}")
            cursor.execute("SELECT table_name FROM information_schema.tables WHERE table_schema = %s", self.database)
            found = {name for (name,) in cursor.fetchall()} - {"table_2"}
        columns = ", ".join(f"column_{number} VARCHAR({100 + number})" for number in range(1, self.columns))
        self.execute(["DROP TABLE IF EXISTS table_2"])
        wanted = [name for name in self.names if name not in found]
        self.shared([f"CREATE TABLE {name} (id INT PRIMARY KEY AUTO_INCREMENT, {columns})" for name in wanted])
        self.execute(["FLUSH BINARY LOGS"])

    def debezium(self, brokers: str) -> list[str]:
        """Return the arguments of the program that runs Debezium's engine."""
        given = {
            "brokers": brokers, "port": self.port, "user": CAPTURE_LOGIN.user, "password": CAPTURE_LOGIN.password,
            "table": "table_1", "set.table.include.list": f"{self.database}\\..*", "set.snapshot.mode": "no_data",
            "set.snapshot.locking.mode": "none", "set.database.include.list": self.database,
        }  # fmt: skip
        return [word for name, one in given.items() for word in (f"--{name}", str(one))]


class PostgresTables(_Base):
    """A PostgreSQL 18 whose database `billing` has the tables in the schema `public`."""

    database = "public"
    source = "type: postgresql, dbname: billing, slot_name: bench_{}, publication_name: bench"
    debezium_topic = "debezium.public.table_1"
    after_alter = ("INSERT INTO table_2 (column_1) VALUES ('v')",)

    def connect(self) -> Any:
        """Return a connection that commits each statement."""
        login = LOAD_LOGIN
        return psycopg.connect(
            host=HOST, port=self.port, user=login.user, password=login.password, dbname="billing", autocommit=True
        )  # fmt: skip

    def prepare(self) -> None:
        """Create the tables and the publication, unless an earlier run has. `table_2` is always created again."""
        columns = ", ".join(f"column_{number} VARCHAR({100 + number})" for number in range(1, self.columns))
        connection = self.connect()
        try:
            cursor = connection.cursor()
            cursor.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            found = {name for (name,) in cursor.fetchall()} - {"table_2"}
            slots = cursor.execute("SELECT slot_name FROM pg_replication_slots WHERE NOT active").fetchall()
        finally:
            connection.close()
        kind = "id INT PRIMARY KEY GENERATED BY DEFAULT AS IDENTITY"
        self.execute([
            *(f"SELECT pg_drop_replication_slot('{name}')" for (name,) in slots),
            "DROP PUBLICATION IF EXISTS bench", "DROP TABLE IF EXISTS table_2",
        ])  # fmt: skip
        self.shared([f"CREATE TABLE {name} ({kind}, {columns})" for name in self.names if name not in found])
        self.execute(["CREATE PUBLICATION bench FOR ALL TABLES WITH (publish_via_partition_root = true)"])

    def debezium(self, brokers: str) -> list[str]:
        """Return the arguments of the program that runs Debezium's engine."""
        given = {
            "brokers": brokers, "port": self.port, "user": CAPTURE_LOGIN.user, "password": CAPTURE_LOGIN.password,
            "table": "table_1", "set.connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "set.database.dbname": "billing", "set.plugin.name": "pgoutput", "set.slot.name": "debezium",
            "set.publication.name": "bench", "set.publication.autocreate.mode": "disabled",
            "set.table.include.list": "public\\..*", "set.snapshot.mode": "no_data", "set.database.sslmode": "disable",
        }  # fmt: skip
        return [word for name, one in given.items() for word in (f"--{name}", str(one))]
