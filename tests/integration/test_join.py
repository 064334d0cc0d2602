"""The join on real servers: Kafka in, Spark's own state store, HBase out, compared with the oracle and the simulation.

The test writes the log itself, so that it decides the content of a batch and when the driver dies.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.formats.debezium import to_envelope
from cdc.model import naming
from cdc.model.event import ChangeEvent, Op, SourceInfo
from cdc.model.schema import Column, TableId, TableSchema
from cdc.model.types import Canonical
from cdc.process.file_topology import load_topology
from cdc.stored.cells import Barrier, RowCodec, barrier_key, is_barrier, load_barrier
from joins.oracle.oracle import tables_after
from joins.oracle.sql_oracle import Oracle
from joins.query.plan import Plan
from joins.select.compiler import compile_plan
from joins.stores.hbase_table import HBaseConnection
from joins.stores.proc_retry import patiently
from tailorbird.cli.change.cli_apply import provision
from tests.joins.evaluator import Evaluator
from tests.joins.simulation import Logged, Simulation
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka("hbase", "thrift"), pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
FACT = TableId(source="shop", database="shop", table="facts")
NEAR = TableId(source="shop", database="shop", table="near")
FAR = TableId(source="crm", database="crm", table="far")
COLUMNS = {
    FACT: {"id": "bigint", "near_id": "int?", "far_id": "int?", "price": "decimal(8,2)?", "at": "datetime(3)?"},
    NEAR: {"id": "int", "name": "varchar(40)?", "unused": "int?"},
    FAR: {"id": "int", "name": "varchar(40)?", "unused": "int?"},
}
SCHEMAS = {
    table: TableSchema(
        table_id=table,
        version=1,
        columns=tuple(
            Column(name=name, column_type=type_.removesuffix("?"), nullable=type_.endswith("?"))
            for name, type_ in columns.items()
        ),
        primary_key=("id",),
    )
    for table, columns in COLUMNS.items()
}
QUERY = """SELECT f.id, f.price, f.at, f.near_id, n.name AS near, r.name AS far
      FROM shop.facts f
      LEFT JOIN shop.near n ON n.id = f.near_id
      LEFT JOIN crm.far r ON r.id = f.far_id"""
Cells = dict[bytes, tuple[bytes, int]]
T = TypeVar("T")


@dataclass
class History:
    """Sources that change at random and remember their log."""

    chance: random.Random
    tables: dict[TableId, dict[int, dict[str, Canonical]]] = field(default_factory=lambda: {t: {} for t in COLUMNS})
    sequences: dict[str, int] = field(default_factory=lambda: {"shop": 0, "crm": 0})
    events: list[ChangeEvent] = field(default_factory=list)

    def change(self, count: int, ids: int) -> list[ChangeEvent]:
        """Make a number of changes: inserts, updates, deletes, moves, on keys that collide often."""
        made = list[ChangeEvent]()
        while len(made) < count:
            table = self.chance.choice([FACT, FACT, FACT, NEAR, FAR])
            row = self.chance.randrange(ids * 4 if table == FACT else ids)
            rows = self.tables[table]
            before = rows.get(row)
            gone = before is not None and self.chance.random() < 0.25
            after = None if gone else self._row(table, row)
            op: Op = "d" if after is None else "c" if before is None else "u"
            made.append(self._event(table, op, before, after))
            if after is None:
                del rows[row]
            else:
                rows[row] = after
        self.events += made
        return made

    def truncate(self, table: TableId = FACT) -> ChangeEvent:
        self.tables[table].clear()
        self.events.append(self._event(table, "t", None, None))
        return self.events[-1]

    def _row(self, table: TableId, row: int) -> dict[str, Canonical]:
        number = self.chance.randrange(1000)
        if table != FACT:
            return {"id": row, "name": self.chance.choice([None, f"<b>ü{number}"]), "unused": number}
        keys = [None, *range(6)]
        return {
            "id": row,
            "near_id": self.chance.choice(keys),
            "far_id": self.chance.choice(keys),
            "price": f"-{number}.50",
            "at": f"2026-01-01T00:00:00.{number % 9 + 1}Z",
        }

    def _event(self, table: TableId, op: Op, before: Any, after: Any) -> ChangeEvent:
        self.sequences[table.source] += 1
        source = SourceInfo(
            table_id=table,
            ts_ms=1_700_000_000_000 + len(self.events),
            server_id=1,
            gtid=None,
            file="f",
            pos=4,
            row=0,
            sequence=self.sequences[table.source],
        )
        return ChangeEvent(op=op, before=before, after=after, source=source, ts_ms=1)


class JoinPipeline:
    """A test's topology: its log, its table, and the join processes over them."""

    def __init__(
        self,
        name: str,
        folder: Path,
        sink: str = "hbase",
        delivery: str = "exactly_once",
        query: str = QUERY,
        row_key: str = "id",
        shop: str = "[facts, near]",
    ) -> None:
        self.name, self.folder = name, folder
        self.servers = f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}"
        file = folder / "topology.yml"
        thrift, zookeeper = os.environ["TAILORBIRD_PORT_THRIFT"], os.environ["TAILORBIRD_PORT_ZOOKEEPER"]
        login = f"type: mysql, hostname: h, username: u, password: p, delivery: {delivery}"
        file.write_text(f"""name: {name}
sources:
  shop: {{{login}, database: shop, tables: {shop}, server_id: 1}}
  crm: {{{login}, database: crm, tables: [far], server_id: 2}}
log: {{bootstrap_servers: '{self.servers}'}}
hbase: {{thrift: '127.0.0.1:{thrift}', zookeeper: '127.0.0.1:{zookeeper}'}}
tables:
  wide:
    query: |
      {query}
    row_key: [{row_key}]
    sink: {sink}
""")
        self.file, self.topology = file, load_topology(str(file))
        self.declared = self.topology.tables["wide"]
        self.plan: Plan = compile_plan(self.topology, self.declared, SCHEMAS)
        assert list(provision(self.topology))
        self.topics = [naming.change_topic(name, table) for table in COLUMNS]
        self.admin = AdminClient({"bootstrap.servers": self.servers})
        self.make_topics()
        singles = (naming.schemas_topic(name), naming.positions_topic(name), naming.dead_letter_topic(name))
        for future in self.admin.create_topics([NewTopic(topic, 1, 1) for topic in singles]).values():
            future.result(30)
        self.producer = Producer(
            {"bootstrap.servers": self.servers, "enable.idempotence": True, "partitioner": "murmur2_random"}
        )
        for schema in SCHEMAS.values():
            value = json.dumps(schema.to_json())
            self.producer.produce(naming.schemas_topic(name), key=str(schema.table_id), value=value)
        self.producer.flush(30)
        self.hbase, self.table = HBaseConnection(f"127.0.0.1:{thrift}"), naming.hbase_table(name, "wide")
        self.processes: list[subprocess.Popen[str]] = []

    def of(self, table: str) -> JoinPipeline:
        """Return the same pipeline to look at another table of the topology's current file."""
        other = copy(self)
        other.topology = load_topology(str(self.file))
        other.declared = other.topology.tables[table]
        other.plan = compile_plan(other.topology, other.declared, SCHEMAS)
        other.table = naming.hbase_table(self.name, table)
        return other

    def make_topics(self) -> None:
        """Create the topics of the changes, also where the same names were just deleted."""
        wanted, deadline = set(self.topics), time.monotonic() + 60
        while wanted:
            made = self.admin.create_topics([NewTopic(topic, 2, 1) for topic in sorted(wanted)])
            for topic, future in made.items():
                try:
                    future.result(30)
                except KafkaException as error:
                    if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS or time.monotonic() > deadline:
                        raise
                else:
                    wanted.discard(topic)

    def publish(self, events: list[ChangeEvent], *, age_ms: int = 0) -> None:
        """Publish the events; with an age, as if published that long ago."""
        at = time.time_ns() // 1_000_000 - age_ms
        for event in events:
            topic = naming.change_topic(self.name, event.source.table_id)
            row = event.after or event.before
            value = json.dumps(to_envelope(event, self.name))
            if row is None:
                for partition in range(2):
                    self.producer.produce(
                        topic, partition=partition, key=naming.TRUNCATE_KEY, value=value, timestamp=at
                    )
                continue
            key = json.dumps({"id": row["id"]})
            self.producer.produce(topic, key=key, value=value, timestamp=at)
            if event.op == "d":
                self.producer.produce(topic, key=key, value=None, timestamp=at)
        self.producer.flush(30)

    def all_ends(self) -> dict[str, dict[int, int]]:
        """Return the end offset of every partition."""
        return {topic: {p: self.ends(topic, p) for p in range(2)} for topic in self.topics}

    def publish_positions(self, history: History, ends: Mapping[str, Mapping[int, int]] | None = None) -> None:
        """Publish what capture writes after the rows: the position of each source, and the end of every partition
        then."""
        ends = self.all_ends() if ends is None else ends
        for source, sequence in history.sequences.items():
            position = {"file": "f", "pos": 4, "gtid_set": f"{source}:1-{sequence}", "row": 0, "sequence": sequence}
            value = {
                "format": 1,
                "source": source,
                "position": position,
                "snapshot": "done",
                "ts_ms": 1,
                "end_offsets": {topic: at for topic, at in ends.items() if topic.split(".")[1] == source},
            }
            key = naming.transactional_id(self.name, source)
            self.producer.produce(naming.positions_topic(self.name), key=key, value=json.dumps(value))
        self.producer.flush(30)

    def ends(self, topic: str, partition: int) -> int:
        with_consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.name})
        try:
            end: int = with_consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=20)[1]
            return end
        finally:
            with_consumer.close()

    def records(self, topic: str, partitions: int) -> list[Logged]:
        """Return all records of a topic, partition by partition."""
        found = list[Any]()
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": self.name})
        try:
            for partition in range(partitions):
                consumer.assign([TopicPartition(topic, partition, 0)])
                end = self.ends(topic, partition)
                while not found or found[-1].partition != partition or found[-1].offset + 1 < end:
                    if not end:
                        break
                    message = consumer.poll(20)
                    assert message is not None
                    assert message.error() is None
                    found.append(
                        Logged(
                            topic=topic,
                            partition=partition,
                            offset=message.offset() or 0,
                            key=message.key(),
                            value=message.value(),
                        )
                    )
        finally:
            consumer.close()
        return found

    def start(self, command: list[str], **environ: str) -> subprocess.Popen[str]:
        bin_folder = str(Path(sys.executable).parent)
        log = (self.folder / f"join-{len(self.processes)}.log").open("w")
        process = subprocess.Popen(
            [*command, str(self.file)],
            env={
                **os.environ,
                "PATH": f"{bin_folder}:{os.environ['PATH']}",
                "TAILORBIRD_HOME": str(self.folder),
                "PYSPARK_PYTHON": sys.executable,
                **environ,
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        log.close()
        self.processes.append(process)
        return process

    def said(self) -> str:
        """Return the output of the last process."""
        return (self.folder / f"join-{len(self.processes) - 1}.log").read_text()

    def on_table(self, action: Callable[[Any], T]) -> T:
        """Run a call on the table; retry while a server is busy, as the join itself does."""
        deadline = time.monotonic() + 60
        return patiently(
            lambda: self.hbase.call(lambda connection: action(connection.table(self.table))),
            lambda error, pause: None,
            lambda: time.monotonic() > deadline,
        )

    def barrier(self, bucket: int) -> Barrier | None:
        found = self.on_table(lambda table: table.row(barrier_key(bucket), columns=[b"d:_barrier"]))
        return load_barrier(found[b"d:_barrier"]) if found else None

    def cells(self) -> dict[bytes, Cells]:
        """Return every row with its cells and their timestamps, without barriers."""
        rows = self.on_table(lambda table: list(table.scan(include_timestamp=True)))
        return {row: dict(cells) for row, cells in rows if not is_barrier(row)}

    def live(self) -> dict[tuple[Canonical, ...], dict[str, Canonical]]:
        """Return row key → columns of every row, decoded with the layout."""
        codec = RowCodec(self.plan.layout(1))
        found = dict[tuple[Canonical, ...], dict[str, Canonical]]()
        for cells in self.cells().values():
            values = codec.row({name.partition(b":")[2]: value for name, (value, _) in cells.items()}).values
            found[tuple(values[name] for name in self.plan.sink.row_key)] = dict(values)
        return found

    def barriers_report(self, history: History) -> bool:
        """Return whether every bucket's barrier covers all changes of the sources."""
        process = self.processes[-1]
        assert process.poll() is None, f"exit {process.returncode}: {self.said()[-2000:]}"
        for bucket in range(2):
            barrier = self.barrier(bucket)
            reported = {} if barrier is None else {name: at["sequence"] for name, at in barrier.positions.items()}
            if reported != history.sequences:
                return False
        return True

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                os.killpg(process.pid, 9)
            process.wait()
        self.hbase.close()


@pytest.fixture
def joined(unique: Callable[[str], str], tmp_path: Path) -> Iterator[JoinPipeline]:
    made = JoinPipeline(unique("join"), tmp_path)
    yield made
    made.close()


def oracle(joined: JoinPipeline, history: History) -> Mapping[tuple[Canonical, ...], Mapping[str, Canonical]]:
    ordered = sorted(history.events, key=lambda event: (event.source.table_id.source, event.source.sequence))
    asked = Oracle(joined.topology, SCHEMAS)
    try:
        tables = tables_after(ordered, dict.fromkeys(COLUMNS, ("id",)))
        return asked.answer(joined.declared, joined.plan.sink.row_key, tables)
    finally:
        asked.close()


def test_join_through_crash_replay_and_bad_records(joined: JoinPipeline) -> None:
    """The stored table equals the oracle and the simulation. A driver that died between HBase's write and Spark's
    commit replays the batch cell by cell. Rows of a run whose checkpoint was lost are deleted. Invalid records affect
    only themselves. TRUNCATE of facts and of a dimension removes the right rows. The join is started by `python -m
    joins` and continued by `spark-submit`.
    """
    history = History(random.Random(7))
    stale = b"\x00\x01of a former run"
    joined.on_table(lambda table: table.put(stale, {b"d:_layout": b"\x00\x00\x00\x01"}, timestamp=1_000_000))
    joined.publish(history.change(400, ids=6))
    topic = joined.topics[0]
    joined.producer.produce(topic, key=b"bad", value=b"\xff no JSON")
    joined.producer.produce(topic, key=b"bad", value=b'{"op": "c", "after": {"near_id": 1}}')
    joined.publish_positions(history)

    killed = joined.start([sys.executable, "-m", "tests.support.dying_join", "0"])
    assert killed.wait(300) == -9, joined.said()
    written = {row: cells for row, cells in joined.cells().items() if row != stale}
    assert len(written) >= 10
    assert joined.barrier(0) is None, "a batch that was not finished claims a position"

    submitted = joined.start(["spark-submit", str(ROOT / "src" / "joins" / "__main__.py")])
    wait_for(lambda: joined.barriers_report(history), "the replay never ends")
    assert joined.cells() == written  # the same cells under the same timestamps, and the outdated row is swept
    assert joined.live() == oracle(joined, history)

    joined.publish(history.change(300, ids=6))
    joined.publish_positions(history)
    wait_for(lambda: joined.barriers_report(history), "the second half never arrives")
    assert joined.live() == oracle(joined, history)
    dead_letters = [json.loads(one.value or b"") for one in joined.records(naming.dead_letter_topic(joined.name), 1)]
    distinct = {
        (dead_letter["topic"], dead_letter["partition"], dead_letter["offset"]): dead_letter["reason"]
        for dead_letter in dead_letters
    }
    assert len(distinct) == 2
    assert all(reason.startswith("not an envelope: ") for reason in distinct.values())

    joined.publish([history.truncate(), *history.change(60, ids=6), history.truncate(NEAR), *history.change(9, ids=6)])
    joined.publish_positions(history)
    wait_for(lambda: joined.barriers_report(history), "TRUNCATE never gets through")
    assert submitted.poll() is None
    assert joined.live() == oracle(joined, history)

    evaluator = Evaluator()
    simulation = Simulation(joined.plan, {}, evaluator)
    simulation.run_batch([one for topic in joined.topics for one in joined.records(topic, 2)], now_ms=1)
    assert simulation.live() == joined.live()
    assert len(simulation.refused) == 2
    evaluator.close()
