"""OpenLineage: datasets have the names that others give them, events have no values, and no receiver delays a stage."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from openlineage.client.naming import dataset as naming
from openlineage.client.serde import Serde
from prometheus_client import CollectorRegistry, Counter
from structlog.testing import capture_logs

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.model.schema import TableId
from cdc.openlineage.datasets import (
    MOST_DATASETS,
    DatasetField,
    DatasetName,
    FieldOrigin,
    LineageDataset,
    LineageJob,
    job_of,
    merged_datasets,
    unchanged,
)  # fmt: skip
from cdc.openlineage.events import RunMoment, event_of, reason_of
from cdc.openlineage.http_runs import LineageRun, LineageSender, wanted
from cdc.openlineage.names import change_topic_name, index_name, source_name, table_name
from cdc.topology.reader import read_topology
from tests.support.lineage_receiver import lineage_receiver
from tests.support.ports import free_port
from tests.support.waiting import wait_for

_TOPOLOGY = """
name: shop
log: {bootstrap_servers: "kafka-1.example.com:9092,kafka-2.example.com:9092"}
hbase: {thrift: "hbase.example.com:9090", zookeeper: "zk-1.example.com:2181,zk-2.example.com:2181"}
solr: {url: "https://solr.example.com:8983/solr"}
opensearch: {url: "https://search.example.com:9200"}
postgres: {hostname: bi.example.com, username: u, password: hidden-1, dbname: bi, schema: live}
sources:
  my: {type: mysql, hostname: my.example.com, port: 3307, database: db, tables: [a], server_id: 6, LOGIN}
  maria: {type: mariadb, hostname: maria.example.com, database: db, tables: [a], server_id: 7, LOGIN}
  pg: {type: postgresql, hostname: pg.example.com, dbname: erp, database: public, tables: [a], LOGIN}
  old: {type: sql, capture: poll, url: "URL", database: hr, tables: [a]}
tables:
  wide: {query: "SELECT x.id, x.v FROM my.a x", row_key: [id], salt_buckets: 2}
  topic: {query: "SELECT x.id, x.v FROM my.a x", row_key: [id], salt_buckets: 2, sink: kafka}
  report: {query: "SELECT x.id, x.v FROM my.a x", row_key: [id], salt_buckets: 2, sink: postgres}
indexes:
  words: {table: wide}
  again: {table: wide, type: opensearch}
""".replace("LOGIN", "username: u, password: hidden-2")
_URL = "oracle+oracledb://u:hidden/3@ora.example.com:1521/XE"


def test_datasets_have_the_names_of_the_specification() -> None:
    """They are those of the client library, where it has them, so that events of other programs meet ours."""
    topology = read_topology(_TOPOLOGY.replace("URL", _URL), file="shop.yml", environ={})

    def at(source: str, database: str) -> DatasetName:
        found = source_name(topology.sources[source], TableId(source=source, database=database, table="a"))
        assert found is not None
        return found

    def same(ours: DatasetName, theirs: Any) -> None:
        assert (ours.namespace, ours.name) == (theirs.get_namespace(), theirs.get_name())

    same(at("my", "db"), naming.MySQL("my.example.com", "3307", "db", "a"))
    same(at("maria", "db"), naming.MySQL("maria.example.com", "3306", "db", "a"))
    same(at("pg", "public"), naming.Postgres("pg.example.com", "5432", "erp", "public", "a"))
    same(at("old", "hr"), naming.Oracle("ora.example.com", "1521", "XE", "hr", "a"))
    captured, kafka = TableId(source="my", database="db", table="a"), ("kafka-1.example.com", "9092")
    same(change_topic_name(topology, topology.sources["my"], captured), naming.Kafka(*kafka, "shop.my.db.a"))
    tables = topology.tables
    same(table_name(topology, tables["topic"]), naming.Kafka(*kafka, "shop.topic"))
    same(table_name(topology, tables["report"]), naming.Postgres("bi.example.com", "5432", "bi", "live", "report"))
    own = [
        table_name(topology, tables["wide"]),
        index_name(topology, topology.indexes["words"]),
        index_name(topology, topology.indexes["again"]),
    ]
    assert own == [
        DatasetName(namespace="hbase://zk-1.example.com:2181", name="shop:wide"),
        DatasetName(namespace="solr://solr.example.com:8983", name="shop_words"),
        DatasetName(namespace="opensearch://search.example.com:9200", name="shop_again"),
    ]


@pytest.mark.parametrize(
    "url",
    [
        "mssql+pytds://u:hid/den@db.example.com/erp", "mssql://u:hidden@db.example.com:1433/erp?x=y@z",
        "mssql+pytds://u:hid@den@db.example.com/erp", "mssql://?odbc_connect=PWD=hidden", "sqlite:////hidden",
    ],
)  # fmt: skip
def test_no_part_of_a_password_is_in_a_name(url: str) -> None:
    """Whatever its characters are; the path of a file is one, too, if it stands where a login may."""
    text = _TOPOLOGY.replace("URL", url)
    source = read_topology(text, file="shop.yml", environ={}).sources["old"]
    found = source_name(source, TableId(source="old", database="hr", table="a"))
    assert found is not None
    assert "hid" not in found.namespace
    assert "den" not in found.namespace
    assert found.namespace.startswith(("mssql://", "sqlite://"))


@pytest.mark.parametrize(
    ("environ", "on"),
    [
        ({}, False),
        ({"OPENLINEAGE_API_KEY": "k", "OPENLINEAGE_NAMESPACE": "n"}, False),
        ({"OPENLINEAGE_URL": ""}, False),
        ({"OPENLINEAGE_URL": "http://r"}, True),
        ({"OPENLINEAGE_CONFIG": "/f.yml"}, True),
        ({"OPENLINEAGE__TRANSPORT__TYPE": "kafka"}, True),
        ({"OPENLINEAGE_URL": "http://r", "OPENLINEAGE_DISABLED": "True"}, False),
    ],
)
def test_only_a_receiver_switches_events_on(environ: Mapping[str, str], on: bool) -> None:
    """The variables are those of OpenLineage's clients."""
    assert wanted(environ) == on


def test_a_job_is_in_the_namespace_that_the_environment_names() -> None:
    """The topology's name is a part of the job's, since several topologies may share a namespace."""
    assert job_of("shop", "JOIN", "wide", {}) == LineageJob(namespace="shop", name="shop.join.wide", kind="JOIN")
    assert job_of("shop", "INDEX", "i", {"OPENLINEAGE_NAMESPACE": "prod"}).namespace == "prod"


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (Fatal("the log was purged", "snapshot"), "CAPTURE", "the log was purged; snapshot"),
        (UsageError("no table t", "apply"), "JOIN", "no table t; apply"),
        (Fatal("Spark: secret", "rebuild"), "JOIN", "Fatal: the log of the process has the reason; rebuild"),
        (Retriable("secret"), "INDEX", "Retriable: the log of the process has the reason"),
        (ValueError("secret"), "CAPTURE", "ValueError: the log of the process has the reason"),
    ],
)
def test_a_reason_has_no_values(error: Exception, kind: Any, reason: str) -> None:
    """Errors of captures and of settings contain names only. Others may quote a server or a row."""
    assert reason_of(error, kind) == reason


def test_datasets_that_tables_share_have_no_columns() -> None:
    """A topic of several tables has the columns of none; a very large database does not make a very large event."""
    name, other = (DatasetName(namespace="n", name=one) for one in "ab")
    columns = (DatasetField(name="id", type="int"),)
    one = LineageDataset(name=name, fields=columns)
    assert merged_datasets([one, one]) == (one,)
    changed = LineageDataset(name=name, fields=(*columns, DatasetField(name="v", type="int")))
    assert merged_datasets([one, changed, LineageDataset(name=other)]) == (
        LineageDataset(name=name), LineageDataset(name=other),
    )  # fmt: skip
    many = (LineageDataset(name=DatasetName(namespace="n", name=f"{n:06}")) for n in range(3 * MOST_DATASETS))
    assert len(merged_datasets(many)) == MOST_DATASETS


_NAMES = DatasetName(namespace="mysql://h:1", name="d.a"), DatasetName(namespace="kafka://h:2", name="t")
_JOB = LineageJob(namespace="n", name="shop.capture.s", kind="CAPTURE")


def test_an_event_is_what_the_library_writes() -> None:
    """Columns in their order, types, and where each comes from; a masked column says so."""
    fields = [DatasetField(name="id", type="int"), DatasetField(name="mail", type="varchar(9)")]
    output = unchanged(*_NAMES, fields, masked=["mail"])
    moment = RunMoment(
        step="FAIL", at=datetime(2026, 1, 2, tzinfo=UTC), reason="why",
        inputs=[LineageDataset(name=_NAMES[0], fields=tuple(fields))],
        outputs=[LineageDataset(
            name=output.name, fields=output.fields, origins=output.origins,
            influences=[FieldOrigin(dataset=_NAMES[0], field="id", how="FILTER")],
        )],
    )  # fmt: skip
    event = json.loads(Serde.to_json(event_of(_JOB, "0198c2d4-0000-7000-8000-000000000000", moment, "0.2.0")))
    assert (event["eventType"], event["eventTime"]) == ("FAIL", "2026-01-02T00:00:00+00:00")
    assert event["run"]["facets"]["errorMessage"]["message"] == "why"
    assert event["job"]["facets"]["jobType"]["processingType"] == "STREAMING"
    [given], [made] = event["inputs"], event["outputs"]
    assert [(one["name"], one["type"]) for one in given["facets"]["schema"]["fields"]] == [
        ("id", "int"), ("mail", "varchar(9)"),
    ]  # fmt: skip
    lineage = made["facets"]["columnLineage"]
    ways = {name: one["inputFields"][0]["transformations"] for name, one in lineage["fields"].items()}
    assert ways == {
        "id": [{"type": "DIRECT", "subtype": "IDENTITY", "masking": False}],
        "mail": [{"type": "DIRECT", "subtype": "TRANSFORMATION", "masking": True}],
    }
    [decides] = lineage["dataset"]
    assert (decides["field"], decides["transformations"][0]["type"]) == ("id", "INDIRECT")


class Emitted:
    """Keeps the events of a sender, or fails, or waits."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.failing, self.free = False, threading.Event()
        self.free.set()

    def __call__(self, event: Any) -> None:
        self.free.wait(60)
        if self.failing:
            raise OSError("cannot reach http://user:secret@r.example.com")
        self.events.append(event)

    def steps(self) -> list[tuple[str, int]]:
        """Return each event's type and its number of inputs."""
        return [(one.eventType.value, len(one.inputs)) for one in self.events]


@pytest.fixture
def emitted() -> Emitted:
    return Emitted()


@pytest.fixture
def begun(emitted: Emitted) -> Callable[..., tuple[LineageRun, LineageSender, Counter]]:
    def make(**options: float) -> tuple[LineageRun, LineageSender, Counter]:
        sender = LineageSender(emitted, **options)  # type: ignore[arg-type]
        counter = Counter("events", "Events.", ["outcome"], registry=CollectorRegistry())
        return LineageRun(_JOB, "0198c2d4-0000-7000-8000-000000000000", sender, counter), sender, counter

    return make


_INPUT = LineageDataset(name=_NAMES[0])


def test_a_run_has_a_begin_changes_beats_and_an_end(emitted: Emitted, begun: Callable[..., Any]) -> None:
    """Datasets are sent when they change and at the end, and nothing after that."""
    run, sender, _ = begun(every=0.05)
    run.started(lambda: ([_INPUT], []))
    run.reads_and_writes(lambda: ([_INPUT], []))
    changed = LineageDataset(name=_NAMES[0], fields=(DatasetField(name="id", type="int"),))
    run.reads_and_writes(lambda: ([changed], []))
    wait_for(lambda: len(emitted.events) >= 4, "it does not beat", 10)
    run.ended("COMPLETE")
    run.reads_and_writes(lambda: ([], []))
    sender.flush()
    steps = emitted.steps()
    assert steps[:2] == [("START", 1), ("RUNNING", 1)]
    assert set(steps[2:-1]) == {("RUNNING", 0)}
    assert steps[-1] == ("COMPLETE", 1)
    time.sleep(0.2)
    assert emitted.steps() == steps, "an ended run beats no more"


def test_a_failing_receiver_is_logged_once_and_gets_all_datasets_later(
    emitted: Emitted, begun: Callable[..., Any]
) -> None:
    """Without the login in its URL. Each lost event is counted."""
    emitted.failing = True
    run, sender, counter = begun(every=0.05)
    with capture_logs() as lines:
        run.started(lambda: ([_INPUT], []))
        wait_for(lambda: counter.labels("dropped")._value.get() >= 3, "no event is dropped", 10)
        emitted.failing = False
        wait_for(lambda: emitted.events, "no event is sent", 10)
        run.ended("COMPLETE")
        sender.flush()
    assert emitted.steps()[0] == ("RUNNING", 1)
    assert [line["log_level"] for line in lines] == ["warning", "info"]
    assert "secret" not in str(lines)
    assert "r.example.com" in str(lines)


def test_a_receiver_that_does_not_answer_delays_nothing(emitted: Emitted, begun: Callable[..., Any]) -> None:
    """A stage may report thousands of changes meanwhile, and the end of a process waits for a moment only. Later the
    receiver gets the newest datasets.
    """

    def columns(number: int) -> Callable[[], Any]:
        return lambda: ([LineageDataset(name=DatasetName(namespace="n", name=str(number)))], ())

    emitted.free.clear()
    run, sender, counter = begun(most=10, every=0.05)
    began = time.monotonic()
    with capture_logs() as lines:
        run.started(columns(0))
        for number in range(1, 1000):
            run.reads_and_writes(columns(number))
        assert time.monotonic() - began < 1.0
        sender.flush(0.2)
        assert time.monotonic() - began < 2.0
        assert counter.labels("dropped")._value.get() >= 980
        assert len(lines) == 1
        emitted.free.set()
        wait_for(lambda: emitted.events and emitted.events[-1].inputs, "no datasets are sent", 10)
        wait_for(
            lambda: [one.name for event in emitted.events for one in event.inputs][-1] == "999", "they are old", 10
        )  # fmt: skip


def test_datasets_that_cannot_be_described_stop_nothing(emitted: Emitted, begun: Callable[..., Any]) -> None:
    """The error is logged, and the next event is sent."""
    run, sender, counter = begun()
    with capture_logs() as lines:
        run.started(lambda: ([_INPUT], []))
        run.reads_and_writes(lambda: dict[str, Any]()["column"])
        run.ended("COMPLETE")
        sender.flush()
    assert emitted.steps() == [("START", 1), ("COMPLETE", 1)]
    assert counter.labels("dropped")._value.get() == 1
    assert "KeyError" in str(lines[0])


_PROCESS = """
import atexit, sys, time
from cdc.openlineage.http_runs import lineage_run
from cdc.openlineage.datasets import DatasetName, LineageDataset
name = DatasetName(namespace="mysql://h:1", name="d.a")
# what is registered first runs last, after the sender's
atexit.register(lambda: print(time.monotonic() - began))
with lineage_run("shop", "CAPTURE", "s", lambda: ([LineageDataset(name=name)], [])) as run:
    print(run is not None, any(name.startswith("openlineage") for name in sys.modules), flush=True)
    began = time.monotonic()
    if len(sys.argv) > 1:
        raise ValueError(sys.argv[1])
"""


def started(environ: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("OPENLINEAGE")}
    command = [sys.executable, "-c", _PROCESS, *words]
    return subprocess.run(command, env={**kept, **environ}, capture_output=True, text=True, timeout=60, check=False)


def test_a_process_sends_to_a_receiver_and_without_one_imports_nothing() -> None:
    """Its last events arrive before it ends. The working directory's repository and the API key are in no event."""
    assert started({}).stdout.splitlines()[0] == "False False"
    with lineage_receiver() as receiver:
        done = started(receiver.environ())
        assert (done.stdout.splitlines()[0], done.stderr) == ("True True", "")
        failed = started({**receiver.environ(), "OPENLINEAGE_NAMESPACE": "prod"}, "a value of a row")
        assert failed.returncode == 1
    assert receiver.steps("shop.capture.s") == ["START", "COMPLETE", "START", "FAIL"]
    assert [one["job"]["namespace"] for one in receiver.events] == ["shop", "shop", "prod", "prod"]
    assert len({one["run"]["runId"] for one in receiver.events}) == 2
    assert set(receiver.keys) == {"Bearer key-of-the-receiver"}
    assert receiver.events[0]["producer"].startswith("urn:tailorbird:")
    written = "".join(receiver.texts)
    assert not [one for one in ("a value of", "key-of-the", "sourceCodeLocation", "github.com") if one in written]


def test_events_are_not_redirected() -> None:
    """They stay with the host that the environment names."""
    with lineage_receiver() as other, lineage_receiver() as receiver:
        receiver.status, receiver.location = 307, f"http://127.0.0.1:{other.port}/api/v1/lineage"
        done = started(receiver.environ())
        assert (done.returncode, other.events) == (0, [])
        assert "TooManyRedirects" in done.stdout + done.stderr


def test_a_process_ends_soon_without_its_receiver() -> None:
    """It is unreachable, or takes the request and does not answer. One line says so, with what to do."""
    with lineage_receiver() as silent:
        silent.status = 0
        for port in (free_port(), silent.port):
            done = started({"OPENLINEAGE_URL": f"http://127.0.0.1:{port}"})
            assert done.returncode == 0, done.stderr
            assert float(done.stdout.split()[-1]) < 6.0, done.stdout
            assert "Traceback" not in done.stderr


def test_wrong_settings_are_one_line(tmp_path: Any) -> None:
    """A file without a transport would make the library print events; a wrong URL shows no login."""
    for environ in (
        {"OPENLINEAGE_CONFIG": str(tmp_path / "missing.yml")},
        {"OPENLINEAGE_URL": "//user:secret@nowhere"},
    ):
        done = started(environ)
        assert done.returncode == 1
        assert "UsageError" in done.stderr
        assert "secret" not in done.stderr.splitlines()[-1]
