"""Fixtures of the capture tests: a database, a topology and capture processes for each test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from cdc.model.naming import change_topic, positions_topic
from cdc.model.schema import TableId
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import Shop
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.devtools.stack.settings import LOAD_LOGIN
from tests.support.changing_topology import ChangingTopology, loaded_shop
from tests.support.pg_servers import PgServer
from tests.support.secured_kafka import SecuredKafka, secured_kafka
from tests.support.waiting import wait_for

Row = dict[str, Any]
ABSENT = {KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART}
# errors that a client reports while its broker restarts; it reconnects by itself
UNAVAILABLE = {
    KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._WAIT_COORD,
    KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.COORDINATOR_NOT_AVAILABLE,
}  # fmt: skip


@dataclass
class CapturedDatabase:
    """A database of a test, a topology that captures it, and the processes that the test started."""

    name: str
    file: Path
    tables: tuple[str, ...]
    processes: list[subprocess.Popen[str]] = field(default_factory=list)
    _consumers: dict[str, Any] = field(default_factory=dict)

    wait_for = staticmethod(lambda condition, otherwise: wait_for(condition, otherwise))

    def connection(self) -> pymysql.connections.Connection:
        """Open a connection of the loader, in UTC, with autocommit."""
        return connection(self.name)

    def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        """Run statements as the loader, each in its own transaction; return the rows of the last one."""
        rows: list[tuple[Any, ...]] = []
        with connection(self.name) as connected, connected.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
                rows = list(cursor.fetchall())
        return rows

    @staticmethod
    def by_hand(connected: Any) -> None:
        """Turn off autocommit for a connection."""
        connected.autocommit(False)

    @contextmanager
    def locked(self, table: str) -> Iterator[None]:
        """Lock a table, so that a snapshot that reads it cannot end."""
        with self.connection() as connected, connected.cursor() as cursor:
            cursor.execute(f"LOCK TABLES {table} WRITE")
            yield

    @staticmethod
    def sql_anywhere(*statements: str) -> None:
        """Run statements without a default database."""
        with connection() as connected, connected.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def start(self, *options: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "ingest", str(self.file), "--source", "shop", *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        return process

    def end_of(self, process: subprocess.Popen[str]) -> tuple[int, str]:
        """Return exit code and last line of a process that exits by itself."""
        _, said = process.communicate(timeout=60)
        return process.returncode, said.strip().splitlines()[-1]

    def topic(self, table: str) -> str:
        return change_topic(self.name, TableId(source="shop", database=self.name, table=table))

    def events(self, table: str) -> list[Row]:
        """Return the committed envelopes of a table by partition, in log order."""
        return [json.loads(value) for _, _, value in self.read(self.topic(table)) if value is not None]

    def read(self, topic: str, partitions: int = 2, last: int | None = None) -> list[tuple[int, bytes, bytes]]:
        """Return partition, key and value of every committed record up to the topic's ends, or of its `last` offsets
        only.

        The result is sorted by partition, because brokers answer in any order.
        """
        consumer = self._consumer("read_committed")
        marks = [self._marks(consumer, topic, p) for p in range(partitions)]
        found, ended = list[tuple[int, bytes, bytes]](), {p for p, (low, high) in enumerate(marks) if low == high}
        starts = [low if last is None else max(low, high - last) for low, high in marks]
        consumer.assign([TopicPartition(topic, p, start) for p, start in enumerate(starts) if p not in ended])
        while len(ended) < partitions:
            message = consumer.poll(20)
            assert message is not None, f"no answer about {topic}"
            if message.error() is None:
                found.append((message.partition(), message.key(), message.value()))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                if message.offset() >= marks[message.partition()][1]:
                    ended.add(message.partition())
            elif message.error().code() not in UNAVAILABLE:
                raise AssertionError(f"{topic}: {message.error()}")
        consumer.unassign()
        return sorted(found, key=lambda record: record[0])

    @staticmethod
    def _marks(consumer: Any, topic: str, partition: int) -> tuple[int, int]:
        """Return the first and the end offset of a partition, (0, 0) before it exists; wait for a broker that
        restarts."""
        deadline = time.monotonic() + 60
        while True:
            try:
                found: tuple[int, int] = consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=10)
                return found
            except KafkaException as error:
                if error.args[0].code() in ABSENT:
                    return 0, 0
                if error.args[0].code() not in UNAVAILABLE or time.monotonic() > deadline:
                    raise

    def _consumer(self, level: str) -> Any:
        if level not in self._consumers:
            settings: dict[str, Any] = {
                "bootstrap.servers": servers(),
                "group.id": self.name,
                "isolation.level": level,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
            }
            self._consumers[level] = Consumer(settings)
        return self._consumers[level]

    def close(self) -> None:
        """Stop everything that the test left, and drop its database."""
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for consumer in self._consumers.values():
            consumer.close()
        self.sql(f"DROP DATABASE {self.name}")

    def ends(self, table: str, level: str) -> int:
        """Add up the end offsets of a table's partitions, for readers of an isolation level."""
        consumer = self._consumer(level)
        return sum(self._marks(consumer, self.topic(table), p)[1] for p in range(2))

    def position(self) -> Row | None:
        """Return the newest committed position, or None before the first."""
        positions = self.read(positions_topic(self.name), 1, last=6)
        return json.loads(positions[-1][2]) if positions else None

    def streaming(self, process: subprocess.Popen[str]) -> None:
        """Wait until the snapshot is committed."""

        def done() -> bool:
            assert process.poll() is None, process.communicate()[1]
            position = self.position()
            return position is not None and position["snapshot"] == "done"

        wait_for(done, "no snapshot")

    def caught_up(self) -> None:
        """Wait until the committed position covers everything that the server has executed so far."""
        (executed,) = self.sql("SELECT @@GLOBAL.gtid_executed")[0]

        def covered() -> bool:
            position = self.position()
            if position is None:
                return False
            (rest,) = self.sql(f"SELECT GTID_SUBTRACT('{executed}', '{position['position']['gtid_set']}')")[0]
            return str(rest) == ""

        wait_for(covered, "the capture does not catch up")


def servers() -> str:
    return f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}"


def connection(database: str | None = None) -> pymysql.connections.Connection:
    return pymysql.connect(
        host="127.0.0.1",
        port=int(os.environ["TAILORBIRD_PORT_MYSQL_SHOP"]),
        user=LOAD_LOGIN.user,
        password=LOAD_LOGIN.password,
        database=database,
        charset="utf8mb4",
        autocommit=True,
        ssl_disabled=True,
        init_command="SET time_zone = '+00:00'",
    )


@pytest.fixture(scope="session")
def secured_kafka_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker with TLS, logins and access control, which several modules share."""
    with secured_kafka(tmp_path_factory.mktemp("secured") / "kafka") as made:
        yield made


@pytest.fixture
def capture(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., CapturedDatabase]]:
    made: list[CapturedDatabase] = []

    def make(*tables: str, extra: str = "") -> CapturedDatabase:
        name = unique("cap")
        file = tmp_path / f"{name}.yml"
        file.write_text(
            f"name: {name}\n"
            f"sources:\n  shop: {{type: mysql, hostname: 127.0.0.1, port: {os.environ['TAILORBIRD_PORT_MYSQL_SHOP']}, "
            # TLS costs each of a capture's dozen connections a twentieth of a second; over TLS: test_thread.py
            f"username: cdc, password: cdc, database: {name}, ssl_mode: disabled, tables: [{', '.join(tables)}], "
            f"server_id: {7200 + len(made) + os.getpid() % 1000 * 10}{extra}}}\n"
            f"log: {{bootstrap_servers: '{servers()}'}}\n"
            f"tables:\n  wide: {{query: SELECT a.id FROM shop.{tables[0]} a, row_key: [id]}}\n"
        )
        with connection() as connected, connected.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name} DEFAULT CHARSET utf8mb4")
        made.append(CapturedDatabase(name, file, tables))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def capture_postgres(
    stack: Stack, postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path
) -> Iterator[Callable[..., CapturedDatabase]]:
    """Same as `capture`, for PostgreSQL."""
    from tests.integration.pg_database import make  # a local import, because that module imports this one

    made: list[CapturedDatabase] = []

    def one(*tables: str, extra: str = "") -> CapturedDatabase:
        name = unique("pgc")
        made.append(make(postgres_server, name, tmp_path / f"{name}.yml", *tables, extra=extra))
        return made[-1]

    yield one
    for each in made:
        each.close()


@pytest.fixture
def changing(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChangingTopology:
    """Return a topology that a test may change while it runs on the shared servers."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    return ChangingTopology(tmp_path)


@pytest.fixture
def shop(changing: ChangingTopology) -> Iterator[tuple[MySqlShop, Shop]]:
    """Load the databases of `changing` again. Yield them and the generator of their traffic."""
    with loaded_shop(changing.topology) as loaded:
        yield loaded
