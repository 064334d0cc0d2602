"""Mirror external topics on a real Kafka exactly once, whatever dies and whatever their writer repeats."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from cdc.model.naming import change_topic
from cdc.model.schema import TableId
from tailorbird.devtools.stack.proc_stack import Stack
from tests.integration.conftest import CapturedDatabase, servers
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.timeout(200)]


class MirroredTopic(CapturedDatabase):
    """A topic of an external writer, and the capture that mirrors it."""

    def topic(self, table: str) -> str:
        return change_topic(self.name, TableId(source="shop", database="crm", table=table))

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.communicate()
        for consumer in self._consumers.values():
            consumer.close()

    def offsets(self) -> int:
        """Return how many records are committed as read."""
        position = self.position()
        return sum(entry[0] for entry in (position or {}).get("state", {}).get("offsets", {}).values())


@pytest.fixture
def mirror(stack: Stack, unique: Callable[[str], str], tmp_path: Path) -> Iterator[Callable[..., MirroredTopic]]:
    made: list[MirroredTopic] = []

    def make(extra: str = "") -> MirroredTopic:
        name = unique("mirror")
        file = tmp_path / f"{name}.yml"
        file.write_text(
            f"name: {name}\nsources:\n  shop:\n    type: kafka\n    bootstrap_servers: '{servers()}'\n"
            f"    format: debezium\n    database: crm{extra}\n    tables:\n"
            f"      t: {{topic: {name}_in, columns: {{id: bigint, v: bigint}}, message_key_columns: [id]}}\n"
            f"log: {{bootstrap_servers: '{servers()}'}}\n"
            "tables:\n  wide: {query: SELECT a.id FROM shop.t a, row_key: [id]}\n"
        )
        admin = AdminClient({"bootstrap.servers": servers()})
        for future in admin.create_topics([NewTopic(f"{name}_in", 3, 1)]).values():
            future.result()
        made.append(MirroredTopic(name, file, ("t",)))
        return made[-1]

    yield make
    for one in made:
        one.close()


class Writer:
    """A connector: publishes the changes of one log in order, and now and then restarts somewhat earlier."""

    def __init__(self, topic: str, seed: int) -> None:
        self.topic, self.random = topic, Random(seed)
        self.producer = Producer(
            {"bootstrap.servers": servers(), "partitioner": "murmur2_random", "enable.idempotence": True}
        )
        self.rows: dict[int, int] = {}
        self.events: list[tuple[bytes, bytes]] = []
        self.sent = 0

    def write(self, count: int) -> None:
        for _ in range(count):
            key, number = self.random.randrange(500), len(self.events) + 1
            before = self.rows.get(key)
            if before is not None and self.random.random() < 0.2:
                del self.rows[key]
                self._say("d", key, before, None, number)
            else:
                self.rows[key] = number
                self._say("c" if before is None else "u", key, before, number, number)
        again = max(0, self.sent - self.random.randrange(200))
        for name, reported in self.events[again:]:
            self.producer.produce(self.topic, reported, name)
            self.sent += 1
            self.producer.poll(0)
        assert self.producer.flush(30) == 0
        self.sent = len(self.events)

    def _say(self, op: str, key: int, before: int | None, after: int | None, number: int) -> None:
        images = [None if value is None else {"id": key, "v": value} for value in (before, after)]
        source = {"db": "crm", "table": "t", "ts_ms": 1, "server_id": 1, "file": "b.000001", "pos": number, "row": 0}
        value = {"before": images[0], "after": images[1], "op": op, "source": source}
        self.events.append((json.dumps({"id": key}).encode(), json.dumps(value).encode()))


def test_killed_and_repeated_each_change_is_published_once(mirror: Callable[..., MirroredTopic]) -> None:
    """Kill -9 at random while a connector writes and repeats earlier records: each change once, in order per key."""
    captured, random = mirror(), Random(3)
    writer = Writer(f"{captured.name}_in", 4)
    writer.write(3000)
    for _ in range(3):
        process = captured.start()
        seen = captured.offsets()
        writer.write(1000)
        captured.wait_for(lambda seen=seen: captured.offsets() > seen, "no progress")
        time.sleep(random.random() / 4)
        process.send_signal(signal.SIGKILL)
        process.wait()
    process = captured.start()
    writer.write(1000)  # once this process has published them its SIGTERM handler is installed
    written = sum(captured._marks(captured._consumer("read_committed"), f"{captured.name}_in", p)[1] for p in range(3))
    captured.wait_for(lambda: captured.offsets() == written, "the mirror does not catch up")
    process.terminate()
    assert captured.end_of(process)[0] == 0
    records = captured.read(captured.topic("t"))
    reported: dict[int, list[tuple[str, Any]]] = {}
    numbers = []
    for _, key, value in records:
        if value is not None:
            event = json.loads(value)
            numbers.append(event["source"]["sequence"])
            reported.setdefault(json.loads(key)["id"], []).append((event["op"], event["after"] and event["after"]["v"]))
    wanted: dict[int, list[tuple[str, Any]]] = {}
    for _, value in writer.events:
        event = json.loads(value)
        row = event["after"] or event["before"]
        wanted.setdefault(row["id"], []).append((event["op"], event["after"] and event["after"]["v"]))
    assert reported == wanted
    assert sorted(numbers) == list(range(1, len(writer.events) + 1))
    assert written > len(writer.events) + 100


def test_lost_offsets_are_reported_or_reading_starts_again(mirror: Callable[..., MirroredTopic]) -> None:
    """A deleted and recreated topic lacks the next offsets: by default the capture exits and reports it."""
    captured = mirror()
    writer = Writer(f"{captured.name}_in", 5)
    writer.write(50)
    process = captured.start()
    captured.wait_for(lambda: captured.offsets() == 50, "the mirror does not catch up")
    process.terminate()
    assert captured.end_of(process)[0] == 0
    admin = AdminClient({"bootstrap.servers": servers()})
    for future in admin.delete_topics([writer.topic]).values():
        future.result()

    def made() -> bool:
        try:
            for future in admin.create_topics([NewTopic(writer.topic, 3, 1)]).values():
                future.result()
        except KafkaException:  # it is still being deleted
            return False
        return True

    wait_for(made, "the topic is not recreated", seconds=30)
    process = captured.start()
    code, said = captured.end_of(process)
    assert code == 1
    assert "but the topic contains 0 to 0" in said
    text = captured.file.read_text()
    captured.file.write_text(text.replace("database: crm", "database: crm\n    position_lost: resnapshot"))
    other = Writer(writer.topic, 6)
    other.write(20)
    process = captured.start()
    state: dict[int, int] = {}

    def reached() -> bool:
        rows: dict[bytes, tuple[int, Any]] = {}
        for _, key, value in captured.read(captured.topic("t")):
            if value is None:
                continue
            event = json.loads(value)
            number = event["source"]["sequence"]
            if key == b'"truncate"':
                rows = {k: found for k, found in rows.items() if found[0] >= number}
            else:
                rows[key] = number, event["after"]
        state.clear()
        state.update({row["id"]: row["v"] for _, row in rows.values() if row is not None})
        return state == other.rows

    wait_for(reached, "reading did not start again", seconds=60)
    process.terminate()
    assert captured.end_of(process)[0] == 0
