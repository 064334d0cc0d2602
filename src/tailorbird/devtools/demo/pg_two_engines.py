"""The shop of the demo over three servers: orders in MySQL, products in PostgreSQL, customers in a second MySQL.

Debezium captures the second MySQL, and Tailorbird reads its topic. No server position shows how far that topic is.
So a caller who waits renames a customer (a fence). Once the topic has that change, it has all earlier changes, too."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import psycopg

from cdc.model.errors import Retriable
from cdc.model.schema import TableId
from cdc.topology.topology import Source, Topology
from ingest.log.kafka_topics import make_topic
from ingest.postgres.messages import lsn_of
from tailorbird.devtools.demo.kafka_fences import FenceReader
from tailorbird.devtools.demo.mysql_demo import RECONNECT_SECONDS, MySqlShop
from tailorbird.devtools.demo.proc_debezium import Debezium
from tailorbird.devtools.demo.shop import ShopStatement, ShopTransaction
from tailorbird.operate.probes.login import Login
from tailorbird.operate.status.captured_position import CapturedPosition

CUSTOMERS = TableId(source="crm", database="crm", table="customers")
_PRODUCTS = (
    "CREATE SCHEMA IF NOT EXISTS shop",
    "CREATE TABLE IF NOT EXISTS shop.products (id INT PRIMARY KEY, title VARCHAR(200) NOT NULL, "
    "category VARCHAR(40) NOT NULL, price NUMERIC(10,2) NOT NULL)",
    "ALTER TABLE shop.products REPLICA IDENTITY FULL",
)


def crm_of(topology: Topology, port: int) -> Source:
    """Return the second MySQL as a source, because the topology does not contain it."""
    return replace(topology.sources["shop"], name="crm", port=port, database="crm", tables=(CUSTOMERS,), rules={})


def engine_of(topology: Topology, crm: Source, log: Path, command: list[str]) -> Debezium:
    """Return Debezium's engine for the customers. It writes the topic that the topology reads, which is created
    first.

    `command` is the built command, `log` the file of its output."""
    mirror = topology.sources["crm"].mirror
    assert mirror is not None, "is_two_engines"
    topic = mirror.topics[CUSTOMERS]
    make_topic(topology.log, topic, topology.log.partitions, {})
    return Debezium(
        command,
        prefix=topic.removesuffix(f".{CUSTOMERS.database}.{CUSTOMERS.table}"),
        brokers=str(mirror.brokers), port=crm.port, login=Login(user=crm.username, password=crm.password),
        table=f"{CUSTOMERS.database}.{CUSTOMERS.table}", log=log,
    )  # fmt: skip


def is_two_engines(topology: Topology) -> bool:
    """Return whether the topology distributes the shop as topologies/two-engines.yml does."""
    return {name: one.type for name, one in topology.sources.items()} == {
        "shop": "mysql", "catalog": "postgresql", "crm": "kafka",
    }  # fmt: skip


class TwoEngineShop(MySqlShop):
    """The shop over three servers. Each table is written to its server; `debezium` captures the MySQL `crm`."""

    def __init__(self, topology: Topology, crm: Source, login: Login, debezium: Debezium) -> None:
        sources = {"shop": topology.sources["shop"], "crm": crm}
        super().__init__(sources, user=login.user, password=login.password)
        self._source, self._login = topology.sources["catalog"], login
        self._catalog = self._connect()
        self.crm, self._debezium, self._fences = crm, debezium, FenceReader(topology, CUSTOMERS)
        self._fence = 0

    def _connect(self) -> psycopg.Connection:
        address = {"host": self._source.hostname, "port": str(self._source.port), "dbname": self._source.dbname}
        try:
            return psycopg.connect(
                " ".join(f"{key}={value}" for key, value in address.items()),
                user=self._login.user, password=self._login.password, autocommit=True,
            )  # fmt: skip
        except psycopg.OperationalError as error:
            where = f"PostgreSQL at {self._source.hostname}:{self._source.port}"
            raise Retriable(f"{where}: {error}", "tailorbird stack status") from error

    def prepare(self) -> None:
        """Create missing databases and tables, on all three servers."""
        super().prepare()
        for statement in _PRODUCTS:
            self._catalog.execute(statement.encode())

    def _products(self) -> int:
        row = self._catalog.execute("SELECT MAX(id) FROM shop.products").fetchone()
        return int(row[0]) if row and row[0] else 0

    def load(self, batches: Iterable[list[ShopStatement]], loaded: Callable[[int], None]) -> None:
        """Write the first rows, one transaction per batch. `loaded` is called with the number of rows of each."""

        def of_mysql() -> Iterator[list[ShopStatement]]:
            for batch in batches:
                if not _is_of_catalog(batch[0]):
                    yield batch
                    continue
                with self._catalog.cursor() as cursor:
                    cursor.executemany(batch[0].sql.encode(), [statement.values for statement in batch])
                loaded(len(batch))

        super().load(of_mysql(), loaded)

    def begin(self) -> None:
        """Start Debezium."""
        self._debezium.start()

    def apply(self, change: ShopTransaction) -> float:
        """Execute one change. Return the monotonic time (s) at which its COMMIT returned."""
        if not _is_of_catalog(change.statement):
            return super().apply(change)
        deadline, repeated = time.monotonic() + RECONNECT_SECONDS, False
        while True:
            try:
                self._catalog.execute(change.statement.sql.encode(), change.statement.values)
                return time.monotonic()
            except psycopg.errors.UniqueViolation:
                if not repeated:
                    raise
                return time.monotonic()  # the server had committed it before the connection was lost
            except psycopg.OperationalError:
                if not self._catalog.broken or time.monotonic() > deadline:
                    raise
                repeated = True
                time.sleep(0.5)
                with contextlib.suppress(Retriable):  # the next attempt reports it
                    self._catalog = self._connect()

    def executed(self) -> dict[str, str]:
        """Return each source's position: a GTID set, a position in PostgreSQL's log, and the number of a new fence.

        The fence comes after all changes of the second MySQL."""
        found = {"shop": super().executed()["shop"]}
        row = self._catalog.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        found["catalog"] = str(lsn_of(row[0] if row else "0/0"))
        self._catalog.execute("SELECT pg_logical_emit_message(true, 'demo', '')")
        self._fence = max(self._fence + 1, int(time.time() * 1000))
        self._execute(
            "crm",
            "UPDATE crm.customers SET name = %s WHERE id = %s",
            (self._fences.name_of(self._fence), self._fences.row),
        )
        return {**found, "crm": str(self._fence)}

    def covers(self, source: str, position: CapturedPosition, wanted: str) -> bool:
        """Return whether a capture has reached the position `wanted`. A Debezium that has ended is started
        again."""
        if source == "catalog":
            return position.pos >= int(wanted)
        self._debezium.revive()
        if source == "crm":
            reported = self._fences.newest()
            return reported[0] >= int(wanted) and position.sequence >= reported[1]
        return super().covers(source, position, wanted)

    def close(self) -> None:
        """Close all connections."""
        self._fences.close()
        self._catalog.close()
        super().close()


def _is_of_catalog(statement: ShopStatement) -> bool:
    return "shop.products" in statement.sql
