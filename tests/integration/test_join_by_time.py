"""A join by time on real servers: Kafka in, Spark's stream-stream join, HBase out, through the driver's death."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cdc.model import naming
from cdc.model.event import ChangeEvent, SourceInfo
from joins.oracle.sql_oracle import Oracle
from tests.integration.test_join import FACT, FAR, NEAR, SCHEMAS, Cells, History, JoinPipeline
from tests.support.waiting import wait_for

# of each, one in `make test`: tests/integration/test_syslog.py, tests/joins/test_spark_by_time.py
pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(600)]

QUERY = """SELECT a.id, b.id AS other, a.at, b.price
      FROM shop.facts a
      LEFT JOIN shop.facts b
        ON b.near_id = a.near_id AND b.at BETWEEN a.at + INTERVAL 1 SECOND AND a.at + INTERVAL 1 MINUTE"""
MINUTE = 60_000  # ms, of the watermark
START = 1_767_225_600_000  # 2026-01-01 in ms


@pytest.fixture
def joined(unique: Callable[[str], str], tmp_path: Path) -> Iterator[JoinPipeline]:
    rules = "{facts: {append_only: true, watermark: 1m}, near: {}}"
    made = JoinPipeline(unique("join"), tmp_path, query=QUERY, row_key="id, other", shop=rules)
    yield made
    made.close()


class Events:
    """The rows of an append-only table, and the rows they are joined to."""

    def __init__(self) -> None:
        self.sequences = {"shop": 0, "crm": 0}
        self.rows: dict[tuple[Any, ...], dict[str, Any]] = {}

    def event(self, op: Any, before: Any, after: Any) -> ChangeEvent:
        self.sequences["shop"] += 1
        number = self.sequences["shop"]
        source = SourceInfo(
            table_id=FACT, ts_ms=START + number, server_id=1, gtid=None, file="f", pos=4, row=0, sequence=number
        )
        return ChangeEvent(op=op, before=before, after=after, source=source, ts_ms=1)

    def inserted(self, row: int, near: int | None, minute: int, second: int = 0, *, late: bool = False) -> ChangeEvent:
        at = f"2026-01-01T{minute // 60:02}:{minute % 60:02}:{second:02}Z"
        values = {"id": row, "near_id": near, "far_id": None, "price": f"{row}.50", "at": at}
        if not late:
            self.rows[row,] = values
        return self.event("c", None, values)


@pytest.mark.parametrize("dies", [False, True])
def test_by_time_on_real_servers(joined: JoinPipeline, dies: bool) -> None:
    """Pairs appear at once, NULLs with the watermark, which the barriers carry. A driver that died between HBase's
    write and Spark's commit writes the same cells again. A late row and an UPDATE become dead letters.
    """
    events, history = Events(), History(random.Random(1))
    history.sequences = events.sequences

    def publish(*some: ChangeEvent) -> None:
        joined.publish(list(some))
        joined.publish_positions(history)

    publish(*(events.inserted(n, n % 3, n // 4, n % 60) for n in range(40)), events.inserted(90, None, 1))
    written: dict[bytes, Cells] = {}
    if dies:
        killed = joined.start([sys.executable, "-m", "tests.support.dying_join", "0"])
        assert killed.wait(300) == -9, joined.said()
        written = joined.cells()
        assert len(written) > 10
    joined.start([sys.executable, "-m", "joins"])
    wait_for(lambda: joined.barriers_report(history), "the replay never ends")
    assert {row: joined.cells()[row] for row in written} == written

    publish(events.inserted(1000, 7, 600))
    wait_for(lambda: joined.barriers_report(history), "the young row never arrives")
    young = START + 600 * MINUTE - MINUTE
    wait_for(lambda: all(_watermark(joined, bucket) == young for bucket in range(2)), "the watermark stands still")
    first = events.rows[0,]
    publish(events.inserted(2000, 1, 5, late=True), events.event("u", first, {**first, "price": "9.00"}))
    wait_for(lambda: joined.barriers_report(history), "what is refused holds up the rest")

    asked = Oracle(joined.topology, SCHEMAS)
    try:
        tables = {FACT: events.rows, NEAR: {}, FAR: {}}
        expected = asked.answer(joined.topology.tables["wide"], joined.plan.sink.row_key, tables)
    finally:
        asked.close()
    del expected[1000, None]  # which may still find a match
    assert joined.live() == expected
    dead_letters = [json.loads(one.value or b"") for one in joined.records(naming.dead_letter_topic(joined.name), 1)]
    reasons = {dead_letter["reason"].partition(":")[0] for dead_letter in dead_letters}
    assert reasons == {"late", "UPDATE of an append-only table"}
    barrier = joined.barrier(0)
    assert barrier is not None
    assert barrier.incomplete == 2 * 2, "each side of a self-join reports what it refuses"


def _watermark(joined: JoinPipeline, bucket: int) -> int | None:
    found = joined.barrier(bucket)
    return None if found is None else found.watermark
