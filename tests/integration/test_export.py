"""`tailorbird export` on a real Kafka, killed at random, writes each change to the folder or the topic exactly once."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fastavro
import pytest
from confluent_kafka import Consumer, KafkaError, TopicPartition

from cdc.model.schema import TableId
from cdc.topology.topology import Topology
from ingest.changes.kafka_changes import KafkaChanges
from ingest.export.cuts import ExportCut
from ingest.export.encoding import ExportFormat
from ingest.export.kafka_export import TopicExport
from ingest.export.run_export import ExportOptions, export, sinks
from tests.support.changes_made import KafkaHistory, SourceLog, schema_of, topology_named, topology_text
from tests.support.registries import MemoryRegistry
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(180)]
TABLE = TableId(source="s", database="d", table="t")
ROWS = 800


def servers() -> str:
    return f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}"


@pytest.fixture
def captured(unique: Callable[[str], str]) -> Iterator[tuple[str, SourceLog]]:
    """Publish a topology's table: inserts and deletes over two schemas."""
    name = unique("exported")
    committed = KafkaHistory(topology_named(name, servers()))
    source = SourceLog(committed)
    for version in (1, 2):
        source.columns(schema_of(version=version, name="varchar(20)", **({"v": "int"} if version == 2 else {})))
        for number in range(ROWS):
            row = {"id": number, "name": f"é{version}"}
            source.transaction(("c", None, row), ("d", row, None))
        source.commit()
    yield name, source
    committed.close()


@pytest.mark.matrix  # kills in the middle of a commit: the test below
def test_killed_at_random_a_folder_has_each_change_once(captured: tuple[str, SourceLog], tmp_path: Path) -> None:
    """Send SIGKILL as soon as another file exists, twice; the third attempt ends by itself."""
    name, source = captured
    topology, lake = tmp_path / "t.yml", tmp_path / "lake"
    topology.write_text(topology_text(name, servers()))
    command = [sys.executable, "-m", "tailorbird", "export", str(topology), "--table", "s.t", "--format", "debezium"]
    command += ["--to", str(lake), "--rows", "100", "--json"]

    def files() -> list[Path]:
        return sorted((lake / str(TABLE)).glob("[0-9]*"))

    for _ in range(2):
        before, process = len(files()), subprocess.Popen(command, stderr=subprocess.DEVNULL)
        wait_for(lambda before=before: len(files()) > before, "no file", 60)  # type: ignore[misc]  # a default
        process.send_signal(signal.SIGKILL)
        process.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)[str(TABLE)] < len(source.reported)
    lines = [json.loads(line) for file in files() for line in file.read_text().splitlines()]
    assert [line["source"]["sequence"] for line in lines] == [event.source.sequence for event in source.reported]


class KilledWriter(Exception):
    """Represents the death of a process."""


@pytest.mark.parametrize("form", ["maxwell", "debezium-avro"])
def test_killed_in_a_commit_a_topic_has_each_change_once(
    form: ExportFormat, captured: tuple[str, SourceLog], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed before and after a transaction commits; the next exporter fences its predecessor."""
    name, source = captured
    topology = topology_named(name, servers())
    with MemoryRegistry().served() as address:
        registry = address if form == "debezium-avro" else ""
        options = ExportOptions(form=form, to=f"kafka://{servers()}/{name}_mx", rows=400, registry=registry)
        exported_with_deaths(topology, options, monkeypatch)
        read = avro_of(address) if registry else maxwell_of
        found = reported(f"{name}_mx.d.t", read)
    assert sorted(found) == sorted((event.op, (event.after or event.before or {})["id"]) for event in source.reported)


def exported_with_deaths(topology: Topology, options: ExportOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    """Export everything. The exporter is killed before and after commits."""
    log = KafkaChanges(topology)
    log.begin()
    write, turns, left = TopicExport.write, [0], list[TopicExport]()

    def dies(self: TopicExport, cut: ExportCut) -> None:
        turns[0] += 1
        if turns[0] % 3 == 2:
            self._producer.begin_transaction()
            self._producer.produce(self.topic, b"{}", b"{}")
            self._producer.flush(10)
            left.append(self)
            raise KilledWriter
        write(self, cut)
        if turns[0] % 3 == 0:
            raise KilledWriter

    monkeypatch.setattr(TopicExport, "write", dies)
    monkeypatch.setattr(TopicExport, "close", lambda self: None)
    deaths = 0
    while True:
        try:
            make = sinks(topology, options)
            export(log, [TABLE], make, options, stopped=lambda: False, follow=lambda s: False)
            break
        except KilledWriter:
            deaths += 1
    log.close()
    assert deaths >= 2


def maxwell_of(key: bytes, value: bytes) -> tuple[str, int]:
    """Read a record of Maxwell's format: the operation and the id."""
    row = json.loads(value)
    assert json.loads(key)["pk.id"] == row["data"]["id"]
    return {"insert": "c", "delete": "d"}[row["type"]], row["data"]["id"]


def avro_of(address: str) -> Callable[[bytes, bytes], tuple[str, int]]:
    """Return the same for records in Avro, with the schemas of this registry."""
    schemas = dict[bytes, Any]()

    def read(data: bytes) -> Any:
        if data[:5] not in schemas:
            with urllib.request.urlopen(f"{address}/schemas/ids/{int.from_bytes(data[1:5])}") as answer:
                schemas[data[:5]] = fastavro.parse_schema(json.loads(json.load(answer)["schema"]))
        return fastavro.schemaless_reader(io.BytesIO(data[5:]), schemas[data[:5]], None)

    def both(key: bytes, value: bytes) -> tuple[str, int]:
        row = read(value)
        assert read(key)["id"] == (row["after"] or row["before"])["id"]
        return row["op"], (row["after"] or row["before"])["id"]

    return both


def reported(topic: str, read: Callable[[bytes, bytes], tuple[str, int]]) -> list[tuple[str, int]]:
    """Return the committed records of a topic up to its end, without tombstones."""
    consumer = Consumer({"bootstrap.servers": servers(), "group.id": "x", "enable.partition.eof": True})
    parts = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, part, 0) for part in parts])
    found, ended = list[tuple[str, int]](), set[int]()
    while len(ended) < len(parts):
        message = consumer.poll(20)
        assert message is not None
        error = message.error()
        if error is not None:
            assert error.code() == KafkaError._PARTITION_EOF
            ended.add(message.partition() or 0)
            continue
        if (value := message.value()) is not None:
            found.append(read(message.key() or b"", value))
    consumer.close()
    return found
