"""Sources that are no log of a database, with marked secrets, captured by an agent with a policy for a hostile
gateway: a polled database, topics of Kafka, a MaxScale, and syslog."""

from __future__ import annotations

import copy
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pymysql
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.model.schema import Column, TableId, TableSchema
from ingest.agent.catalogs import seen
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.policy_reader import read_policy
from ingest.agent.run_agent import captured
from ingest.fleet.fleet_pb2 import Control_Kafka, Control_MaxScale, Control_MSSQLClient, Control_Syslog, RequestType
from tests.hostile.guarded_database import MARK, NUMBER, PUBLIC, GuardedDatabase, digests_of, secret_forms
from tests.hostile.hostile_gateway import HostileGateway, Lies, attending
from tests.hostile.lies import HIDDEN, PLAIN, SCALARS, configuration, spelt
from tests.ingest.binlog.binlog_servers import Server
from tests.support.cdc_served import served
from tests.support.changes_made import MemoryChanges, SourceLog
from tests.support.gateways import certificates

LIMITS = (
    "{sources: 5000, assignments_per_minute: 1000000, signals_per_minute: 1000000, poll_interval_ms: 20,"
    " poll_lag_ms: 3600000}"
)
RULES = {
    "customers": "mask: {email: redact}, ignored_columns: [pin, level]", "accounts": "ignored_columns: [ssn]",
    "orders": "",
}  # fmt: skip
COLUMNS = {
    "customers": {"id": "int", "name": "varchar(60)", "email": "varchar(60)", "pin": "varchar(60)", "level": "text"},
    "accounts": {"ssn": "bigint", "public_id": "int", "name": "varchar(60)"},
    "orders": {"id": "int", "total": "decimal(10,2)"},
}
_VALUES = 16  # different values of each hidden text, so that the digest of each can be searched
KEYS = {"customers": "id", "accounts": "public_id", "orders": "id"}


class Listener:
    """A server to which a gateway could direct an agent. It counts the connections, of which there must be none."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port, self.connections = self._socket.getsockname()[1], 0
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self) -> None:
        """Stop listening."""
        self._socket.close()

    def _listen(self) -> None:
        with suppress(OSError):  # closed
            while True:
                self._socket.accept()[0].close()
                self.connections += 1


def rows(turn: int) -> dict[str, dict[str, Any]]:
    """Return a row of each table. Hidden values contain the mark, or the number."""
    row, name, few = turn % 8, f"{PUBLIC}{turn}", turn % _VALUES
    return {
        "customers": {
            "id": row, "name": name, "email": f"{MARK}mail{few}", "pin": f"{MARK}pin{few}",
            "level": f"{MARK}l",
        },
        "accounts": {"ssn": NUMBER + row, "public_id": row, "name": name},
        "orders": {"id": row, "total": "1.50"},
    }  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind of source. `policy` is the part of its connection, `base` its honest configuration, and `change(turn)`
    changes a row of every table.

    `odd` are keys that a false configuration may have. `workers` is the number of sessions at a time. `named` renames
    what the generators name.
    """

    key: RequestType
    policy: str
    base: dict[str, Any]
    change: Callable[[int], None]
    odd: dict[str, tuple[Any, ...]]
    workers: int = 8
    named: tuple[tuple[bytes, bytes], ...] = ()


@dataclass
class GuardedSource(GuardedDatabase):
    """A source of one kind."""

    kind: Kind = field(kw_only=True)
    listener: Listener = field(default_factory=Listener)

    def is_whole(self, lies: Lies) -> bool:
        """Return whether a row has arrived, and what follows it was committed: sessions resume from there."""
        return PUBLIC.encode() in lies.frames and lies.commits > 1 and b'"snapshot":"done"' in lies.last

    def configuration(self, random: Random) -> Any:
        """Return a false configuration: one that the generator for databases makes, or a changed honest one."""
        if random.random() < 0.4:
            made = configuration(random)
            if isinstance(made, bytes):
                return made
            made |= {key: self.base[key] for key in ("connection", "type") if random.random() < 0.9}
        else:
            made = copy.deepcopy(self.base)
            for _ in range(random.randrange(3)):
                _change(random, made)
        port = self.listener.port
        elsewhere: dict[str, tuple[Any, ...]] = {
            "hostname": ("127.0.0.1",), "port": (port,), "bootstrap_servers": (f"127.0.0.1:{port}",),
            "url": (f"mysql+pymysql://cdc:cdc@127.0.0.1:{port}/kept", "sqlite:////etc/passwd"),
            "snapshot": ({"hostname": "127.0.0.1", "port": port},), "listen": ({"udp": f"127.0.0.1:{port}"},),
            "username": ("anna",), "security": ({"protocol": "PLAINTEXT"},),
        }  # fmt: skip
        for key, values in {**elsewhere, **self.kind.odd}.items():
            if random.random() < 0.1:
                made[key] = random.choice(values)
        return self.renamed(made)

    def renamed(self, value: Any) -> Any:
        """See `Kind`."""
        content = orjson.dumps(value)
        for old, new in self.kind.named:
            content = re.sub(rb"\b" + old + rb"\b", new, content)  # whole words: `hostname` remains
        return orjson.loads(content)


def _change(random: Random, spec: dict[str, Any]) -> None:
    """Change one place of a configuration."""
    tables = spec.get("tables")
    if isinstance(tables, dict) and tables and random.random() < 0.7:
        name = random.choice(list(tables))
        names = (*HIDDEN.get(name, ("pin",)), *PLAIN.get(name, ("id",)))
        column = spelt(random, random.choice(names))
        key = random.choice(("message_key_columns", "mask", "ignored_columns", "columns", "topic", "where", "only"))
        tables[name] = dict(tables[name]) if isinstance(tables[name], dict) else {}
        tables[name][key] = random.choice(
            ([column], {column: "truncate(1000)"}, {column: "text"}, {column: "none"}, "secrets", f"{column} > ''")
        )
        return
    spec[random.choice(list(spec))] = copy.deepcopy(random.choice(SCALARS))


@contextmanager
def guarded_source(kind: Kind, folder: Path) -> Iterator[GuardedSource]:
    """Start a gateway, and an agent with the policy, and change rows until the block ends."""
    gateway = HostileGateway(certificates(folder))
    text = f"dumps: true\nlimits: {LIMITS}\nconnections:\n  db:\n{kind.policy}"
    policy = read_policy(text, file="policy.yml", environ={}, content=str)
    source = GuardedSource(None, gateway, policy, base=kind.base, key=kind.key, kind=kind)  # type: ignore[arg-type]
    source.histories, source.selected = 0, b'"snapshot":"true"'  # a polled row is always "read"
    source.secrets += secret_forms()
    hidden = [str(NUMBER + row) for row in range(8)]
    hidden += [str(rows(turn)["customers"][column]) for turn in range(_VALUES) for column in ("email", "pin", "level")]
    source.secrets += [form for value in dict.fromkeys(hidden) for form in digests_of(value)]
    stopped = threading.Event()

    def change() -> None:
        turn = 0
        while not stopped.wait(0.1):
            turn += 1
            kind.change(turn)

    traffic = threading.Thread(target=change)
    try:
        with attending(FleetAgent("a1", policy, captured, seen), gateway, folder):
            traffic.start()
            try:
                yield source
            finally:
                stopped.set()
                traffic.join(60)
    finally:
        gateway.close()
        source.listener.close()


def _tables(**options: str) -> str:
    """Return the policy of the database `kept`. `options` are further options of each table."""
    lines = "".join(
        f"          {name}: {{{', '.join(one for one in (rules, options.get(name, '')) if one)}}}\n"
        for name, rules in RULES.items()
    )
    return f"    databases:\n      kept:\n        tables:\n{lines}"


def _base(kind: str, options: dict[str, dict[str, Any]], **keys: Any) -> dict[str, Any]:
    return {"agents": ["a1"], "connection": "db", "type": kind, "database": "kept", "tables": options, **keys}


@contextmanager
def polled(server: Server) -> Iterator[Kind]:
    """A database on a real MySQL server, which SQLAlchemy reads."""
    created = (
        *(f"DROP DATABASE IF EXISTS {name}" for name in ("kept", "other")),
        *(f"CREATE DATABASE {name} DEFAULT CHARSET utf8mb4" for name in ("kept", "other")),
        *(
            f"CREATE TABLE kept.{table} ({', '.join(f'{name} {kind}' for name, kind in columns.items())},"
            f" updated_at DATETIME(6) NOT NULL, PRIMARY KEY ({KEYS[table]}))"
            for table, columns in COLUMNS.items()
        ),
        "CREATE TABLE other.secrets (id INT PRIMARY KEY, pin VARCHAR(60), updated_at DATETIME(6) NOT NULL)",
        "CREATE TABLE kept.foreign_table LIKE other.secrets",
        *(f"INSERT INTO {table} VALUES (1, '{MARK}f', NOW(6))" for table in ("other.secrets", "kept.foreign_table")),
    )
    with server.session(ssl_disabled=True) as connection, connection.cursor() as cursor:
        for sql in created:
            cursor.execute(sql)

        def change(turn: int) -> None:
            for table, row in rows(turn).items():
                marks = ", ".join(["%s"] * len(row))
                with suppress(pymysql.err.OperationalError):  # a deadlock: the next turn changes it again
                    cursor.execute(f"REPLACE INTO kept.{table} VALUES ({marks}, NOW(6))", tuple(row.values()))

        for turn in range(8):
            change(turn)
        yield Kind(
            key=Control_MSSQLClient,
            policy=f"    type: sql\n    url: mysql+pymysql://cdc:cdc@127.0.0.1:{server.port}/kept\n{_tables()}",
            base=_base("sql", {table: {} for table in RULES}, interval="20ms", lag="1h"),
            change=change,
            odd={
                "cursor": ("pin", "email", "ssn", "PIN", "`pin`", "id", "updated_at", "level"),
                "mode": ("feed", "updated_at"), "lag": ("0s", "1s", "1h", "2h"), "limit": (1, 2, 100_000),
                "interval": ("1ms", "1s"), "capture": ("log", "poll"),
                "alarm_backlog": (1,),
            },
        )  # fmt: skip


@contextmanager
def topics(servers: str, name: str, form: str = "debezium") -> Iterator[Kind]:
    """Topics of a real Kafka, one of them outside the policy. Half of the records cannot be read."""
    admin = AdminClient({"bootstrap.servers": servers})
    wanted = [NewTopic(f"{name}_{table}", 1, 1) for table in (*RULES, "secrets")]
    for future in admin.create_topics(wanted).values():
        future.result()
    producer = Producer({"bootstrap.servers": servers})

    def change(turn: int) -> None:
        for table, row in {**rows(turn), "secrets": {"id": turn, "pin": f"{MARK}f"}}.items():
            key = {KEYS.get(table, "id"): row[KEYS.get(table, "id")]}
            envelope: dict[str, Any] = {"op": "c", "before": None, "after": row, "source": {}}
            if form == "upsert":
                envelope = row
            elif form == "maxwell":
                envelope = {"type": "insert", "database": "kept", "table": table, "data": row}
            topic = f"{name}_{table}"
            producer.produce(topic, key=orjson.dumps(key), value=orjson.dumps(envelope))
            producer.produce(topic, key=b"{", value=f"{MARK}unread")
            producer.produce(topic, key=orjson.dumps(key), value=orjson.dumps(envelope)[:-9])
        assert producer.flush(30) == 0

    yield Kind(
        key=Control_Kafka,
        policy=f"    type: kafka\n    bootstrap_servers: {servers}\n    format: {form}\n"
        + _tables(**{table: f"topic: {name}_{table}" for table in RULES}),
        base=_base("kafka", {t: {"columns": COLUMNS[t], "message_key_columns": [KEYS[t]]} for t in RULES}),
        change=change,
        odd={
            "format": ("upsert", "maxwell", "debezium"), "decimals": ("precise",), "topic": (f"{name}_secrets",),
        },
    )  # fmt: skip


@contextmanager
def maxscale() -> Iterator[Kind]:
    """The change stream of a MaxScale."""
    log = MemoryChanges(most=1000)
    source = SourceLog(log)
    for table, columns in COLUMNS.items():
        found = tuple(Column(name=name, column_type=kind, nullable=True) for name, kind in columns.items())
        place = TableId(source="s", database="kept", table=table)
        source.columns(TableSchema(table_id=place, version=1, columns=found, primary_key=(KEYS[table],)))
    with served(log) as server:

        def change(turn: int) -> None:
            source.transaction(*(("c", None, row, table) for table, row in rows(turn).items()))
            source.commit()
            server.notify()

        change(0)
        yield Kind(
            key=Control_MaxScale,
            policy=f"    type: maxscale\n    hostname: 127.0.0.1\n    port: {server.address[1]}\n"
            f"    username: foobar\n    password: foopasswd\n{_tables()}",
            base=_base("maxscale", {table: {"message_key_columns": [KEYS[table]]} for table in RULES}),
            change=change,
            odd={"server_id": (1,)},
        )  # fmt: skip


@contextmanager
def syslog(folder: Path) -> Iterator[Kind]:
    """Messages of syslog, half of which cannot be read. One session at a time can listen."""
    path = folder / "log"

    def change(turn: int) -> None:
        with (
            socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one,
            suppress(OSError),
        ):  # no session listens at present
            one.connect(str(path))
            header = f"2026-01-01T00:00:00Z {MARK}host {PUBLIC}{turn} {MARK}proc 1"
            one.send(f"<13>1 {header} - plain {MARK}text{turn}".encode())
            one.send(f"no syslog {MARK}text{turn}".encode())
            one.send(f"<13>Oct 11 22:14:15 {MARK}host app {MARK}: hi".encode())

    rules = "mask: {text: truncate(6)}, ignored_columns: [host, proc]"
    yield Kind(
        key=Control_Syslog,
        policy=f"    type: syslog\n    listen: {{unix: {path}}}\n"
        f"    databases: {{logs: {{tables: {{messages: {{{rules}}}}}}}}}\n",
        base={"agents": ["a1"], "connection": "db", "type": "syslog", "database": "logs", "tables": {"messages": {}}},
        change=change,
        odd={"database": ("kept", "logs", "LOGS")},
        workers=1,
        named=(
            (b"customers", b"messages"), (b"kept", b"logs"), (b"email", b"host"), (b"level", b"proc"),
            (b"pin", b"text"), (b"name", b"app"),
        ),
    )  # fmt: skip


KINDS: dict[str, Callable[[Server, Path, str, str], AbstractContextManager[Kind]]] = {
    "polled": lambda server, _folder, _servers, _name: polled(server),
    "kafka": lambda _server, _folder, servers, name: topics(servers, name),
    "maxwell": lambda _server, _folder, servers, name: topics(servers, name, "maxwell"),
    "maxscale": lambda *_: maxscale(),
    "syslog": lambda _server, folder, *_: syslog(folder),
}
