"""Syslog and MaxScale behind an agent whose gateway is hostile: hidden columns leave neither in rows nor in dead-letter
records."""

from __future__ import annotations

import datetime as dt
import socket
from pathlib import Path
from typing import Any

import orjson
import pytest

from cdc.model.event import Position
from cdc.model.filters import TableRule, shape_of
from cdc.model.schema import Column, TableId, TableSchema
from ingest.agent.catalogs import seen
from ingest.agent.grpc_agent import FleetAgent
from ingest.agent.policy_reader import read_policy
from ingest.agent.run_agent import captured
from ingest.ddl.catalog import Catalog
from ingest.ddl.dialect import Dialect
from ingest.events.log_events import RefusedImage, RowsLogged, TransactionLogged
from ingest.events.tables import Tables
from ingest.fleet.fleet_pb2 import Control_MaxScale, Control_Syslog, RequestType
from ingest.maxscale.upstream import UpstreamEvents, UpstreamLine
from ingest.mirror.topics import InputRecord, MirroredTable, TopicEvents
from ingest.records.capture_interfaces import Checkpoint
from ingest.records.images import represented, shaped
from ingest.records.records import Recorder
from ingest.syslog.rows import COLUMNS, ReceivedMessage, SyslogEvents
from tests.hostile.hostile_gateway import HostileGateway, Lies, attending, wait_until
from tests.hostile.policed import leaked
from tests.hostile.test_hostile_gateway import quiet
from tests.support.cdc_served import served
from tests.support.changes_made import MemoryChanges, SourceLog, schema_of

pytestmark = pytest.mark.timeout(60)
POLICY = """
dumps: false
connections:
  logs:
    type: syslog
    listen: {{unix: {path}}}
    databases: {{logs: {{tables: {{messages: {{mask: {{text: truncate(6)}}, ignored_columns: [host]}}}}}}}}
  old:
    type: maxscale
    hostname: 127.0.0.1
    port: {port}
    username: foobar
    password: foopasswd
    databases: {{d: {{tables: {{t: {{ignored_columns: [pin], mask: {{mail: redact}}}}}}}}}}
"""
SECRETS = [f"{kind}SECRET{number}" for kind in ("pin", "mail", "host", "text") for number in range(5)]


def assign(gateway: HostileGateway, key: RequestType, name: str, database: str, tables: dict[str, Any]) -> Lies:
    kind = {Control_Syslog: "syslog", Control_MaxScale: "maxscale"}[key]
    spec = {"agents": ["a1"], "connection": name, "type": kind, "database": database, "tables": tables}
    return gateway.assign(name, spec, key=key)


def test_hidden_columns_of_streams_stay_on_the_host(gateway: HostileGateway, folder: Path, tmp_path: Path) -> None:
    """Messages that are no syslog could contain anything, so their dead-letter records have no content."""
    quiet()
    log, path = MemoryChanges(), tmp_path / "log"
    source = SourceLog(log)
    source.columns(schema_of(name="varchar(20)", pin="varchar(20)", mail="varchar(20)"))

    def write(number: int) -> None:
        row = {"id": number, "name": f"n{number}", "pin": f"pinSECRET{number}", "mail": f"mailSECRET{number}"}
        source.transaction(("c", None, row))
        source.transaction(("u", row, {**row, "pin": f"pinSECRET{number + 1}"}))
        source.commit()

    def send(text: str) -> None:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as one:
            one.connect(str(path))
            one.send(text.encode())

    write(1)
    with served(log) as server:
        policy = read_policy(
            POLICY.format(path=path, port=server.address[1]), file="policy.yml", environ={}, content=str
        )
        with attending(FleetAgent("a1", policy, captured, seen), gateway, folder):
            tables = assign(gateway, Control_MaxScale, "old", "d", {"t": {"message_key_columns": ["id"]}})
            messages = assign(gateway, Control_Syslog, "logs", "logs", {"messages": {}})
            assert wait_until(path.exists, 30)
            send("<13>1 2026-01-01T00:00:00Z hostSECRET1 app 1 - - plain textSECRET1")
            send("no syslog textSECRET2")
            send("<13>1 2026-01-01T00:00:00Z hostSECRET1 last 1 - - plain textSECRET3")
            assert wait_until(lambda: b"last" in messages.frames, 30), [str(one) for one in messages.reports]
            assert wait_until(lambda: b"n1" in tables.frames, 30), [str(one) for one in tables.reports]
            write(2)
            server.notify()
            assert wait_until(lambda: b"n2" in tables.frames, 30)
            assert wait_until(lambda: messages.commits > 0 and tables.commits > 1, 30)
            assert wait_until(lambda: b"severity" in bytes(gateway.heard), 30), "nothing is mapped"
    assert b"content is withheld" in messages.frames
    assert b'"text":"plain "' in messages.frames
    assert b'"mail":"***"' in tables.frames
    with gateway.lock:
        sent = bytes(gateway.heard) + b"".join(bytes(one.heard + one.frames) for one in (tables, messages))
    assert not leaked(sent, SECRETS)


@pytest.mark.parametrize("withheld", [True, False])
def test_records_that_are_not_understood_are_withheld(withheld: bool) -> None:
    """They may belong to another table of their topic, which hides columns."""
    record = InputRecord("t", 0, 5, b"1", b'{"mail": "mailSECRET1"', 0)
    one = MirroredTable(table=TableId(source="s", database="d", table="t"), topic="t", columns=(("id", "bigint"),))
    position = Position(file="topics", pos=0, gtid_set="", sequence=0)
    tables = Tables("s", frozenset({"d"}), lambda *_: True, Dialect(server="kafka", version=0), "utf8mb4")
    tables.catalog = Catalog()
    events = TopicEvents(
        [record], tables, (one,), Checkpoint(position=position, snapshot="done", ts_ms=0), starts={"t:0": 5},
        form="debezium", decimals="string", withheld=withheld,
    )  # fmt: skip
    [image] = [image for event in events if isinstance(event, RowsLogged) for image in event.rows]
    assert isinstance(image, RefusedImage)
    assert ("SECRET" in str(image.values) + image.why) is not withheld


def events_of(form: str, value: bytes, one: MirroredTable) -> list[RowsLogged]:
    position = Position(file="topics", pos=0, gtid_set="", sequence=0)
    tables = Tables("s", frozenset({"d"}), lambda *_: True, Dialect(server="kafka", version=0), "utf8mb4")
    tables.catalog = Catalog()
    events = TopicEvents(
        [InputRecord("t", 0, 5, b'{"id": 1}', value, 0)], tables, (one,),
        Checkpoint(position=position, snapshot="done", ts_ms=0), starts={"t:0": 5}, form=form, decimals="string",
        withheld=True,
    )  # fmt: skip
    return [event for event in events if isinstance(event, RowsLogged)]


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ("maxwell", b'{"type": "insert", "database": "%s", "table": "t", "data": {"id": 1, "mail": "x"}}'),
        ("debezium", b'{"op": "c", "source": {"db": "%s", "table": "t"}, "after": {"id": 1, "mail": "x"}}'),
    ],
)
def test_a_record_of_another_database_is_not_the_tables(form: str, value: bytes) -> None:
    """The policy may hide columns of the other database's table."""
    columns = (("id", "bigint"), ("mail", "varchar(20)"))
    table = TableId(source="s", database="d", table="t")
    one = MirroredTable(table=table, topic="t", columns=columns, key=("id",), exact=True, shared=True)
    assert events_of(form, value % b"other", one) == []
    assert len(events_of(form, value % b"d", one)) == 1


@pytest.mark.parametrize("name", ["line", "data", "value"])
def test_content_that_is_not_parsed_is_withheld(name: str) -> None:
    """A column may have the name under which a dead letter shows it."""
    table = TableId(source="s", database="d", table="t")
    column = Column(name=name, column_type="longtext", nullable=True)
    schema = TableSchema(table_id=table, version=1, columns=(column,), primary_key=(name,))
    writer = Recorder("top").writer(schema, shape_of(TableRule(ignored_columns=("pin",))))
    image = represented(RefusedImage(values={name: "pinSECRET1"}, why="no row", raw=True), writer)
    assert isinstance(image, RefusedImage)
    assert (image.values, "withheld" in image.why) == ({}, True)


def test_streams_mark_content_that_is_not_parsed() -> None:
    """Without the mark, content could pass as a column."""
    table = TableId(source="s", database="d", table="t")
    start = Checkpoint(position=Position(file="", pos=0, gtid_set="", sequence=0), snapshot="done", ts_ms=0)
    tables = Tables("s", frozenset({"d"}), lambda *_: True, Dialect(server="maxscale", version=0), "utf8mb4")
    message = ReceivedMessage(b"\xff" * 10, dt.datetime.now(dt.UTC), "unix")
    mark = {"domain": 0, "server_id": 1, "sequence": 1, "event_number": 1, "timestamp": 1, "event_type": "x"}
    lines = [UpstreamLine(table, line) for line in (b"pinSECRET1", orjson.dumps(mark))]
    feed = SyslogEvents([message], table, start, "x", lambda: True)
    syslog = [event.rows for event in feed if isinstance(event, TransactionLogged)]
    maxscale = [
        one for one in UpstreamEvents(lines, tables, {table: TableRule()}, start) if isinstance(one, RowsLogged)
    ]
    found = [*syslog, *events_of("debezium", b"{", MirroredTable(table=table, topic="t")), *maxscale]
    images = [image for event in found for image in event.rows]
    assert [image.raw for image in images] == [True] * 4


@pytest.mark.parametrize(
    ("text", "leaves"),
    [
        ("1 2026-01-01T00:00:00Z hostSECRET1 app 1 - - hi", True),
        ("1 - - - - - - hi", True),
        ("Oct 11 22:14:15 hostSECRET1 app: hi", True),
        ("Oct 11 2026 22:14:15 hostSECRET1 app: hi", False),
        ("hostSECRET1 app: hi", False),
        ("Oct 11 22:14:15 hostSECRET1: hi", False),
        ("Oct 11 22:14:15 fe80::hostSECRET1 app: hi", False),
        ("Oct 11 22:14:15 relay hostSECRET1 app: hi", False),
        (f"1 2026-01-01T00:00:00Z {'h' * 256}hostSECRET1 app 1 - - hi", False),
        ("1 2026-01-01T00:00:00Z hostSECRET1 app 1 - [x", False),
    ],
)
def test_a_text_that_may_contain_a_hidden_header_is_withheld(text: str, leaves: bool) -> None:
    """Senders of the older format differ, so a hidden host could otherwise be in the text."""
    table = TableId(source="s", database="logs", table="messages")
    start = Checkpoint(position=Position(file="", pos=0, gtid_set="", sequence=0), snapshot="done", ts_ms=0)
    message = ReceivedMessage(f"<13>{text}".encode(), dt.datetime.now(dt.UTC), "unix")
    columns = tuple(Column(name=name, column_type=kind, nullable=True) for name, kind in COLUMNS if name != "host")
    schema = TableSchema(table_id=table, version=1, columns=columns, primary_key=("id",))
    shape = shape_of(TableRule(ignored_columns=("host",)))
    assert shape is not None
    for hides in (True, False):
        [event] = SyslogEvents([message], table, start, "x", lambda: True, hides_header=hides)
        assert isinstance(event, TransactionLogged)
        shaped(shape, event.rows)
        image = represented(event.rows.rows[0], Recorder("top").writer(schema, shape))
        if hides:
            assert isinstance(image, dict) is leaves
            assert "SECRET" not in str(image)
        elif "[x" not in text:
            assert isinstance(image, dict)
