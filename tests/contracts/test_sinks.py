"""Every sink of joined tables keeps the same promises: HBase, a Kafka topic, PostgreSQL, Iceberg, on real servers."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import happybase
import orjson
import psycopg
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.model.errors import UsageError
from cdc.model.naming import dead_letter_topic, hbase_table, layouts_table, upsert_topic
from cdc.model.types import Canonical, LogicalType, parse_type
from cdc.process.file_topology import load_topology
from cdc.stored.layout import Layout, LayoutColumn
from joins.process.targets import target_of
from joins.runtime.records import ROW_GONE, ROW_PUT, Message, dump, payload, text_of
from joins.runtime.sink import Report
from joins.stores.sink_interfaces import Cut, Run, TableSink, Target
from tailorbird.cli.change.cli_apply import provision
from tailorbird.verify.explain.run_explain import traced_rows
from tailorbird.verify.settling import settling_policy
from tailorbird.verify.table.kept_rows import kept_rows
from tests.support.pg_servers import PgServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
KINDS = ("hbase", "kafka", "postgres", "iceberg")
Rows = dict[Any, dict[str, Canonical]]


@dataclass
class SinkUnderTest:
    """The table `wide` of one kind of sink, with columns `id` (int32) and `note`, and batches that a test writes."""

    file: Path
    kind: str
    layout: Layout
    target: Target = field(init=False)
    now: int = 1_700_000_000_000

    def __post_init__(self) -> None:
        self.topology = load_topology(str(self.file))
        self.table = self.topology.tables["wide"]
        self.target = target_of(self.topology, self.table)
        self.target.check(str(self.file))

    def clock(self) -> int:
        self.now += 1
        return self.now

    def run(self, id_: str, committed: int = -1, complete: bool = False) -> TableSink:
        """Return the sink as a new process opens it."""
        self.layout = self.target.settle_layout(self.layout, "evolve")
        run = Run(
            id=id_, first_timestamp=self.target.first_timestamp(self.clock()), committed=committed, complete=complete
        )
        return self.target.sink(run, self.clock)

    def write(self, sink: TableSink, batch: int, *messages: Message) -> Report:
        """Write the messages of a batch in two tasks, as Spark does."""
        sink.begin(batch)
        plan: Any = SimpleNamespace(
            folds=True, outputs=[SimpleNamespace(name=c.name, index=i) for i, c in enumerate(self.layout.columns)]
        )
        writer = sink.writer(plan, self.layout, batch)
        report = Report()
        for some in (messages[::2], messages[1::2]) if not sink.by_row else (sorted(messages, key=lambda m: m.k),):
            pairs = [dump(message) for message in some]
            arrived = pa.RecordBatch.from_pydict(
                {"k": pa.array([k for k, _ in pairs], pa.binary()), "m": pa.array([m for _, m in pairs], pa.binary())}
            )
            for reported in writer([arrived]):
                report.merge(Report(**orjson.loads(reported.column("report")[0].as_py())))
        return report

    def rows(self) -> Rows:
        """Return the rows that a reader sees, by row key."""
        if self.kind == "kafka":
            return self._newest()
        kept = kept_rows(self.topology, self.table, settling=settling_policy())
        found = [stored.values for _, stored in kept.scan()]
        assert None not in found
        return {tuple(row[one] for one in self.layout.row_key): dict(row) for row in found if row is not None}

    def look_at_single_rows(self) -> None:
        """Check that `explain` finds rows by key, and that a repair deletes only the version that it has seen."""
        traced = traced_rows(self.topology, self.table).row({"id": 4})
        assert traced is not None
        assert (traced.values, traced.batch) == ({"id": 4, "note": "d"}, 2)
        assert traced_rows(self.topology, self.table).row({"id": 5}) is None
        kept = kept_rows(self.topology, self.table, settling=settling_policy())
        (key,) = [key for key, stored in kept.scan() if stored.values == {"id": 3, "note": "C"}]
        at = kept.rows([key])[key].version // 2
        assert at < traced.timestamp
        kept.remove({key: at - 1, traced.row_key.hex(): at})
        assert kept.rows([key, traced.row_key.hex()]).keys() == {key, traced.row_key.hex()}, "both are newer"
        kept.remove({key: at})
        assert kept.rows([key]) == {}

    def _newest(self) -> Rows:
        found: Rows = {}
        for key, value in records(upsert_topic(self.topology.name, "wide")):
            place = tuple(json.loads(key).values())
            if value is None:
                found.pop(place, None)
            else:
                found[place] = json.loads(value)
        return found

    def lose(self) -> None:
        """Remove the table from its store, with all that the sink keeps there; `apply` runs again."""
        if self.kind == "hbase":
            connection = happybase.Connection("127.0.0.1", int(os.environ["TAILORBIRD_PORT_THRIFT"]))
            for table in (hbase_table(self.topology.name, "wide"), layouts_table(self.topology.name)):
                connection.delete_table(table, disable=True)
            connection.close()
            assert list(provision(self.topology))
        elif self.kind == "kafka":
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}"})
            topic = upsert_topic(self.topology.name, "wide")
            admin.delete_topics([topic])[topic].result(30)
        elif self.kind == "postgres":
            server = self.topology.postgres
            assert server is not None
            with psycopg.connect(
                host="127.0.0.1", port=server.port, user="app", password="app", dbname=server.dbname, autocommit=True
            ) as connected:
                connected.execute(f"DROP SCHEMA {server.schema}_rows CASCADE")
        else:
            (self.file.parent / "catalog.db").unlink()
            shutil.rmtree(self.file.parent / "warehouse")

    def dead_letters(self) -> list[dict[str, Any]]:
        found = records(dead_letter_topic(self.topology.name))
        return [json.loads(value) for _, value in found if value is not None]


def records(topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield key and value of all records of a topic with one partition."""
    servers = f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}"
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "t", "enable.auto.commit": False})
    try:
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=20)
        consumer.assign([TopicPartition(topic, 0, 0)])
        at = 0
        while at < end:
            message = consumer.poll(20)
            assert message is not None, f"no answer about {topic}"
            assert message.error() is None
            at = (message.offset() or 0) + 1
            yield message.key() or b"", message.value()
    finally:
        consumer.close()


LAYOUT = Layout(
    topology="t", table="wide", id=1, family="d", row_key=("id",), salt_buckets=1,
    columns=(
        LayoutColumn(name="id", type=parse_type("int32"), origin="a.b.c.id"),
        LayoutColumn(name="note", type=parse_type("string"), origin="a.b.c.note"),
    ),
)  # fmt: skip
SinkMaker = Callable[..., SinkUnderTest]


@pytest.fixture
def made(stack: object, postgres_server: PgServer, unique: Callable[[str], str], tmp_path: Path) -> Iterator[SinkMaker]:
    """Return a function that creates the table of a kind of sink on the running servers."""
    databases = list[str]()

    def make(kind: str, layout: Layout = LAYOUT) -> SinkUnderTest:
        name, file = unique("sink"), tmp_path / f"{kind}.yml"
        with postgres_server.session() as connected:
            connected.execute(f"CREATE DATABASE {name}")
        databases.append(name)
        ports = {one: os.environ[f"TAILORBIRD_PORT_{one.upper()}"] for one in ("kafka", "thrift", "zookeeper")}
        file.write_text(f"""name: {name}
sources: {{shop: {{type: mysql, hostname: h, username: u, password: p, database: shop, tables: [t], server_id: 1}}}}
log: {{bootstrap_servers: '127.0.0.1:{ports["kafka"]}', partitions: 1}}
hbase: {{thrift: '127.0.0.1:{ports["thrift"]}', zookeeper: '127.0.0.1:{ports["zookeeper"]}'}}
postgres: {{hostname: 127.0.0.1, port: {postgres_server.port}, username: app, password: app, dbname: {name}}}
iceberg: {{uri: 'sqlite:///{tmp_path}/catalog.db', warehouse: {tmp_path}/warehouse, interval: 0s}}
tables: {{wide: {{query: SELECT t.id FROM shop.t t, row_key: [id], sink: {kind}, salt_buckets: 1}}}}
""")
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{ports['kafka']}"})
        admin.create_topics([NewTopic(dead_letter_topic(name), 1, 1)])[dead_letter_topic(name)].result(30)
        if kind == "hbase":
            assert list(provision(load_topology(str(file))))
        return SinkUnderTest(file, kind, Layout(**{**_fields(layout), "topology": name}))

    yield make
    with postgres_server.session() as connected:
        for name in databases:
            connected.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _fields(layout: Layout) -> dict[str, Any]:
    return {name: getattr(layout, name) for name in layout.__dataclass_fields__}


def put(*values: Canonical, key: Sequence[Canonical] | None = None) -> Message:
    return Message(b"\xff" + text_of(list(key or values[:1])), ROW_PUT, b"", 1, payload(list(values), 9, b"\0\0"))


def gone(*key: Canonical) -> Message:
    return Message(b"\xff" + text_of(list(key)), ROW_GONE, b"", 1, b"")


def cut(batch: int, offset: int = 0) -> Cut:
    return Cut(batch=batch, positions={"shop": {"sequence": batch, "offset": offset}}, ends=[], incomplete=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_sink_keeps_its_promises(made: SinkMaker, kind: str) -> None:
    """Rows are put and deleted; a put beats a delete of its batch; a row that does not fit is a dead letter and stops
    nothing; a repeated batch, also by another process, changes nothing; positions are published with the batch that
    they belong to; a new run replaces the rows of a former one.
    """
    sut = made(kind)
    sink = sut.run("first")
    report = sut.write(sink, 0, put(1, "a"), put(2, "b"), put(3, "c"), put(2**31, "too large"))
    sink.finish(None)  # the run is not complete: no positions
    assert sut.target.reached() == {}
    assert (report.rows_put, report.refused) == ((3, 1) if kind != "kafka" else (4, 0))
    sut.write(sink, 1, gone(1), put(2, "B"), gone(3), put(3, "C"), gone(77))
    sink.sweep()
    sink.finish(cut(1))
    wanted: Rows = {(2,): {"id": 2, "note": "B"}, (3,): {"id": 3, "note": "C"}}
    if kind == "kafka":
        wanted[(2**31,)] = {"id": 2**31, "note": "too large"}
    else:
        assert [one["row"] for one in sut.dead_letters()] == [str(2**31)]
        assert sut.target.reached() == cut(1).positions
    assert sut.rows() == wanted
    again = sut.run("first", committed=0)  # killed between the last write and Spark's commit: the batch is repeated
    sut.write(again, 1, gone(1), put(2, "B"), gone(3), put(3, "C"), gone(77))
    again.finish(cut(1))
    assert sut.rows() == wanted
    half = sut.run("first", committed=1)  # killed after its first task: the next process writes the whole batch
    sut.write(half, 2, put(4, "half"))
    once_more = sut.run("first", committed=1)
    sut.write(once_more, 2, put(4, "d"), gone(2))
    once_more.finish(cut(2))
    wanted = {**wanted, (4,): {"id": 4, "note": "d"}}
    del wanted[(2,)]
    assert sut.rows() == wanted
    assert once_more.follow(cut(2, offset=5), 2)
    assert sut.target.reached() == ({} if kind == "kafka" else cut(2, offset=5).positions)
    if kind != "kafka":
        sut.look_at_single_rows()
    rebuilt = sut.run("second")
    sut.write(rebuilt, 0, put(9, "new"), put(4, "d"))
    rebuilt.sweep()
    rebuilt.finish(cut(0))
    assert sut.rows() == {(9,): {"id": 9, "note": "new"}, (4,): {"id": 4, "note": "d"}}


@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_table_is_noticed(made: SinkMaker, kind: str) -> None:
    """A run whose table was lost, and created again without rows, is refused: it would write new changes only."""
    sut = made(kind)
    sink = sut.run("first")
    sut.write(sink, 0, put(1, "a"))
    sink.sweep()
    sink.finish(cut(0))
    sut.lose()
    sut.target = target_of(sut.topology, sut.table)
    for _ in range(2):  # also at the second start
        sut.target.check(str(sut.file))
        with pytest.raises(UsageError, match=r"lacks the rows of .*wide.* up to batch 0") as raised:
            sut.run("first", committed=0, complete=True)
        assert "--rebuild wide" in raised.value.hint
    rebuilt = sut.run("second")
    sut.write(rebuilt, 0, put(2, "b"))
    rebuilt.sweep()
    rebuilt.finish(cut(0))
    assert sut.rows() == {(2,): {"id": 2, "note": "b"}}


@pytest.mark.parametrize("lost", ["wide", "layouts"])
def test_a_table_that_is_lost_during_a_run_is_noticed(made: SinkMaker, lost: str) -> None:
    """HBase lost the joined table, or that with the layouts and timestamps, between two batches."""
    sut = made("hbase")
    sink = sut.run("first")
    sut.write(sink, 0, put(1, "a"))
    sink.finish(cut(0))
    connection = happybase.Connection("127.0.0.1", int(os.environ["TAILORBIRD_PORT_THRIFT"]))
    connection.delete_table(f"{sut.topology.name}:{lost}", disable=True)
    assert list(provision(sut.topology))
    connection.close()
    for again in (lambda: sink.follow(cut(0, offset=5), 0), lambda: sut.write(sink, 1, put(2, "b"))):
        with pytest.raises(UsageError, match="lacks the rows of wide up to batch 0"):
            again()


EXTREMES: dict[str, tuple[Canonical, ...]] = {
    "bool": (True, False),
    "int8": (-128, 127),
    "int16": (-(2**15), 2**15 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
    "decimal(65,30)": ("9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30, "0." + "0" * 29 + "1"),
    "decimal(5,0)": ("-99999", "0"),
    "float32": (3.4028234663852886e38, 1.401298464324817e-45, -0.0, 0.10000000149011612, "NaN", "Infinity"),
    "float64": (1.7976931348623157e308, 5e-324, -0.0, 0.1 + 0.2, "NaN", "-Infinity"),
    "date": ("0001-01-01Z", "9999-12-31Z", "2024-02-29Z"),
    "datetime": ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2024-10-27T02:30:00.5Z"),
    "timestamp": ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z", "2024-10-27T01:00:00Z"),
    "time": ("-838:59:59", "838:59:59", "00:00:00.000001", "-00:00:00.5", "12:30:00.25"),
    "string": ("", "a\tb\nc\\d\\N", "\U0001f600é\u2028", "\x01\x7f", "x" * 100_000, "{NULL}"),
    "json": ('{"a": 1.10, "a": 2,\n "b": "\\u0000"}', "1e400", "null", '"\\ud83d\\ude00"'),
    "bytes": ("", "AAECAw==", "XHgwMA=="),
    "point": ("SRID=4326;POINT(2.35 48.85)",),
    "geometry": ("LINESTRING(0 0,1e-300 1)",),
    "list<string>": ([], ["a", "", 'q"\\', "NULL", "{x,y}", "é\n"], ["null"]),
    "list<float64>": ([0.1, "NaN", "-Infinity", -0.0],),
    "list<bytes>": (["AAECAw==", ""],),
    "list<decimal(6,2)>": (["1.00", "-9999.99"],),
    "list<timestamp>": (["0001-01-01T00:00:00Z"],),
    "list<json>": (['{"a": [1]}', "null"],),
    "list<bool>": ([True, False],),
    "list<uint64>": ([2**64 - 1],),
}


@pytest.mark.parametrize("kind", ["postgres", "iceberg"])
def test_every_type_passes_unchanged(made: SinkMaker, kind: str) -> None:
    """Extreme values of every type are read back as they were written, as are NULLs; a row key with NULL in it is one
    row; a row that only PostgreSQL refuses is a dead letter there, alone.
    """
    types: dict[str, LogicalType] = {text: parse_type(text) for text in EXTREMES}
    columns = [LayoutColumn(name="id", type=parse_type("int32"), origin="")]
    columns += [LayoutColumn(name=text, type=type_, origin="") for text, type_ in types.items()]
    layout = Layout(**{**_fields(LAYOUT), "columns": tuple(columns), "row_key": ("string", "id")})
    layout = Layout(**{**_fields(layout), "nullable_key": ("string",)})
    sut = made(kind, layout)
    count = max(len(values) for values in EXTREMES.values())
    rows = [[at, *(values[at % len(values)] for values in EXTREMES.values())] for at in range(count)]
    place = 1 + list(EXTREMES).index("string")
    for row in rows:
        row[place] = str(row[place])[:600]  # part of the key
    rows.append([count, *(None for _ in EXTREMES)])
    sink = sut.run("r")
    refused = [[500, *rows[0][1:]], [501, *rows[0][1:]], [502, *rows[0][1:]]]
    refused[0][1 + list(EXTREMES).index("json")] = "{no json"
    refused[1][1 + list(EXTREMES).index("geometry")] = "a\0b"
    refused[2][place] = "y" * 3000
    if kind == "iceberg":
        rows += refused[:1]  # it stores JSON as a text
        refused = [["wrong type", *rows[0][1:]]]
    messages = [put(*row, key=[row[place], row[0]]) for row in rows]
    report = sut.write(sink, 0, *messages, *(put(*row, key=[row[place], row[0]]) for row in refused))
    sink.sweep()
    sink.finish(cut(0))
    assert (report.rows_put, report.refused) == (len(rows), len(refused))
    assert sorted(json.loads(f"[{one['row']}]")[1] for one in sut.dead_letters()) == [row[0] for row in refused]
    found = {row["id"]: row for row in sut.rows().values()}
    for row in rows:
        stored = found.pop(row[0])
        wanted = dict(zip([column.name for column in columns], row, strict=True))
        assert {name: repr(value) for name, value in stored.items()} == {n: repr(v) for n, v in wanted.items()}
    assert not found
    kept = kept_rows(sut.topology, sut.table, settling=settling_policy())
    keys = [key for key, _ in kept.scan()]
    assert kept.rows(keys) == dict(kept.scan()), "rows are found by their keys"
    sut.write(sink, 1, gone(None, count))
    sink.finish(cut(1))
    assert len(sut.rows()) == len(rows) - 1
