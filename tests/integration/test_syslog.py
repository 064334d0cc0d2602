"""Syslog on real servers: messages become tables of Spark's join in HBase, although the capture is killed."""

from __future__ import annotations

import datetime as dt
import json
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cdc.model.naming import change_topic, hbase_table
from cdc.model.schema import TableId
from cdc.process.file_topology import load_topology
from cdc.stored.cells import Barrier, RowCodec, barrier_key, is_barrier, load_barrier
from indexer.table.hbase_layouts import StoredLayouts
from joins.stores.hbase_table import HBaseConnection
from tailorbird.cli.change.cli_apply import provision
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tailorbird.operate.status.kafka_captured import PositionsReader
from tests.integration.conftest import CapturedDatabase, connection, servers
from tests.support.commands import tailorbird
from tests.support.ports import free_port
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka("mysql-shop", "hbase", "thrift"),
    pytest.mark.timeout(600),
]
MESSAGES = TableId(source="sys", database="logs", table="messages")
TOPOLOGY = """name: {name}
sources:
  sys:
    type: syslog
    database: logs
    listen: {{udp: '127.0.0.1:{port}', tcp: '127.0.0.1:{port}', unix: '{path}'}}
    tables: {{messages: {{append_only: true, watermark: 10m}}}}
  shop:
    type: mysql
    hostname: 127.0.0.1
    port: {mysql}
    username: cdc
    password: cdc
    database: {name}
    server_id: {server_id}
    tables: {{deploys: {{append_only: true, watermark: 10m}}}}
log: {{bootstrap_servers: '{servers}'}}
hbase: {{thrift: '127.0.0.1:{thrift}', zookeeper: '127.0.0.1:{zookeeper}'}}
tables:
  after_deploys:
    query: |
      SELECT d.id, m.id AS message, d.host, m.severity, m.text
      FROM shop.deploys d
      LEFT JOIN sys.messages m
        ON m.host = d.host AND m.timestamp BETWEEN d.at AND d.at + INTERVAL 5 MINUTE AND m.severity < 4
    row_key: [id, message]
  by_host:
    query: SELECT m.host, count(*) AS messages, min(m.severity) AS worst FROM sys.messages m GROUP BY m.host
    row_key: [host]
"""
SOURCES = {"after_deploys": ("sys", "shop"), "by_host": ("sys",)}
TRAFFIC = "10.0.0.7"  # the host of the messages sent while the capture is killed
START = dt.datetime.now(dt.UTC).replace(microsecond=0) - dt.timedelta(hours=6)


class SentMessage(NamedTuple):
    """A message as its sender means it; `newer`: RFC 5424, else 3164."""

    host: str | None
    severity: int
    at: dt.datetime
    text: str
    newer: bool

    def data(self) -> bytes:
        front = f"<{8 + self.severity}>"
        if self.newer:
            return f"{front}1 {self.at.isoformat()} {self.host or '-'} app 7 - - {self.text}".encode()
        return f"{front}{self.at:%b} {self.at.day:2} {self.at:%H:%M:%S} {self.host} app[7]: {self.text}".encode()


def lines(data: Sequence[bytes]) -> bytes:
    return b"".join(one + b"\n" for one in data)


def counted(data: Sequence[bytes]) -> bytes:
    return b"".join(b"%d %s" % (len(one), one) for one in data)


class SyslogPipeline(CapturedDatabase):
    """A source of syslog and one of MySQL, both captured, and two tables of one join over them."""

    def __init__(self, name: str, folder: Path) -> None:
        super().__init__(name, folder / f"{name}.yml", ("deploys",))
        port = os.environ
        self.port, self.path = free_port(), folder / "log.sock"
        self.thrift = f"127.0.0.1:{port['TAILORBIRD_PORT_THRIFT']}"
        self.file.write_text(
            TOPOLOGY.format(
                name=name, port=self.port, path=self.path, servers=servers(), server_id=87_000 + os.getpid() % 1000,
                mysql=port["TAILORBIRD_PORT_MYSQL_SHOP"], thrift=port["TAILORBIRD_PORT_THRIFT"],
                zookeeper=port["TAILORBIRD_PORT_ZOOKEEPER"],
            )
        )  # fmt: skip
        with connection() as connected, connected.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {name}")
        self.deploys = 0
        self.sql("CREATE TABLE deploys (id INT PRIMARY KEY, host VARCHAR(255) NOT NULL, at DATETIME(6) NOT NULL)")
        self.topology = load_topology(str(self.file))
        assert list(provision(self.topology))
        self.pipeline = Pipeline(self.topology, home=folder)
        self.hbase, self.committed = HBaseConnection(self.thrift), PositionsReader(self.topology)

    def close(self) -> None:
        self.pipeline.stop()
        self.hbase.close()
        self.committed.__exit__()
        super().close()

    def topic(self, table: str) -> str:
        return change_topic(self.name, MESSAGES) if table == "messages" else super().topic(table)

    def connected(self) -> socket.socket:
        """Connect as soon as the server listens."""
        found = list[socket.socket]()

        def answers() -> bool:
            try:
                made = socket.create_connection(("127.0.0.1", self.port), 5)
            except (ConnectionRefusedError, ConnectionResetError):  # it has not started yet, or was just killed
                return False
            # no server listens: the connection reached itself, because it got that port as its own local port
            if made.getsockname() == made.getpeername():
                made.close()
                return False
            found.append(made)
            return True

        wait_for(answers, f"no server listens: {self.pipeline.last_words('capture sys')}", seconds=60)
        return found[0]

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows of committed messages; check that each was inserted once."""
        events = self.events("messages")
        assert {event["op"] for event in events} <= {"c"}
        return [event["after"] for event in events]

    def deployed(self, number: int, host: str, at: dt.datetime) -> None:
        self.deploys += 1
        self.sql(f"INSERT INTO deploys VALUES ({number}, '{host}', '{at:%Y-%m-%d %H:%M:%S}')")

    def changed(self, number: int, host: str) -> None:
        self.deploys += 1  # events
        self.sql(f"UPDATE deploys SET host = '{host}' WHERE id = {number}")

    def positions(self) -> dict[str, int]:
        """Return the committed position of each source's capture."""
        return {source: reported.sequence for source, reported in self.committed.read().items()}

    def joined(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table in HBase."""
        layout = StoredLayouts(self.thrift, topology=self.name, table=table).newest()
        if layout is None:
            return []
        codec = RowCodec(layout)
        stored = self.hbase.call(lambda c: list(c.table(hbase_table(self.name, table)).scan()))
        cells = [found for row, found in stored if not is_barrier(row)]
        return [
            dict(codec.row({name.partition(b":")[2]: value for name, value in one.items()}).values) for one in cells
        ]

    def barrier(self, table: str, bucket: int) -> Barrier | None:
        key = barrier_key(bucket)
        found = self.hbase.call(lambda c: c.table(hbase_table(self.name, table)).row(key))
        return load_barrier(found[b"d:_barrier"]) if found else None

    def reflects(self, wanted: Mapping[str, int], watermark: int | None = None) -> bool:
        """Return whether both tables reflect these positions, the one by time also a watermark (ms)."""
        self.pipeline.must_run()
        for table, sources in SOURCES.items():
            for bucket in range(2):
                barrier = self.barrier(table, bucket)
                if barrier is None:
                    return False
                reported = {name: at["sequence"] for name, at in barrier.positions.items()}
                if any(reported.get(name, -1) < wanted[name] for name in sources):
                    return False
                if watermark is not None and table == "after_deploys" and (barrier.watermark or 0) < watermark:
                    return False
        return True


class Sender(threading.Thread):
    """Sends numbered messages over TCP until it is stopped. When a connection breaks it sends everything of that
    connection again over the next one. It keeps its last connection open, so that it would notice its end.
    """

    def __init__(self, heard: SyslogPipeline) -> None:
        super().__init__(name="sender")
        self.heard, self.sent, self.connections = heard, Counter[str](), 0
        self.enough, self.over = threading.Event(), threading.Event()
        self.failed: BaseException | None = None

    def run(self) -> None:
        try:
            said = list[str]()
            while not self.over.is_set():
                said = self._talk(said)
        except BaseException as error:
            self.failed = error
            raise

    def _talk(self, again: list[str]) -> list[str]:
        """Use one connection; return what was sent over it when it breaks or the sender is stopped."""
        said = list[str]()
        with self.heard.connected() as stream:
            self.connections += 1
            stream.settimeout(0.02)
            while not self.over.is_set():
                new = [] if self.enough.is_set() else [f"n{len(self.sent) + n}" for n in range(10)]
                texts, again = again or new, []
                said += texts
                self.sent.update(texts)
                try:
                    self._send(stream, texts)
                    if not stream.recv(1):  # the server never answers: readable means that the connection has ended
                        break
                except TimeoutError:
                    continue
                except OSError:
                    break
        return said

    @staticmethod
    def _send(stream: socket.socket, texts: Sequence[str]) -> None:
        stream.settimeout(30)
        stream.sendall(lines([SentMessage(TRAFFIC, 6, START, text, newer=True).data() for text in texts]))
        stream.settimeout(0.02)


@pytest.fixture
def heard(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[SyslogPipeline]:
    made = SyslogPipeline(unique("sys"), tmp_path)
    yield made
    made.close()


def say_by_every_way(heard: SyslogPipeline) -> list[SentMessage]:
    """Send messages of both formats and of four hosts over every transport, and one that is invalid."""
    said = [
        SentMessage(f"web{n % 4}", n % 8, START + dt.timedelta(seconds=4 * n), f"message {n}: ü", newer=n % 3 > 0)
        for n in range(120)
    ] + [SentMessage(None, 1, START, "from nowhere", newer=True)]
    data = [one.data() for one in said]
    with heard.connected() as stream, heard.connected() as other:
        stream.sendall(lines(data[::4]) + b"no priority by tcp\n")
        other.sendall(counted(data[1::4]))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        for one in [*data[2::4], b"no priority by udp"]:
            datagrams.sendto(one, ("127.0.0.1", heard.port))
    wait_for(heard.path.exists, "the local socket is not opened", seconds=60)  # it may open after the others
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
        for one in data[3::4]:
            local.sendto(one, str(heard.path))
    return said


def settled(heard: SyslogPipeline, sent: Mapping[str, int], watermark: int | None = None) -> list[dict[str, Any]]:
    """Wait until the log has every text and deploy, and both tables show them; return the rows of messages in the
    log."""
    wait_for(lambda: len(heard.events("deploys")) == heard.deploys, "some deploys are not in the log", seconds=120)
    wait_for(lambda: {row["text"] for row in heard.rows()} == set(sent), "some are not in the log", seconds=300)
    rows, wanted = heard.rows(), heard.positions()
    wait_for(lambda: heard.reflects(wanted, watermark), "the tables do not catch up")
    return rows


@pytest.mark.parametrize("deaths", [1, pytest.param(8, marks=pytest.mark.matrix)])
def test_messages_are_joined_by_time_and_grouped(heard: SyslogPipeline, deaths: int) -> None:
    """Messages of every transport end in HBase: pairs with MySQL's rows by time, and counts. An invalid message is a
    dead letter that cannot be replayed. If the sender repeats what it sent over a broken connection, a killed capture
    loses nothing, and the log has no message more often than it was sent. A late message and an UPDATE are dead letters
    of the join.
    """
    deploys = {n: (f"web{n % 5}", START + dt.timedelta(seconds=80 * n)) for n in range(6)}  # no source declares web4
    for number, (host, at) in deploys.items():
        heard.deployed(number, host, at)
    heard.pipeline.start()
    said = say_by_every_way(heard)
    once = {one.text for one in said}  # a datagram that a killed capture has not committed is lost
    wait_for(lambda: once <= {row["text"] for row in heard.rows()}, "some are not in the log", seconds=300)
    sender = Sender(heard)
    sender.start()
    try:
        for death in range(deaths):
            before, reported = heard.ends("messages", "read_committed"), len(sender.sent)
            wait_for(
                lambda b=before: sender.failed or heard.ends("messages", "read_committed") > b,  # type: ignore[misc]
                "nothing is committed",
                seconds=60,
            )
            heard.pipeline.kill("capture sys")
            heard.pipeline.start_part("capture sys")
            wait_for(lambda d=death: sender.failed or sender.connections == d + 2, "it does not come back", seconds=60)  # type: ignore[misc]
            wait_for(lambda t=reported: sender.failed or len(sender.sent) > t + 100, "it stands still", seconds=60)  # type: ignore[misc]
        sender.enough.set()
        sent = Counter(one.text for one in said) + sender.sent
        rows = settled(heard, sent)
    finally:
        sender.over.set()
        sender.join(60)
    assert sender.failed is None
    times = Counter(row["text"] for row in rows)
    assert {text: n for text, n in times.items() if n > sent[text]} == {}, "published more often than sent"
    assert all(times[one.text] == 1 for one in said)
    assert len({row["id"] for row in rows}) == len(rows)
    assert sum(sender.sent.values()) > len(sender.sent), "no death was in the middle"

    pairs = {
        (number, one.text)
        for number, (host, at) in deploys.items()
        for one in said
        if one.host == host and one.severity < 4 and at <= one.at <= at + dt.timedelta(minutes=5)
    }
    assert {number for number, _ in pairs} == {0, 1, 2, 3, 5}
    shown = [(row["id"], row["text"]) for row in heard.joined("after_deploys")]
    assert sorted(shown) == sorted(pairs), "pairs come at once, and the NULLs of a LEFT JOIN not before the watermark"
    worst = {host: min(one.severity for one in said if one.host == host) for host in {one.host for one in said}}
    counts = Counter(row["host"] for row in rows)
    assert counts[None] == 1
    assert counts["web0"] == 30
    groups = {row["host"]: (row["messages"], row["worst"]) for row in heard.joined("by_host")}
    assert groups == {host: (n, {**worst, TRAFFIC: 6}[host]) for host, n in counts.items()}

    young = START + dt.timedelta(hours=2)
    with heard.connected() as stream:
        stream.sendall(lines([SentMessage("young", 6, young, "young", newer=True).data()]))
        heard.deployed(100, "young", young)
        settled(heard, {**sent, "young": 1}, int(young.timestamp() * 1000) - 600_000)
    left = [row for row in heard.joined("after_deploys") if row["text"] is None]
    assert [(row["id"], row["host"], row["message"]) for row in left] == [(4, "web4", None)]

    listed = tailorbird("dead-letters", "list", str(heard.file), "--json")
    dead_letters = [json.loads(line) for line in listed.stdout.splitlines()]
    assert {(one["stage"], one["of"]) for one in dead_letters} == {("capture", str(MESSAGES))}
    assert all("no priority" in one["reason"] for one in dead_letters)
    assert sorted(json.loads(one["key"])["data"] for one in dead_letters) == [
        "no priority by tcp",
        "no priority by udp",
    ]
    replayed = tailorbird("dead-letters", "replay", str(heard.file), "--all")
    assert replayed.returncode == 1
    assert replayed.stdout.count("is filled by an external sender") == 2

    with heard.connected() as stream:
        stream.sendall(lines([SentMessage("web0", 1, START, "late", newer=True).data()]))
        heard.changed(0, "web3")
        settled(heard, {**sent, "young": 1, "late": 1})
    listed = tailorbird("dead-letters", "list", str(heard.file), "--json")
    dead_letters = [one for line in listed.stdout.splitlines() if (one := json.loads(line))["stage"] == "join"]
    assert {one["of"] for one in dead_letters} == {"after_deploys"}
    reasons = {one["reason"].partition(":")[0] for one in dead_letters}
    assert reasons == {"late", "UPDATE of an append-only table"}
