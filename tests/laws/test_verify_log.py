"""The comparison of a source with its log under random traffic: exactly the planted differences are found, although
transactions commit between every two reads and the ledger lags."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from cdc.merkle.tree import Leaves, delta
from cdc.model.event import Position
from ingest.ledger.fold import LogRecord
from ingest.ledger.places import tag_of
from tailorbird.verify.findings import Verdict
from tailorbird.verify.log.log_stage import LogImage, LogStage, SourceReading
from tailorbird.verify.log.spans import Span
from tests.laws.test_ledger import LEAF, SCHEMA, TEXT, Kept, Model, at

Operations = list[tuple[int, int | None]]
Row = dict[str, Any]


@dataclass
class Database:
    """A source where transactions commit at every read; `hidden` are changes that its log does not contain."""

    model: Model
    random: Random
    waiting: list[Operations]
    hidden: dict[int, int | None] = field(default_factory=dict)

    def step(self) -> None:
        while self.waiting and self.random.random() < 0.5:
            self.model.transaction(self.waiting.pop(0))

    def state(self) -> dict[int, int]:
        found = {**self.model.states[-1], **self.hidden}
        return {key: value for key, value in found.items() if value is not None}

    def look(self) -> tuple[Position, dict[int, int], Position]:
        low = at(self.model.number)
        self.step()
        shown = self.state()
        self.step()
        return low, shown, at(self.model.number)

    def wholes(self, spans: Iterable[Span]) -> Iterator[tuple[Span, SourceReading]]:
        for span in spans:
            seen = self.digests([span])
            yield span, SourceReading(low=seen.low, high=seen.high, whole=Leaves(dict(seen.digests)).total())

    def digests(self, spans: Sequence[Span]) -> SourceReading:
        low, shown, high = self.look()
        found = Leaves()
        for key, value in shown.items():
            row = {"id": key, "v": value}
            if any(first <= LEAF(row) <= last for first, last in spans):
                found.add(LEAF(row), delta(None, TEXT.hash(row)))
        return SourceReading(low=low, high=high, digests=found.digests)

    def rows(self, leaves: Sequence[int]) -> SourceReading:
        low, shown, high = self.look()
        rows: list[Row] = [{"id": key, "v": value} for key, value in shown.items()]
        return SourceReading(low=low, high=high, images=[row for row in rows if LEAF(row) in leaves])

    def keyed(self, keys: Sequence[Row]) -> SourceReading:
        low, shown, high = self.look()
        return SourceReading(
            low=low, high=high, images=[{"id": k, "v": v} for k, v in shown.items() if {"id": k} in keys]
        )


@dataclass
class Log:
    """The content of the model's log; `altered` changes some rows. The ledger reads it when necessary."""

    model: Model
    ledger: Kept
    random: Random

    def covers(self, position: Position, *, wait: bool) -> bool:
        if not wait and self.random.random() < 0.5:
            return False
        self.ledger.read(self.model.logs, self.random)
        return True

    def record(self, partition: int, offset: int) -> LogImage | None:
        envelope = orjson.loads(self.model.logs[partition][offset].value or b"null")
        return LogImage(row=envelope["after"], tag=tag_of(envelope["source"]), reported=f"{partition}:{offset}")


def compared(database: Database, log: Log, keys: set[int] | None = None) -> Verdict:
    ticks = count()
    partition_ledger = log.ledger.topology_ledger.tables[SCHEMA.table_id]
    stage = LogStage(
        partition_ledger=partition_ledger,
        source=database,
        log=log,
        pause=lambda: database.step(),
        clock=lambda: float(next(ticks)),
    )
    return stage.verdict() if keys is None else stage.look([orjson.dumps({"id": key}) for key in keys])


busy = st.integers(-2, 2).map(lambda key: key * 700)
still = st.integers(-2, 2).map(lambda key: key * 700 + 1)  # in the same leaves
traffic = st.lists(
    st.lists(st.tuples(busy, st.one_of(st.none(), st.integers(0, 9))), min_size=1, max_size=3), max_size=12
)
rows = st.dictionaries(st.one_of(busy, still), st.integers(0, 9), max_size=8)


faults = st.dictionaries(still, st.one_of(st.none(), st.integers(0, 9)), max_size=3)


@given(rows, traffic, faults, st.one_of(st.none(), st.sets(st.one_of(busy, still))), st.integers(0, 2**32))
def test_what_was_planted_and_nothing_else(
    before: dict[int, int],
    history: list[Operations],
    hidden: dict[int, int | None],
    keys: set[int] | None,
    seed: int,
) -> None:
    """Each row that differs between log and source is reported with its values; rows that traffic changes never are. An
    undecided row counts as moving. If only some keys are requested, only these are compared."""
    random = Random(seed)
    model = Model(random, 2)
    model.transaction(list(before.items()))
    ledger = Kept(2)
    database = Database(model, random, [list(one) for one in history], hidden)
    verdict = compared(database, Log(model, ledger, random), keys)
    logged = model.states[-1]
    expected: dict[int, tuple[str, dict[str, Any]]] = {}
    for key, value in hidden.items():
        held = logged.get(key)
        if value == held or (keys is not None and key not in keys):
            continue
        if held is None:
            expected[key] = "missing", {}
        elif value is None:
            expected[key] = "extra", {}
        else:
            expected[key] = "different", {"v": (value, held)}
    found = {one.key["id"]: (one.kind, dict(one.columns)) for one in verdict.findings}
    assert verdict.unknown == ()
    assert found.items() <= expected.items()
    assert len(found) == verdict.differing
    assert len(expected) <= len(found) + verdict.moving
    if not history:
        assert (found, verdict.moving, verdict.rows) == (expected, 0, len(database.state() if keys is None else keys))


@given(rows, st.integers(0, 2**32))
def test_what_the_log_says_otherwise(before: dict[int, int], seed: int) -> None:
    """A record that was altered on its way is reported with both values and its place; a dropped one is reported as a
    missing row."""
    random = Random(seed)
    model = Model(random, 2)
    model.transaction(list(before.items()))
    expected: dict[int, str] = {}
    for partition, log in enumerate(model.logs):
        kept: list[LogRecord] = []
        for record in log:
            key, fault = orjson.loads(record.key)["id"], random.choice(["none", "alter", "drop"])
            if fault == "drop":
                expected[key] = "missing"
                continue
            if fault == "alter":
                expected[key] = "different"
                envelope = orjson.loads(record.value or b"")
                envelope["after"]["v"] += 1
                record = record._replace(value=orjson.dumps(envelope))
            kept.append(record._replace(offset=len(kept)))
        model.logs[partition] = kept
    verdict = compared(Database(model, random, []), Log(model, Kept(2), random))
    assert {one.key["id"]: one.kind for one in verdict.findings} == expected
    for one in verdict.findings:
        if one.kind == "different":
            value = before[int(str(one.key["id"]))]
            assert dict(one.columns) == {"v": (value, value + 1)}
            assert ":" in one.position


def test_rows_that_move_at_every_look_are_no_difference() -> None:
    """A hot row is equal, or moving; never different."""
    random = Random(0)
    model = Model(random, 1)
    model.transaction([(0, 0)])

    class Hot(Database):
        def step(self) -> None:
            self.model.transaction([(0, self.model.number % 9)])

    verdict = compared(Hot(model, random, []), Log(model, Kept(1), random))
    assert (verdict.differing, verdict.moving, verdict.outcome) == (0, 1, "equal")


def test_a_wrongly_exact_change_leaves_the_table_unknown() -> None:
    """Rows are equal, but a group that added up the change may be wrong: the verdict names the record."""
    random = Random(0)
    model = Model(random, 1)
    model.transaction([(0, 1)])
    model.transaction([(0, 2)])
    last = model.logs[0][-1]
    envelope = orjson.loads(last.value or b"")
    envelope["source"]["exact"], envelope["before"] = 1, {"id": 0, "v": 7}
    model.logs[0][-1] = last._replace(value=orjson.dumps(envelope))
    verdict = compared(Database(model, random, []), Log(model, Kept(1), random))
    assert (verdict.differing, verdict.outcome) == (0, "could not tell")
    (why,) = verdict.unknown
    assert f"topic/0/{last.offset}" in why
    assert "tailorbird snapshot" in why
