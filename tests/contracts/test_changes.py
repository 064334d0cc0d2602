"""The contract of change readers: one suite, on the in-memory log of their tests and on Kafka."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from cdc.model.event import ChangeEvent
from cdc.model.schema import TableId
from ingest.changes import kafka_changes
from ingest.changes.feed_interfaces import ChangeTables, ahead
from ingest.changes.kafka_changes import KafkaChanges
from ingest.changes.merging import Offsets
from tests.support.changes_made import KafkaHistory, MemoryChanges, SourceLog, images, schema_of, topology_named
from tests.support.waiting import wait_for

TABLE = TableId(source="s", database="d", table="t")


@dataclass
class Place:
    """A history that can be extended, and its reader."""

    source: SourceLog
    log: ChangeTables
    look: Callable[[], object]

    def commit(self, row: int | None = None) -> None:
        """Commit, and wait until the reader sees it."""
        before = self.log.released(TABLE)
        self.source.commit()
        wait_for(lambda: self.look() is None and self.log.released(TABLE) != before, "not released", 20)

    def insert(self, *numbers: int) -> None:
        """Append a transaction of some rows."""
        self.source.transaction(*(("c", None, {"id": number, "name": "x"}) for number in numbers))

    def read(self, starts: Offsets | None = None) -> tuple[list[ChangeEvent], Offsets]:
        """Return all changes that are released after some offsets."""
        at = dict(self.log.begins(TABLE) if starts is None else starts)
        ends, found = self.log.released(TABLE), list[ChangeEvent]()
        while ahead(at, ends):
            batch = self.log.read(TABLE, at, ends)
            assert batch.next != at, "no progress"
            found, at = found + [change.event for change in batch.changes], dict(batch.next)
        return found, at


@pytest.fixture(params=["memory", pytest.param("kafka", marks=[pytest.mark.integration, pytest.mark.kafka])])
def place(request: Any, unique: Callable[[str], str]) -> Iterator[Place]:
    if request.param == "memory":
        log = MemoryChanges()
        source = SourceLog(log)
        source.columns(schema_of(name="varchar(20)"))
        yield Place(source, log, lambda: None)
        return
    topology = topology_named(unique("changes"), f"127.0.0.1:{os.environ['TAILORBIRD_PORT_KAFKA']}")
    committed = KafkaHistory(topology)
    source = SourceLog(committed)
    source.columns(schema_of(name="varchar(20)"))
    source.commit()
    changes = KafkaChanges(topology)
    try:
        changes.begin()
        yield Place(source, changes, lambda: changes.follow(0.1) and None)
    finally:
        changes.close()
        committed.close()


def test_changes_are_read_in_the_sources_order_and_in_whole_commits(place: Place) -> None:
    """They are read across all partitions; uncommitted records are not visible; the next read starts where the last
    ended."""
    for number in range(0, 60, 3):
        place.insert(number, number + 1, number + 2)
    place.source.transaction(("d", {"id": 3, "name": "x"}, None))
    place.commit()
    place.insert(100)
    first, at = place.read()
    assert images(first) == images(place.source.reported[:-1])
    assert [event.source.sequence for event in first] == [event.source.sequence for event in place.source.reported[:-1]]
    assert not ahead(at, place.log.released(TABLE))
    place.commit()
    assert images(place.read(at)[0]) == [("c", {"id": 100, "name": "x"})]
    assert place.log.tables() == (TABLE,)


def test_snapshot_rows_keep_their_place_and_a_truncation_is_reported_once(place: Place) -> None:
    """Their number is older than those of changes before them, and they stay after these."""
    place.insert(*range(8))
    low = place.source.sequence
    place.source.transaction(("u", {"id": 1, "name": "x"}, {"id": 1, "name": "y"}))
    place.source.read({"id": 1, "name": "y"}, low)
    place.source.truncated()
    place.insert(1)
    place.commit()
    found = place.read()[0]
    assert [event.op for event in found if event.op == "t"] == ["t"]
    assert [event.op for event in found if event.op == "t" or (event.after or {}).get("id") == 1] == [
        "c", "u", "r", "t", "c",
    ]  # fmt: skip


def test_schemas_are_known_with_the_rows_that_have_them(place: Place) -> None:
    """A schema that is committed with rows is available when they are; older rows keep theirs."""
    place.insert(1)
    place.commit()
    assert [schema.version for _, schema in place.log.schemas(TABLE).found] == [1]
    _, at = place.read()
    place.source.columns(schema_of(version=2, name="varchar(20)", credit="int"))
    place.insert(2)
    place.commit()
    found, _ = place.read(at)
    versions = place.log.schemas(TABLE)
    assert [versions.at(event.source.sequence).version for event in found] == [2]
    assert versions.at(place.source.reported[0].source.sequence).version == 1


def test_a_position_is_found_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading from `before` shows everything after the last commit below the number, for every number.

    The newest changes are complete, also if one read returns only a part of them.
    """
    for number in range(4):
        place.insert(number)
        place.commit()
    for wanted in place.source.reported:
        number = wanted.source.sequence
        starts = place.log.before(TABLE, lambda position, number=number: position.sequence >= number)  # type: ignore[misc]
        assert starts is not None
        found = [event.source.sequence for event in place.read(starts)[0]]
        assert found == [event.source.sequence for event in place.source.reported][-len(found) :]
        assert found[0] <= number < found[0] + 2
    monkeypatch.setattr(kafka_changes, "_BATCH", 1)
    newest = place.log.newest(TABLE, place.log.released(TABLE))
    assert [change.event.source.sequence for change in newest.changes] == [
        e.source.sequence for e in place.source.reported
    ]
