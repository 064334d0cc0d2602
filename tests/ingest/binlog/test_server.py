"""Reading from a real server loses and repeats nothing through lost connections, restarts and any position."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from cdc.model.errors import UsageError
from ingest.binlog import (
    BinlogPosition,
    BinlogReader,
    Flavour,
    JsonDiffs,
    RowBatch,
    Statement,
    StreamOptions,
    TransactionAggregator,
    apply_diffs,
    create_transport,
    open_binlog,
    open_reader,
)
from ingest.binlog.format.errors import BinlogError, ConnectionLost, UnsupportedEvent
from ingest.binlog.reading.events import Incident, Transaction
from ingest.binlog.transports.mysql_transport import MysqlTransport
from ingest.binlog.transports.uri import ServerAddress, parse_uri
from tests.ingest.binlog.binlog_servers import Server
from tests.ingest.binlog.type_matrix import ServerSchema
from tests.support.waiting import wait_for

pytestmark = pytest.mark.integration


def transport_of(server: Server, **changes: Any) -> MysqlTransport:
    address = parse_uri(server.uri)
    assert isinstance(address, ServerAddress)
    return MysqlTransport(replace(address, **changes))


@pytest.fixture
def database(mysql80: Server, unique: Callable[[str], str]) -> Iterator[str]:
    """A database of the test, with full metadata and checksums on its server."""
    name = unique("binlog")
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_checksum=CRC32")
        cursor.execute("SET GLOBAL binlog_row_metadata=FULL")
        cursor.execute(f"CREATE DATABASE {name}")
    yield name
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {name}")


def rows_in(changes: Any, database: str) -> list[Any]:
    return [
        row
        for change in changes
        if isinstance(change, RowBatch) and change.decoder.table.database == database
        for row in change.rows
    ]


def kill_dumps(server: Server) -> int:
    """Close every replica's connection at the server."""
    with server.session() as session, session.cursor() as cursor:
        cursor.execute("SELECT ID FROM information_schema.processlist WHERE LEFT(COMMAND, 11) = 'Binlog Dump'")
        ids = [number for (number,) in cursor.fetchall()]
        for number in ids:
            cursor.execute(f"KILL CONNECTION {number}")
        return len(ids)


def replicas(server: Server) -> dict[int, str]:
    """Return server id and host of each replica that the server lists."""
    statement = "SHOW REPLICAS" if server.flavour == "mysql9" else "SHOW SLAVE HOSTS"
    with server.session() as session, session.cursor() as cursor:
        cursor.execute(statement)
        return {int(row[0]): str(row[1]) for row in cursor.fetchall()}


def test_a_reader_is_listed_as_a_replica(mysql80: Server) -> None:
    """As long as it follows the log. The name contains the host, but is no host's name. A dump is not listed."""
    follows = transport_of(mysql80, server_id=4_000_001, heartbeat=0.5)  # the server then notices its end within that
    ends = transport_of(mysql80, server_id=4_000_002, follow=False)
    packets = follows.packets(follows.head())
    next(packets)
    assert list(ends.packets(ends.head()))
    assert replicas(mysql80)[4_000_001] == f"tailorbird@{socket.gethostname()}"[:60]
    assert 4_000_002 not in replicas(mysql80)
    follows.close()
    list(packets)
    wait_for(lambda: 4_000_001 not in replicas(mysql80), "it is still listed")


@pytest.mark.matrix
@pytest.mark.parametrize("flavour", ["mysql57", "mysql9", "maria10", "maria11"])
def test_a_reader_is_listed_on_every_server(servers: Callable[[str], Server], flavour: str) -> None:
    """The command is the same."""
    test_a_reader_is_listed_as_a_replica(servers(flavour))


@pytest.mark.parametrize("by_gtid", [True, False], ids=["gtid", "position"])
def test_lost_connections_lose_and_repeat_nothing(mysql80: Server, database: str, by_gtid: bool) -> None:
    """The server closes the connection repeatedly, also inside transactions: every row is read once, in order."""
    cut_and_compare(mysql80, database, by_gtid)


@pytest.mark.matrix
@pytest.mark.timeout(900)
@pytest.mark.parametrize("by_gtid", [True, False], ids=["gtid", "position"])
@pytest.mark.parametrize("flavour", ["mysql57", "mysql9", "maria10", "maria11"])
def test_lost_connections_on_every_server(
    servers: Callable[[str], Server], flavour: str, by_gtid: bool, unique: Callable[[str], str]
) -> None:
    """The same with MySQL's other versions and with MariaDB's GTIDs."""
    server, database = servers(flavour), unique("cut")
    with server.session() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE DATABASE {database}")
    cut_and_compare(server, database, by_gtid)


def cut_and_compare(server: Server, database: str, by_gtid: bool) -> None:
    """Write large transactions, read them through closed connections, compare."""
    start = transport_of(server).head()
    if not by_gtid:
        start = replace(start, gtids=None)
    # transactions far larger than socket buffers, so that a connection is closed inside them
    total, per_transaction = 9000, 3000
    with server.session(autocommit=False) as session, session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, v VARCHAR(4000))")
        for first in range(0, total, per_transaction):
            rows = [(number, "x" * 4000) for number in range(first, first + per_transaction)]
            cursor.executemany(f"INSERT INTO {database}.t VALUES (%s, %s)", rows)
            session.commit()
    found: list[int] = []
    reader = BinlogReader(transport_of(server, heartbeat=1.0), start)
    cuts, next_cut = 0, 200
    for change in reader.changes():
        found += [next(iter(row.values())) for row in rows_in([change], database)]
        if len(found) >= total:
            break
        if len(found) >= next_cut:
            next_cut += 700
            cuts += kill_dumps(server)
    reader.close()
    assert found == list(range(total))
    assert cuts >= 4


def test_a_reader_without_reconnect_raises_the_error(mysql80: Server, database: str) -> None:
    """With reconnect=0 a lost connection raises an error, and its checkpoint continues without loss."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1)")
    reader = BinlogReader(transport_of(mysql80, reconnect=False), start)
    changes = reader.changes()
    while not rows_in([next(changes)], database):
        pass
    kill_dumps(mysql80)
    with pytest.raises(ConnectionLost):
        for _ in changes:
            pass
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"INSERT INTO {database}.t VALUES (2)")
    again = open_reader(f"{mysql80.uri}?follow=0", reader.checkpoint)
    assert rows_in(again.changes(), database) == [{"id": 2}]


def test_a_silent_server_is_distinguished_from_a_dead_one(mysql80: Server) -> None:
    """Heartbeats keep a reader of an idle server connected beyond its time limit."""
    start = transport_of(mysql80).head()
    reader = BinlogReader(transport_of(mysql80, heartbeat=0.5, reconnect=False), start)
    begun = time.monotonic()
    for raw in reader.raw_events():
        # Without them the reader would have stopped after three silent intervals.
        if raw.code == 27 and time.monotonic() - begun > 2.0:
            break
    assert time.monotonic() - begun > 2.0
    reader.close()


def test_tls_and_refusals(mysql80: Server, database: str) -> None:
    """TLS works, a wrong password and an absent server raise different errors, a purged position is fatal."""
    secure = transport_of(mysql80, ssl="required", follow=False)
    assert rows_in(BinlogReader(secure, secure.head()).changes(), database) == []
    with pytest.raises(UsageError, match="refuses the user"):
        transport_of(mysql80, password="wrong")
    with pytest.raises(ConnectionLost, match="cannot be reached"):
        transport_of(mysql80, port=1)
    with pytest.raises(BinlogError, match="cannot serve this position"):
        list(BinlogReader(transport_of(mysql80, follow=False), BinlogPosition(file="binlog.999999")).changes())


def test_files_and_server_give_the_same_events(mysql80: Server, database: str) -> None:
    """Either URI gives the same changes at the same positions."""
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("FLUSH BINARY LOGS")
        name = mysql80.binlogs()[-1].name
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, j JSON)")
        cursor.execute(f"""INSERT INTO {database}.t VALUES (1, '{{"a": 1}}'), (2, NULL), (3, 'null')""")
        cursor.execute("FLUSH BINARY LOGS")
    path = next(path for path in mysql80.binlogs() if path.name == name)

    def seen(uri: str) -> list[tuple[str, str]]:
        reader = open_reader(uri, BinlogPosition(file=name))
        found = []
        for change in reader.changes():
            text = repr(change.rows) if isinstance(change, RowBatch) else type(change).__name__
            found.append((text, str(replace(reader.checkpoint, gtids=None))))
            if isinstance(change, RowBatch):
                break
        return found

    assert seen(f"{mysql80.uri}?follow=0") == seen(str(path)) == seen(f"file://{path}")


def test_interleaved_tables_of_triggers(mysql80: Server, database: str) -> None:
    """A trigger's table maps are between a statement's map and its rows; each row gets its own table's columns."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute("CREATE TABLE a (id INT PRIMARY KEY, name VARCHAR(20))")
        cursor.execute("CREATE TABLE a_event (at DATETIME(3), what VARCHAR(20), old BIGINT)")
        cursor.execute(
            "CREATE TRIGGER watch AFTER INSERT ON a FOR EACH ROW "
            "INSERT INTO a_event VALUES ('2024-01-02 03:04:05.678', NEW.name, NEW.id)"
        )
        cursor.execute("INSERT INTO a VALUES (1, 'one'), (2, 'two')")
        cursor.execute("UPDATE a JOIN a_event ON a.id = a_event.old SET a.name = 'both', a_event.what = 'both'")
    by_table: dict[str, list[Any]] = {}
    for change in open_reader(f"{mysql80.uri}?follow=0", start).changes():
        if isinstance(change, RowBatch):
            by_table.setdefault(change.decoder.table.table, []).extend(change.rows)
    assert by_table["a"][:2] == [{"id": 1, "name": "one"}, {"id": 2, "name": "two"}]
    assert by_table["a_event"][1] == {"at": "2024-01-02 03:04:05.678", "what": "two", "old": 2}
    assert [after["name"] for _, after in by_table["a"][2:]] == ["both", "both"]
    assert [after["what"] for _, after in by_table["a_event"][2:]] == ["both", "both"]


@pytest.mark.parametrize("image", ["FULL", "MINIMAL"])
def test_partial_json_updates_keep_every_diff(mysql80: Server, database: str, image: str) -> None:
    """All diffs of an update are read, and make the server's document."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"SET binlog_row_value_options=PARTIAL_JSON, binlog_row_image={image}")
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n INT, j JSON, k JSON)")
        filler = "x" * 200
        cursor.execute(
            f"INSERT INTO {database}.t VALUES (1, 1, %s, %s)",
            (json.dumps({"a": [1, 2, 3], "b": {"c": filler}, "d": 1}), json.dumps([1, 2, filler])),
        )
        cursor.execute(
            f"UPDATE {database}.t SET j=JSON_REMOVE(JSON_SET(j, '$.a[1]', 9, '$.b.\"x y\"', 'new', "
            "'$.d', CAST('null' AS JSON), '$.a[3]', 4), '$.a[0]'), k=JSON_SET(k, '$[0]', 'first')"
        )
        cursor.execute(f"UPDATE {database}.t SET n=2")
        cursor.execute(f"SELECT j, k FROM {database}.t")
        final = [json.loads(text) for text in cursor.fetchone()]
    state: dict[str, Any] = {}
    diffs = 0
    for row in rows_in(open_reader(f"{mysql80.uri}?follow=0", start).changes(), database):
        if isinstance(row, dict):
            state = row
            continue
        for name, value in row[1].items():
            if isinstance(value, JsonDiffs):
                diffs += len(value.diffs)
                state[name] = apply_diffs(state[name], value)
            else:
                state[name] = value
    assert [state["j"], state["k"]] == final
    assert state["n"] == 2
    assert diffs >= 5


def test_statement_format_is_refused_and_never_skipped(mysql80: Server, database: str) -> None:
    """A change that was logged as a statement stops the reader with the remedy."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("SET binlog_format=STATEMENT")
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1)")
    with pytest.raises(UnsupportedEvent, match="binlog_format=ROW"):
        list(open_reader(f"{mysql80.uri}?follow=0", start).changes())


def test_xa_and_savepoints(mysql80: Server, database: str) -> None:
    """Rows of XA transactions and savepoints are read, and the position advances only at real ends."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute("CREATE TABLE t (id INT PRIMARY KEY)")
        cursor.execute("XA START 'one'")
        cursor.execute("INSERT INTO t VALUES (1)")
        cursor.execute("XA END 'one'")
        cursor.execute("XA PREPARE 'one'")
        cursor.execute("XA COMMIT 'one'")
        cursor.execute("BEGIN")
        cursor.execute("INSERT INTO t VALUES (2)")
        cursor.execute("SAVEPOINT s")
        cursor.execute("INSERT INTO t VALUES (3)")
        cursor.execute("COMMIT")
    whole = rows_in(open_reader(f"{mysql80.uri}?follow=0", start).changes(), database)
    assert whole == [{"id": 1}, {"id": 2}, {"id": 3}]
    pieces: list[Any] = []
    at = start
    while True:
        reader = open_reader(f"{mysql80.uri}?follow=0", at)
        batch = next((c for c in reader.changes() if isinstance(c, RowBatch)), None)
        if batch is None:
            break
        pieces += batch.rows
        at = reader.checkpoint
    assert pieces == whole


def test_the_background_reader_reports_its_error(mysql80: Server, database: str) -> None:
    """An error of the reading thread is one incident event after the events read before it; then the end."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1)")
    binlog = open_binlog(f"{mysql80.uri}?reconnect=0", background=True)
    binlog.content_handlers.append(TransactionAggregator())
    binlog.set_position(start)
    binlog.connect()
    while not (isinstance(event := binlog.wait_for_next_event(), Transaction) and event.tables):
        assert event is not None
    kill_dumps(mysql80)
    while not isinstance(event := binlog.wait_for_next_event(), Incident):
        assert event is not None
    assert event.origin == "reader"
    assert isinstance(event.error, ConnectionLost)
    assert binlog.wait_for_next_event() is None
    assert not [thread for thread in threading.enumerate() if thread.name == "binlog-reader" and thread.is_alive()]


def test_unknown_signs_are_refused_not_guessed(mysql80: Server, database: str) -> None:
    """Values from a server are decoded with their sign; only without any metadata is a large value refused."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("SET GLOBAL binlog_row_metadata=MINIMAL")
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, u TINYINT UNSIGNED, s TINYINT)")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1, 255, -1)")
        cursor.execute("SET GLOBAL binlog_row_metadata=FULL")
    rows = rows_in(open_reader(f"{mysql80.uri}?follow=0", start).changes(), database)
    assert rows == [{"@1": 1, "@2": 255, "@3": -1}]


def test_hidden_columns_of_functional_indexes(mysql80: Server, database: str) -> None:
    """MySQL 8.0.15 maps the hidden column of a functional index: it is in no row, and a schema may omit it."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {database}.t (id INT PRIMARY KEY, n VARCHAR(20), INDEX ((UPPER(n))))")
        cursor.execute(f"INSERT INTO {database}.t VALUES (1, 'x')")
    for options in (StreamOptions(), StreamOptions(schema=ServerSchema(mysql80))):
        reader = open_reader(f"{mysql80.uri}?follow=0", start, options)
        assert rows_in(reader.changes(), database) == [{"id": 1, "n": "x"}]


def test_flavours(mysql80: Server, database: str) -> None:
    """Tuples, numbers, JSON text, ISO times and base64 are returned on request."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute("SET time_zone='+00:00'")
        cursor.execute(
            f"CREATE TABLE {database}.t (d DECIMAL(5,2), j JSON, a DATETIME(6), s TIMESTAMP(3), b BINARY(2))"
        )
        cursor.execute(
            f"INSERT INTO {database}.t VALUES (1.5, %s, '2024-01-02 03:04:05.6', '2024-01-02 03:04:05.6', 'x')",
            ('{"a": 1}',),
        )
    flavour = Flavour(rows="tuple", json="text", temporal="iso", binary="base64")
    reader = open_reader(f"{mysql80.uri}?follow=0", start, StreamOptions(flavour=flavour))
    assert rows_in(reader.changes(), database) == [
        ("1.50", '{"a":1}', "2024-01-02T03:04:05.600000", "2024-01-02T03:04:05.600Z", "eAA=")
    ]


def test_statements_have_their_default_database(mysql80: Server, database: str) -> None:
    """DDL is returned with the default database that it ran in."""
    start = transport_of(mysql80).head()
    with mysql80.session() as session, session.cursor() as cursor:
        cursor.execute(f"USE {database}")
        cursor.execute("CREATE TABLE größe (id INT)")
    found = [c for c in open_reader(f"{mysql80.uri}?follow=0", start).changes() if isinstance(c, Statement)]
    assert [(c.database, c.text) for c in found] == [(database, "CREATE TABLE größe (id INT)")]
    assert create_transport(mysql80.uri)
