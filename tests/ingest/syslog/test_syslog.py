"""Syslog messages become rows: both formats, every transport; invalid messages become dead letters."""

from __future__ import annotations

import datetime as dt
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.model.errors import TopologyError, UsageError
from cdc.model.naming import TRUNCATE_KEY
from cdc.topology.reader import read_topology
from cdc.topology.topology import Source
from ingest.capture.observer import Observer
from ingest.capture.session import Session
from ingest.capture.signals import Signal, repair_value, signal_of, signal_value
from ingest.log.memory_log import Broker, MemoryLog
from ingest.records.records import Recorder
from ingest.run_capture import tables_of
from ingest.sources import log_end, server_of
from ingest.syslog.frames import LARGEST, FrameError, SyslogFrames
from ingest.syslog.lines import parsed
from tests.support.ports import free_port
from tests.support.waiting import wait_for

NOW = dt.datetime(2026, 1, 1, 0, 0, 5, tzinfo=dt.UTC)


def at(*parts: int) -> dt.datetime:
    return dt.datetime(*parts, tzinfo=dt.UTC)  # type: ignore[arg-type,misc]  # year to microsecond


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        # the examples of RFC 5424, 6.5
        (
            "<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - "
            "\ufeff'su root' failed for lonvick on /dev/pts/8",
            ("auth", 2, at(2003, 10, 11, 22, 14, 15, 3000), "mymachine.example.com", "su", None, "ID47", {},
             "'su root' failed for lonvick on /dev/pts/8"),
        ),
        (
            "<165>1 2003-08-24T05:14:15.000003-07:00 192.0.2.1 myproc 8710 - - %% It's time to make the do-nuts.",
            ("local4", 5, at(2003, 8, 24, 12, 14, 15, 3), "192.0.2.1", "myproc", "8710", None, {},
             "%% It's time to make the do-nuts."),
        ),
        (
            '<165>1 2003-10-11T22:14:15.003Z mymachine.example.com evntslog - ID47 '
            '[exampleSDID@32473 iut="3" eventSource="Application" eventID="1011"] An application event log entry...',
            ("local4", 5, at(2003, 10, 11, 22, 14, 15, 3000), "mymachine.example.com", "evntslog", None, "ID47",
             {"exampleSDID@32473": {"iut": "3", "eventSource": "Application", "eventID": "1011"}},
             "An application event log entry..."),
        ),
        (
            '<165>1 2003-10-11T22:14:15.003Z m e - ID47 [a@1 x="3"][b@1 class="h\\"i\\]gh"]',
            ("local4", 5, at(2003, 10, 11, 22, 14, 15, 3000), "m", "e", None, "ID47",
             {"a@1": {"x": "3"}, "b@1": {"class": 'h"i]gh'}}, ""),
        ),
        ("<13>1 - - - - - -", ("user", 5, None, None, None, None, None, {}, "")),
        # those of RFC 3164, 5.4
        (
            "<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
            ("auth", 2, at(2025, 10, 11, 22, 14, 15), "mymachine", "su", None, None, {},
             "'su root' failed for lonvick on /dev/pts/8"),
        ),
        (
            "<13>Feb  5 17:32:18 10.0.0.99 Use the BFG!",
            ("user", 5, at(2026, 2, 5, 17, 32, 18), "10.0.0.99", None, None, None, {}, "Use the BFG!"),
        ),
        (
            "<30>Jan  1 00:00:04 h sshd[42]: ok",
            ("daemon", 6, at(2026, 1, 1, 0, 0, 4), "h", "sshd", "42", None, {}, "ok"),
        ),
        (
            "<30>Dec 31 23:59:59 h cron[1]: late",
            ("daemon", 6, at(2025, 12, 31, 23, 59, 59), "h", "cron", "1", None, {}, "late"),
        ),
        (
            "<30>2026-01-01T00:00:04+00:00 h app: iso",
            ("daemon", 6, at(2026, 1, 1, 0, 0, 4), "h", "app", None, None, {}, "iso"),
        ),
        # deviations by real senders
        ("<30>sshd[42]: no time", ("daemon", 6, None, None, "sshd", "42", None, {}, "no time")),
        ("<0>just some words", ("kern", 0, None, None, None, None, None, {}, "just some words")),
        ("<191>", ("local7", 7, None, None, None, None, None, {}, "")),
    ],
)  # fmt: skip
def test_samples(line: str, wanted: tuple[Any, ...]) -> None:
    """The content of each field, and the whole text."""
    m = parsed(line.encode(), NOW)
    assert (m.facility, m.severity, m.at, m.host, m.app, m.proc, m.msgid, m.structured, m.text) == wanted


@pytest.mark.parametrize(
    "line", ["", "no priority", "<192>1 - - - - - -", "<x>", "<13>1 yesterday - - - - -",
             "<13>1 - - - - - [broken text", "<13>Feb 31 00:00:00 h a: b"],
)  # fmt: skip
def test_invalid_messages_are_refused(line: str) -> None:
    """An invalid message is quarantined with its bytes, not guessed."""
    with pytest.raises(ValueError):  # noqa: PT011  # each says its own
        parsed(line.encode(), NOW)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 1000])
def test_both_framings_in_pieces_of_any_size(step: int) -> None:
    """A stream is split anywhere; a message may contain newlines if its octets are counted."""
    sent = b"<13>one\n" + b"9 <13>t\nwo\n" + b"<13>three\0" + b"11 <13>four f.<13>last"
    frames, found = SyslogFrames(), list[bytes]()
    for start in range(0, len(sent), step):
        found += frames.feed(sent[start : start + step])
    found.append(frames.end())
    assert found == [b"<13>one", b"<13>t\nwo\n", b"<13>three", b"<13>four f.", b"<13>last"]


def test_a_line_without_end_is_cut() -> None:
    """Memory is bounded: the beginning is published, the rest is skipped up to the next line."""
    frames = SyslogFrames()
    found = list(frames.feed(b"<13>" + b"x" * (3 * LARGEST)))
    found += frames.feed(b"rest\n<13>next\n")
    assert [len(one) for one in found] == [LARGEST, 8]
    assert found[1] == b"<13>next"


@pytest.mark.parametrize("sent", [b"99999999 x", b"1234567890", b"70000 <13>"])
def test_an_invalid_count_ends_the_stream(sent: bytes) -> None:
    """The sender does not use syslog."""
    with pytest.raises(FrameError):
        list(SyslogFrames().feed(sent))


def topology(listen: str, tables: str = "") -> Any:
    text = (
        f"name: logs\nsources:\n  sys: {{type: syslog, database: logs, listen: {listen}{tables}}}\n"
        "tables:\n  t: {query: SELECT m.id FROM sys.messages m, row_key: [id]}\n"
    )
    return read_topology(text, file="logs.yml", environ={})


class RequestedSignals:
    """Implements `signals.Signals` with the requests of a test."""

    def __init__(self) -> None:
        self.signals, self.read_to = list[Signal](), 0

    def read(self, start: int | None) -> tuple[list[Signal], int | None]:
        self.read_to = len(self.signals)
        return self.signals[start or 0 :], self.read_to


@contextmanager
def capturing(
    source: Source, broker: Broker, asked: RequestedSignals | None = None
) -> Iterator[Callable[[], list[dict[str, Any]]]]:
    """Run a session in a thread; yield a function that returns the rows in the log."""
    stop, failed = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            Session(
                source=server_of("logs", source), log=MemoryLog(broker, "logs.schemas", "logs.history"),
                recorder=Recorder("logs", "syslog"), tables=tables_of(source), mode=source.snapshot_mode,
                clock=time.time, stopped=stop.is_set, observer=Observer(), cascades="ignore", signals=asked,
                rereads=not source.is_only_reported,
            ).run()  # fmt: skip
        except BaseException as error:  # noqa: BLE001  # looked at below
            failed.append(error)

    def rows() -> list[dict[str, Any]]:
        assert not failed, failed
        found = [orjson.loads(r.value) for r in broker.records if r.topic == "logs.sys.logs.messages" and r.value]
        assert {event["op"] for event in found} <= {"c"}
        return [event["after"] for event in found]

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield rows
    finally:
        stop.set()
        thread.join(20)
        assert not thread.is_alive()


def connected(port: int) -> socket.socket:
    deadline = time.monotonic() + 10
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), 5)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_every_transport_reaches_the_log(tmp_path: Path) -> None:
    """UDP, TCP in both framings and a unix socket; noise ends only its own connection, and invalid messages are
    kept."""
    port, path = free_port(), tmp_path / "log.sock"
    source = topology(f"{{udp: '127.0.0.1:{port}', tcp: '127.0.0.1:{port}', unix: '{path}'}}").sources["sys"]
    broker = Broker()
    with capturing(source, broker) as rows:
        with connected(port) as stream, connected(port) as noise:
            stream.sendall(b"<13>Jan  1 00:00:00 h app[7]: by line\n")
            counted = '<14>1 2026-01-01T00:00:00Z h app - - [x@1 k="ä"] counted'.encode()
            stream.sendall(b"%d %s" % (len(counted), counted))
            noise.sendall(b"99999999999 no syslog")
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
                datagrams.sendto(b"<15>by udp", ("127.0.0.1", port))
                datagrams.sendto(b"what is this", ("127.0.0.1", port))
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as local:
                local.sendto(b"<16>by socket", str(path))
            wait_for(lambda: len(rows()) == 4, f"{rows()}", seconds=15)
            stream.settimeout(5)
            noise.settimeout(5)
            assert noise.recv(1) == b""
        dead_letters = [orjson.loads(r.value) for r in broker.records if r.topic == "logs.deadletters" and r.value]
    assert sorted(row["text"] for row in rows()) == ["by line", "by socket", "by udp", "counted"]
    (one,) = [row for row in rows() if row["text"] == "counted"]
    assert orjson.loads(one["structured"]) == {"x@1": {"k": "ä"}}
    assert (one["facility"], one["severity"], one["timestamp"]) == ("user", 6, "2026-01-01T00:00:00Z")
    assert [dead_letter["values"]["data"] for dead_letter in dead_letters] == ["what is this"]
    assert "no priority" in dead_letters[0]["why"]
    assert not path.exists()


def test_a_fast_sender_is_slowed_down_and_nothing_of_tcp_is_lost() -> None:
    """TCP is read only as fast as the log accepts records; keys of rows are never reused, not even by other
    sessions."""
    port = free_port()
    source = topology(f"{{tcp: '127.0.0.1:{port}'}}").sources["sys"]
    broker = Broker()
    reported: list[dict[str, Any]] = []
    for session in range(2):
        with capturing(source, broker) as rows, connected(port) as stream:
            stream.sendall(b"".join(b"<13>%d-%d\n" % (session, n) for n in range(3000)))
            stream.shutdown(socket.SHUT_WR)
            wanted = 3000 * (session + 1)
            wait_for(lambda rows=rows, wanted=wanted: len(rows()) == wanted, "some are lost", seconds=30)  # type: ignore[misc]
            reported = rows()
    assert [row["text"] for row in reported] == [f"{session}-{n}" for session in range(2) for n in range(3000)]
    assert len({row["id"] for row in reported}) == 6000
    assert broker.checkpoints[-1].position.pos == 6000
    assert log_end(source)().pos == 0


def test_a_message_table_cannot_be_read_again() -> None:
    """A snapshot would see no row, and its end would delete all rows downstream: the signal is refused, rows
    continue."""
    port, broker, asked = free_port(), Broker(), RequestedSignals()
    source = topology(f"{{tcp: '127.0.0.1:{port}'}}").sources["sys"]
    with capturing(source, broker, asked) as rows, connected(port) as stream:
        stream.sendall(b"<13>one\n")
        wait_for(lambda: len(rows()) == 1, "the first is lost", seconds=15)
        asked.signals.append(signal_of(signal_value("execute-snapshot", ("logs.messages",))))
        asked.signals.append(signal_of(repair_value("logs.messages", [{"id": "1"}])))
        wait_for(lambda: asked.read_to == 2, "no signal is read", seconds=15)
        stream.sendall(b"<13>two\n")
        wait_for(lambda: len(rows()) == 2, "the second is lost", seconds=15)
        wait_for(
            lambda: broker.checkpoints[-1].state.get("signals") == 2, "no end of a snapshot is reported", seconds=15
        )
    state = broker.checkpoints[-1].state
    assert not state.get("snapshots")
    assert not state.get("mends")
    assert not [r for r in broker.records if r.key == TRUNCATE_KEY]


def test_an_address_that_is_taken_is_named() -> None:
    """The error gives the remedy in the topology."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        source = topology(f"{{tcp: '127.0.0.1:{port}'}}").sources["sys"]
        with pytest.raises(UsageError, match=r"cannot listen: .*in use.*correct `listen:`"):
            Session(
                source=server_of("logs", source), log=MemoryLog(Broker(), "logs.schemas", "logs.history"),
                recorder=Recorder("logs", "syslog"), tables=tables_of(source), mode=source.snapshot_mode,
                clock=time.time, stopped=lambda: True, observer=Observer(), cascades="ignore",
            ).run()  # fmt: skip


@pytest.mark.parametrize(
    ("listen", "tables", "said"),
    [
        ("{}", "", "nothing in it"),
        ("{udp: here}", "", "an address host:port"),
        ("{udp: '127.0.0.1:514'}", ", tables: [lines]", "a table that is not messages"),
        ("{udp: '127.0.0.1:514'}", ", capture: poll", "that is polled"),
        ("{udp: '127.0.0.1:514'}", ", hostname: h", "unknown key hostname"),
    ],
)
def test_a_wrong_topology_is_reported(listen: str, tables: str, said: str) -> None:
    """Each error has its line."""
    with pytest.raises(TopologyError, match=said):
        topology(listen, tables)


def test_messages_may_be_joined_by_time() -> None:
    """The table only grows: `append_only` is accepted, and joins need no step for the latest version."""
    found = topology("{udp: '127.0.0.1:514'}", ", tables: {messages: {append_only: true, watermark: 1m}}")
    assert found.lateness(found.sources["sys"].tables[0]) == 60.0
    assert not found.sources["sys"].needs_latest
