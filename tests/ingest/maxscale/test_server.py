"""Serve MaxScale's CDC protocol over a log in memory, to a client written from the protocol's description."""

from __future__ import annotations

import contextlib
import io
import resource
import socket
import threading
import time
from typing import Any

import fastavro
import pytest

from ingest.maxscale.tcp_server import ServerLimits
from ingest.maxscale.tcp_statistics import STALLED
from tests.support.cdc_client import CdcClient
from tests.support.cdc_served import MaxScaleServer, served
from tests.support.changes_made import MemoryChanges, SourceLog, schema_of
from tests.support.waiting import wait_for

Row = dict[str, Any]


def shop(**more: Any) -> tuple[MemoryChanges, SourceLog]:
    """A table t of two columns."""
    log = MemoryChanges(**more)
    source = SourceLog(log)
    source.columns(schema_of(name="varchar(20)"))
    return log, source


def row(number: int, name: str | None = "x") -> Row:
    return {"id": number, "name": name}


def filled(source: SourceLog, first: int, last: int) -> None:
    """Append one transaction per row."""
    for number in range(first, last):
        source.transaction(("c", None, row(number)))
    source.commit()


def ids(client: CdcClient, count: int) -> list[int]:
    return [one["id"] for one in client.objects(count)]


def test_a_table_is_streamed_from_its_beginning() -> None:
    """A schema line, then one line per row image in the source's order, over all partitions; then later commits."""
    log, source = shop()
    source.transaction(("c", None, row(1, "é")), ("c", None, row(2, None)))
    source.transaction(("u", row(1, "é"), row(1, "b")))
    source.transaction(("d", row(2, None), None))
    source.commit()
    source.transaction(("c", None, row(3)))  # not committed yet
    with served(log) as server, server.client() as client:
        client.open().request("REQUEST-DATA d.t")
        schema, *rows = client.objects(6)
        assert schema["namespace"] == "MaxScaleChangeDataSchema.avro"
        assert (schema["database"], schema["table"], schema["version"], schema["gtid"]) == ("d", "t", 1, "0-3001-2")
        assert [one["name"] for one in schema["fields"]] == [
            "domain", "server_id", "sequence", "event_number", "timestamp", "event_type", "id", "name",
        ]  # fmt: skip
        assert schema["fields"][-1] == {
            "name": "name", "type": ["null", "string"], "real_type": "varchar", "length": 20, "unsigned": False,
        }  # fmt: skip
        assert [(one["event_type"], one["id"], one["name"]) for one in rows] == [
            ("insert", 1, "é"),
            ("insert", 2, None),
            ("update_before", 1, "é"),
            ("update_after", 1, "b"),
            ("delete", 2, None),
        ]
        assert [(one["domain"], one["server_id"], one["sequence"], one["event_number"]) for one in rows] == [
            (0, 3001, 2, 1), (0, 3001, 2, 3), (0, 3001, 4, 1), (0, 3001, 4, 2), (0, 3001, 5, 1),
        ]  # fmt: skip
        source.commit()
        server.notify()
        assert ids(client, 1) == [3]


def test_a_new_schema_is_sent_in_mid_stream_and_a_version_can_be_requested() -> None:
    """Its line precedes the first row of its version; `db.table.2` starts with that version."""
    log, source = shop()
    filled(source, 0, 5)
    source.columns(schema_of(version=2, name="varchar(20)", credit="decimal(10,2)"))
    for number in range(5, 10):
        source.transaction(("c", None, {**row(number), "credit": "1.50"}))
    source.commit()
    with served(log) as server:
        with server.client() as client:
            client.open().request("REQUEST-DATA d.t\n")
            reported = client.objects(12)
            assert [one.get("version") for one in reported] == [1, *[None] * 5, 2, *[None] * 5]
            assert [one["id"] for one in reported if "id" in one] == list(range(10))
            assert reported[7]["credit"] == "1.50"
        with server.client() as client:
            client.open().request("REQUEST-DATA d.t.000002\n")
            assert [one.get("version") for one in client.objects(6)] == [2, *[None] * 5]


def test_avro_has_one_container_per_version() -> None:
    """An independent reader reads it: a header with the schema, blocks of rows; another header when the columns
    change."""
    log, source = shop()
    source.transaction(("c", None, row(1, "é")), ("u", row(1, "é"), row(1, None)))
    source.columns(schema_of(version=2, name="varchar(20)", credit="decimal(10,2)", raw="blob"))
    source.transaction(("c", None, {**row(2), "credit": "1.50", "raw": "AP8="}))
    source.commit()
    with served(log) as server, server.client() as client:
        client.open("AVRO").request("REQUEST-DATA d.t")
        first, second = containers(client, 2)
        assert first[0]["version"] == 1
        assert [(one["event_type"], one["id"], one["name"]) for one in first[1]] == [
            ("insert", 1, "é"), ("update_before", 1, "é"), ("update_after", 1, None),
        ]  # fmt: skip
        assert second[0]["version"] == 2
        assert second[1][0]["credit"] == "1.50"
        assert second[1][0]["raw"] == b"\x00\xff"


def containers(client: CdcClient, count: int, *, empty: bool = False) -> list[tuple[Row, list[Row]]]:
    """Return schema and rows of so many containers, as soon as they arrive."""
    data = client.received
    while True:
        parts = [b"Obj\x01" + part for part in data.split(b"Obj\x01")[1:]]
        try:
            found = [fastavro.reader(io.BytesIO(part)) for part in parts]
            reported = [(one.writer_schema, list(one)) for one in found]
            if len(reported) == count and (empty or all(rows for _, rows in reported)):
                return reported  # type: ignore[return-value]  # of records
        except (EOFError, ValueError, IndexError):
            pass  # more bytes will arrive
        received = client.socket.recv(65536)
        assert received, "it was ended"
        data += received


@pytest.mark.parametrize("maria", [None, 7])
def test_a_client_resumes_from_its_gtid(maria: int | None) -> None:
    """It receives that transaction and all later ones, none before, on any server: halfway the source fails
    over to another server. MariaDB's own GTIDs are used."""
    log = MemoryChanges()
    source = SourceLog(log, maria=maria)
    source.columns(schema_of(name="varchar(20)"))
    for number in range(20):
        if number == 10:
            source.server, source.transactions = 3002, source.transactions if maria else 0
        filled(source, number, number + 1)
    with served(log) as server:
        with server.client() as client:
            client.open().request("REQUEST-DATA d.t")
            rows = client.objects(21)[1:]
        for place in (0, 7, 19):
            at = rows[place]
            with server.client() as client:
                client.open().request(f"REQUEST-DATA d.t {at['domain']}-{at['server_id']}-{at['sequence']}")
                assert client.objects(21 - place)[1:] == rows[place:]
        with server.client() as client:  # after all existing rows
            client.open().request(f"REQUEST-DATA d.t {rows[-1]['domain']}-1-{rows[-1]['sequence'] + 1}\n")
            filled(source, 20, 21)
            server.notify()
            assert client.objects(2)[1]["id"] == 20


@pytest.mark.parametrize("form", ["JSON", "AVRO"])
@pytest.mark.parametrize("maria", [None, 7])
def test_a_client_without_a_row_receives_the_columns(maria: int | None, form: str) -> None:
    """A GTID of another domain, or of the future, and a table without rows are answered as MaxScale does: the columns
    at once, and rows when there are some."""
    log = MemoryChanges()
    source = SourceLog(log, maria=maria)
    source.columns(schema_of(name="varchar(20)"))
    filled(source, 0, 3)
    with served(log) as server:
        for gtid in ("9-9-9", "9-9-1", f"{maria or 0}-1-1000000"):
            with server.client() as client:
                client.open(form).request(f"REQUEST-DATA d.t {gtid}\n")
                [schema] = (
                    [one[0] for one in containers(client, 1, empty=True)] if form == "AVRO" else client.objects(1)
                )
                assert (schema["table"], schema["version"]) == ("t", 1)
                filled(source, 3, 5)
                server.notify()
                client.request("QUERY-TRANSACTION 9-9-9\n")  # no row came before the answer
                assert client.line() == "ERR NO-GTID GTID '9-9-9' not found."


def test_a_new_version_follows_columns_that_were_sent_without_rows() -> None:
    """Each schema is sent once, before its first row."""
    log, source = shop()
    filled(source, 0, 3)
    with served(log) as server, server.client() as client:
        client.open().request("REQUEST-DATA d.t 0-1-5\n")
        assert client.objects(1)[0]["version"] == 1
        filled(source, 3, 4)
        source.columns(schema_of(version=2, name="varchar(20)", credit="decimal(10,2)"))
        source.transaction(("c", None, {**row(4), "credit": "1.50"}))
        source.commit()
        server.notify()
        assert [one.get("version", one.get("id")) for one in client.objects(3)] == [3, 2, 4]


def test_a_registration_must_end_in_time() -> None:
    """A client that logs in and registers half, or not at all, receives an error and is disconnected."""
    log, _ = shop()
    with served(log, ServerLimits(register=0.3)) as server:
        for half in (b"", b"REGISTER UUID=x, TYPE="):
            with server.client() as client:
                assert client.login() == "OK"
                client.send(half)
                assert client.line() == "ERR, code 12, msg: Registration failed"
                assert client.ended()


def test_a_compacted_gtid_is_refused() -> None:
    """If the log may lack later rows, the GTID is reported as missing; the newest one is accepted."""
    log, source = shop(now_ms=1)
    for number in range(6):
        filled(source, number, number + 1)
    log.whole_since = 10
    with served(log) as server, server.client() as client:
        client.open().request("REQUEST-DATA d.t 0-3001-4\n")
        assert client.line() == "ERR NO-GTID GTID '0-3001-4' not found."
        client.request("REQUEST-DATA d.t 0-3001-7\n")
        assert client.objects(2)[1]["id"] == 5


def test_queries_and_answers_equal_maxscales() -> None:
    """QUERY-*, missing tables, unknown words: the connection continues after each."""
    log, source = shop()
    source.columns(schema_of("u", name="varchar(20)"))
    filled(source, 0, 3)
    source.transaction(("c", None, row(9)), ("c", None, row(9), "u"), ("c", None, row(10), "u"))
    source.commit()
    with served(log) as server, server.client() as client:
        client.open().request("QUERY-LAST-TRANSACTION\n")
        last = client.objects(1)[0]
        assert (last["GTID"], last["events"], last["tables"]) == ("0-3001-6", 3, ["d.t", "d.u"])
        client.request("QUERY-TRANSACTION 0-3001-4")
        assert client.objects(1) == [{"GTID": "0-3001-4", "events": 1, "timestamp": 1500000004, "tables": ["d.t"]}]
        for said, answer in [
            ("QUERY-TRANSACTION 0-3001-77\n", "ERR NO-GTID GTID '0-3001-77' not found."),
            ("QUERY-TRANSACTION 7\n", "ERR QUERY-TRANSACTION with malformed GTID."),
            ("REQUEST-DATA d.v\n", "ERR NO-FILE File 'd.v' not found."),
            ("REQUEST-DATA d.t.000009\n", "ERR NO-FILE File 'd.t.000009' not found."),
            ("REQUEST-DATA d.t x\n", "ERR REQUEST-DATA with malformed GTID."),
            ("REQUEST-DATA\n", "ERR REQUEST-DATA with no data."),
            ("DANCE\n", "ERR: Unknown command"),
        ]:
            client.request(said)
            assert client.line() == answer
        client.request("REQUEST-DATA d.t")
        assert client.objects(1)[0]["version"] == 1
        client.request("CLOSE")
        assert client.ended()


def test_failed_logins_wait_and_others_do_not() -> None:
    """Each is answered, closed, logged and delayed longer; another user at the same address is served at the same
    time."""
    log, source = shop()
    filled(source, 0, 1)
    with served(log) as server:
        began = time.monotonic()
        for _ in range(2):
            with server.client() as client:
                assert client.login("foobar", "wrong") == "ERROR: Authentication failed"
                assert client.ended()
        assert time.monotonic() - began >= 0.5
        with server.client() as waits:
            waits.send(b"666f6f6261723a96c86eb4479c9e3142111cf29d931bcddf248783")
            began = time.monotonic()
            with server.client() as other:
                assert other.login("anna", "secret") == "OK"
                assert time.monotonic() - began < 0.9
            assert waits.line() == "OK"
            assert time.monotonic() - began >= 0.5


def test_noise_partial_requests_and_long_lines_harm_no_other_client() -> None:
    """A thousand idle clients, half requests, a line of 1 MB, noise, and a silent client: all are bounded, and a client
    is still served."""
    log, source = shop()
    filled(source, 0, 3)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    idle = list[CdcClient]()
    with served(log, ServerLimits(clients=1010, login=1.0, register=120.0)) as server:
        try:
            with server.client() as good:
                good.open().request("REQUEST-DATA d.t")
                assert good.objects(4)[3]["id"] == 2
                for _ in range(1000):
                    idle.append(server.client())
                    assert idle[-1].login() == "OK"
                for client in idle[:500]:
                    client.send(b"REGISTER UUID=half")
                for client in idle[500:510]:
                    assert client.register() == "OK"
                _noise(server)
                with server.client() as silent:
                    assert silent.line() == "ERROR: Authentication failed"
                filled(source, 3, 4)
                server.notify()
                assert good.objects(1)[0]["id"] == 3
                more = [server.client() for _ in range(12)]
                assert any(client.ended() for client in more[-1:])
                for client in more:
                    client.socket.close()
        finally:
            for client in idle:
                client.socket.close()
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _noise(server: MaxScaleServer) -> None:
    for said in (bytes(range(256)) * 64, b"\x16\x03\x01\x02\x00\x01" * 20, b"GET / HTTP/1.1\r\n\r\n"):
        with server.client() as client:
            client.send(said)
            assert client.ended()
    with server.client() as client:
        client.open()
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is closed in the middle
            client.send(b"R" * (1 << 20))
        assert client.ended()


def test_a_stalled_client_buffers_at_most_one_window() -> None:
    """The server reads no further for a client whose socket is full; the client gets all rows, in order, once it
    reads."""
    log, source = shop(most=100)
    for number in range(1000):
        source.transaction(("c", None, row(number, "x" * 20_000)))
    source.commit()
    stalls = STALLED._value.get()
    with served(log) as server, server.client() as slow, server.client() as quick:
        slow.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.open().request("REQUEST-DATA d.t")
        quick.open().request("REQUEST-DATA d.t")
        got = list[int]()
        thread = threading.Thread(target=lambda: got.extend(one["id"] for one in quick.objects(1001)[1:]))
        thread.start()
        thread.join(60)
        assert got == list(range(1000))
        wait_for(lambda: STALLED._value.get() > stalls, "it is not seen to take nothing", 10)
        reads = log.reads
        assert [one["id"] for one in slow.objects(1001)[1:]] == list(range(1000))
        assert log.reads > reads  # the rows were not buffered for it
