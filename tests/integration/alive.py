"""Start a topology during live traffic: three tables on two servers that change all the time, joined.

The traffic provokes conflicts. Each transaction has several statements, most of them updates of rows that the capture's
snapshot is about to read, some of columns that no query uses. Foreign keys move, rows are deleted and inserted again,
whole customers disappear.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pymysql
from confluent_kafka.admin import AdminClient
from pymysql.constants import ER

from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from cdc.process.file_topology import load_topology
from tailorbird.cli.change.cli_apply import provision
from tailorbird.cli.cli_demo_steps import wait_until_quiet
from tailorbird.cli.cli_demo_verdict import verdicts
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tailorbird.operate.pipeline.proc_pipeline import Part, Pipeline
from tailorbird.operate.status.dead_letters import DeadLetterList
from tailorbird.operate.status.http_metrics import read_metrics
from tailorbird.operate.status.kafka_dead_letters import DeadLetterReader
from tests.support.waiting import wait_for

TABLES = {
    "shop": (
        "orders (id INT PRIMARY KEY, customer_id INT, product_id INT, status VARCHAR(10) NOT NULL,"
        " amount DECIMAL(10,2) NOT NULL, placed DATETIME(3) NOT NULL, unused INT NOT NULL)",
        "products (id INT PRIMARY KEY, title VARCHAR(40) NOT NULL, price DECIMAL(6,2), unused INT NOT NULL)",
    ),
    "crm": ("customers (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, country CHAR(2), unused INT NOT NULL)",),
}
QUERY = """SELECT o.id, o.status, o.amount, o.placed, o.customer_id, c.name AS customer, c.country,
             o.product_id, p.title AS product, p.price{more}
      FROM shop.orders o
      LEFT JOIN crm.customers c ON c.id = o.customer_id
      LEFT JOIN shop.products p ON p.id = o.product_id"""
# errors after which an application tries another transaction
CONTENDED = {ER.LOCK_DEADLOCK, ER.LOCK_WAIT_TIMEOUT, ER.TABLE_DEF_CHANGED}
Statement = tuple[str, tuple[Any, ...]]


class LivePipeline:
    """A test's databases on both servers, their traffic, and the pipeline over them."""

    def __init__(self, name: str, folder: Path, *, orders: int, mode: str = "initial", log: str = "") -> None:
        self.name, self.folder, self.mode = name, folder, mode
        self.file, self.more = folder / "alive.yml", ""
        self.log = log or f"{{bootstrap_servers: '127.0.0.1:{os.environ.get('TAILORBIRD_PORT_KAFKA', '9092')}'}}"
        self.chance, self.server_id = Random(17), 10_000 + time.time_ns() % 1_000_000_007
        self.last, self.customers, self.products = orders, orders * 2 // 7, orders // 7
        self._connections = {server: self._connect(server) for server in TABLES}
        self._load(orders)
        self.declare()
        self.shop = MySqlShop(self.topology.sources, user=LOAD_LOGIN.user, password=LOAD_LOGIN.password)
        self.pipeline = Pipeline(self.topology, home=folder)

    def declare(self) -> None:
        """Write the topology's current file, and create the topics, tables and collections it needs."""
        port = os.environ.get
        source = (
            "{{type: mysql, hostname: 127.0.0.1, port: {}, username: cdc, password: cdc, database: {}, tables: [{}], "
        )
        shop = source.format(port("TAILORBIRD_PORT_MYSQL_SHOP", "3307"), self.name, "orders, products")
        crm = source.format(port("TAILORBIRD_PORT_MYSQL_CRM", "3308"), self.name, "customers")
        text = f"""name: {self.name}
sources:
  shop: {shop} snapshot_mode: {self.mode}, server_id: {self.server_id}}}
  crm: {crm} snapshot_mode: {self.mode}, server_id: {self.server_id}}}
log: {self.log}
hbase:
  thrift: 127.0.0.1:{port("TAILORBIRD_PORT_THRIFT", "9090")}
  zookeeper: 127.0.0.1:{port("TAILORBIRD_PORT_ZOOKEEPER", "2181")}
solr: {{url: 'http://127.0.0.1:{port("TAILORBIRD_PORT_SOLR", "8983")}/solr'}}
tables:
"""
        query = QUERY.format(more=self.more)
        text += f"  wide:\n    query: |\n      {query}\n    row_key: [id]\n"
        text += "indexes:\n  wide: {table: wide, commit_within: 200ms}\n"
        self.file.write_text(text)
        self.topology = load_topology(str(self.file))
        list(provision(self.topology))

    @contextmanager
    def traffic(self, rate: float) -> Iterator[Callable[[int], None]]:
        """Make about `rate` changes per second while the block runs; yield a function that waits for a number of
        further changes.
        """
        stop, done, failed = threading.Event(), [0], list[BaseException]()

        def write() -> None:
            due = time.monotonic()
            try:
                while not stop.is_set():
                    done[0] += self._transaction()
                    due = max(due, time.monotonic() - 1.0) + 3 / rate
                    stop.wait(max(0.0, due - time.monotonic()))
            except BaseException as error:  # raised again in the test's thread, below
                failed.append(error)
                raise

        def more(changes: int) -> None:
            wanted = done[0] + changes
            wait_for(lambda: bool(failed) or done[0] >= wanted, "the traffic does not progress", 120)
            self.pipeline.must_run()
            assert not failed

        writer = threading.Thread(target=write, name="traffic")
        writer.start()
        try:
            yield more
        finally:
            stop.set()
            writer.join()

    def settled(self) -> dict[str, Any]:
        """Wait until all changes are visible; return how the table and its index differ from the query over the
        sources.
        """
        wait_until_quiet(self.topology, self.shop, self.pipeline, lambda why: None)
        differences = dict[str, Any]()
        for table, reported in verdicts(self.topology).items():
            assert reported.rows > 0
            found = (("HBase", reported.hbase), ("Solr", reported.solr))
            differences |= {f"{table} in {name}": difference for name, difference in found if not difference.none}
        return differences

    def planned(self) -> bool:
        """Return whether the joins know their tables and the log offsets that their first version must include."""
        self.pipeline.must_run()
        log = self._join.log
        reported = log.read_text() if log.exists() else ""
        return "event=joining table=wide " in reported

    def joining(self) -> bool:
        """Return whether the join has written rows."""
        self.pipeline.must_run()
        ports = self._join.serves.values()
        return all(read_metrics(port).get("tailorbird_joined_rows_total", 0) for port in ports)

    def must_join(self) -> None:
        """Wait until the join has written rows; if it does not, raise AssertionError with the end of the join's log."""
        try:
            wait_for(self.joining, "the join wrote no row", 900)
        except AssertionError as error:
            error.add_note(self._join.log.read_text(errors="replace")[-4_000:])
            raise

    @property
    def _join(self) -> Part:
        (join,) = [part for part in self.pipeline.parts if part.stage == "join"]
        return join

    def joined(self, *options: str, more: str | None = None) -> None:
        """Restart the join with options; `more` adds columns to the query, for the index as well."""
        name = "join wide"
        if self.pipeline.alive(name):
            self.pipeline.kill(name)
        if more is not None:
            self.more = more
            self.declare()
            self.pipeline.kill("index wide")
            self.pipeline.start_part("index wide")
        place = next(n for n, part in enumerate(self.pipeline.parts) if part.name == name)
        plain = self.pipeline.parts[place]
        self.pipeline.parts[place] = replace(plain, command=(*plain.command, *options))
        self.pipeline.start_part(name)
        self.pipeline.parts[place] = plain

    def end_of_join(self) -> str:
        """Return the last message of a join that exits for good, as after wrong usage; other exits are retried."""
        deadline = time.monotonic() + 180
        while time.monotonic() < deadline:
            self.pipeline.check()
            if self.pipeline.down:
                assert list(self.pipeline.down) == ["join wide"]
                return self.pipeline.down["join wide"]
            time.sleep(0.2)
        raise AssertionError("the join did not exit")

    def lose_topic(self, table: str) -> None:
        """Delete a table's topic, as by mistake."""
        source = "crm" if table == "customers" else "shop"
        topic = change_topic(self.name, TableId(source=source, database=self.name, table=table))
        admin = AdminClient(self.topology.log.brokers.librdkafka())
        admin.delete_topics([topic])[topic].result(30)

    def dead_letters(self) -> int:
        """Count the dead letters, including those that a rebuild has settled."""
        with DeadLetterReader(self.topology, DeadLetterList(self.name)) as reader:
            found = reader.read()
            return len(found.dead_letters) + len(found.settled)

    def sql(self, server: str, *statements: str) -> None:
        """Run statements in a session of their own, in the test's database."""
        connection = self._connect(server)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                for attempt in range(20):
                    try:
                        cursor.execute(statement)
                        break
                    except pymysql.MySQLError as error:
                        if error.args[0] not in CONTENDED or attempt == 19:
                            raise

    def close(self) -> None:
        """Stop the pipeline and drop the databases."""
        self.pipeline.stop()
        self.shop.close()
        for server, connection in self._connections.items():
            connection.close()
            self.sql(server, f"DROP DATABASE {self.name}")

    def _connect(self, server: str) -> pymysql.Connection[Any]:
        port = int(os.environ.get(f"TAILORBIRD_PORT_MYSQL_{server.upper()}", "3307" if server == "shop" else "3308"))
        login: Any = {"user": LOAD_LOGIN.user, "password": LOAD_LOGIN.password}
        connection: pymysql.Connection[Any] = pymysql.connect(host="127.0.0.1", port=port, autocommit=True, **login)
        with connection.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE IF NOT EXISTS {self.name}")
        connection.select_db(self.name)
        return connection

    def _load(self, orders: int) -> None:
        for server, tables in TABLES.items():
            self.sql(server, *(f"CREATE TABLE {table}" for table in tables))
        rows: dict[str, list[Statement]] = {
            "shop": [self._order(i + 1) for i in range(orders)] + [self._product(i + 1) for i in range(self.products)],
            "crm": [self._customer(i + 1) for i in range(self.customers)],
        }
        for server, statements in rows.items():
            with self._connections[server].cursor() as cursor:
                cursor.execute("BEGIN")
                for sql in dict.fromkeys(sql for sql, _ in statements):
                    cursor.executemany(sql, [values for text, values in statements if text == sql])
                cursor.execute("COMMIT")

    def _transaction(self) -> int:
        """Commit one to five statements on one server in one transaction."""
        server = "crm" if self.chance.random() < 0.15 else "shop"
        make = self._of_crm if server == "crm" else self._of_shop
        statements = [make() for _ in range(self.chance.randint(1, 5))]
        with self._connections[server].cursor() as cursor:
            try:
                cursor.execute("BEGIN")
                for sql, values in statements:
                    cursor.execute(sql, values)
                cursor.execute("COMMIT")
            except pymysql.MySQLError as error:
                if error.args[0] not in CONTENDED:
                    raise
                cursor.execute("ROLLBACK")
                return 0
        return len(statements)

    def _of_shop(self) -> Statement:
        dice, order, product = (
            self.chance.random(),
            self.chance.randint(1, self.last),
            self.chance.randint(1, self.products),
        )
        if dice < 0.25:
            return "UPDATE orders SET unused = unused + 1 WHERE id = %s", (order,)
        if dice < 0.45:
            return "UPDATE orders SET amount = amount + 1 WHERE id = %s", (order,)
        if dice < 0.65:
            column, of = ("customer_id", self.customers) if dice < 0.55 else ("product_id", self.products)
            return f"UPDATE orders SET {column} = %s WHERE id = %s", (self.chance.randint(1, of + 20), order)
        if dice < 0.75:
            return "DELETE FROM orders WHERE id = %s", (order,)
        if dice < 0.93:
            self.last += 1
            return self._order(self.last if dice < 0.85 else order)
        if dice < 0.95:
            return "UPDATE products SET unused = unused + 1 WHERE id = %s", (product,)
        if dice < 0.98:
            return "UPDATE products SET price = price + 1 WHERE id = %s", (product,)
        return self._product(product) if dice < 0.99 else ("DELETE FROM products WHERE id = %s", (product,))

    def _of_crm(self) -> Statement:
        dice, customer = self.chance.random(), self.chance.randint(1, self.customers)
        if dice < 0.4:
            return "UPDATE customers SET unused = unused + 1 WHERE id = %s", (customer,)
        if dice < 0.8:
            return "UPDATE customers SET name = %s WHERE id = %s", (f"renamed {self.chance.random()}", customer)
        return self._customer(customer) if dice < 0.9 else ("DELETE FROM customers WHERE id = %s", (customer,))

    def _order(self, order: int) -> Statement:
        keys = (self.chance.randint(1, self.customers + 20), self.chance.randint(1, self.products + 5))
        values = (order, *keys, self.chance.choice(["new", "paid"]), f"{self.chance.randrange(99999) / 100:.2f}")
        return (
            "REPLACE INTO orders (id, customer_id, product_id, status, amount, placed, unused)"
            " VALUES (%s, %s, %s, %s, %s, '2026-11-23 01:02:03.456', 0)",
            values,
        )

    def _product(self, product: int) -> Statement:
        title = f"product {self.chance.randrange(1000)}"
        return "REPLACE INTO products (id, title, price, unused) VALUES (%s, %s, 9.5, 0)", (product, title)

    def _customer(self, customer: int) -> Statement:
        country = self.chance.choice(["FR", "PL", None])
        return "REPLACE INTO customers (id, name, country, unused) VALUES (%s, 'n', %s, 0)", (customer, country)
