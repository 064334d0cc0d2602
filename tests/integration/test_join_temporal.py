"""Conditions on the time on real servers: rows leave without a change, through kills and a lost checkpoint."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cdc.model.schema import TableId
from cdc.model.types import Canonical
from joins.oracle.oracle import tables_after
from joins.oracle.sql_oracle import Answer, Oracle
from tests.integration.test_join import COLUMNS, FACT, SCHEMAS, Cells, History, JoinPipeline
from tests.integration.test_join_failures import DYING, JOIN, kill_group
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(900)]

QUERY = """SELECT f.id, f.price, f.at, n.name AS near
      FROM shop.facts f LEFT JOIN shop.near n ON n.id = f.near_id
      WHERE f.at >= now() - INTERVAL 5 SECONDS"""


class Recent(History):
    """Sources whose facts have a time near the present: at most so many seconds later."""

    def __init__(self, seed: int, seconds: int) -> None:
        super().__init__(random.Random(seed))
        self.seconds = seconds

    def _row(self, table: TableId, row: int) -> dict[str, Canonical]:
        made = super()._row(table, row)
        if table == FACT:
            moment = time.time() + self.chance.uniform(-4, self.seconds)
            made["at"] = time.strftime("%Y-%m-%dT%H:%M:%S.5Z", time.gmtime(moment))
        return made


@pytest.fixture
def joined(unique: Callable[[str], str], tmp_path: Path) -> Iterator[JoinPipeline]:
    made = JoinPipeline(unique("join"), tmp_path, query=QUERY)
    yield made
    made.close()


def answer(joined: JoinPipeline, history: History, clock: int) -> Answer:
    asked = Oracle(joined.topology, SCHEMAS)
    ordered = sorted(history.events, key=lambda event: (event.source.table_id.source, event.source.sequence))
    try:
        tables = tables_after(ordered, dict.fromkeys(COLUMNS, ("id",)))
        return asked.answer(joined.declared, joined.plan.sink.row_key, tables, clock)
    finally:
        asked.close()


def now_live(joined: JoinPipeline, history: History) -> Answer:
    """Return the SELECT at the present."""
    return answer(joined, history, time.time_ns() // 1_000_000)


def at_one_clock(joined: JoinPipeline) -> tuple[Answer, int] | None:
    """Return the table's rows and its clock, if no batch has changed it while it was read."""
    before = joined.barrier(0)
    rows = joined.live()
    after = joined.barrier(0)
    time.sleep(0.1)  # a batch that had begun to write has its barrier by then, or the next look finds it
    later = joined.barrier(0)
    if before is None or after is None or later is None or before.clock is None:
        return None
    return (rows, before.clock) if before.batch == after.batch == later.batch else None


def is_its_select(joined: JoinPipeline, history: History) -> bool:
    """Return whether the table equals the SELECT at its clock. A batch may be at work, so it looks again later."""
    found = at_one_clock(joined)
    return found is not None and found[0] == answer(joined, history, found[1])


def settles(joined: JoinPipeline, history: History) -> None:
    joined.publish_positions(history)
    wait_for(lambda: joined.barriers_report(history), "the barriers never come", seconds=240)
    wait_for(lambda: is_its_select(joined, history), "the table is not its SELECT", seconds=60)


def test_rows_leave_through_kills_and_a_lost_checkpoint(joined: JoinPipeline) -> None:
    """After SIGKILLs between and during batches, and after the loss of the checkpoint, the table is the SELECT at its
    clock; at last it is empty, without a change."""
    history, chance = Recent(5, 40), random.Random(5)
    joined.publish(history.change(150, ids=6))
    for _ in range(2):
        process = joined.start(JOIN)
        settles(joined, history)
        time.sleep(chance.uniform(0, 2))
        kill_group(process)
        joined.publish(history.change(20, ids=6))
    process = joined.start(JOIN)
    settles(joined, history)
    kill_group(process)
    subprocess.run(["rm", "-rf", str(joined.folder / "checkpoints")], check=True)
    joined.publish(history.change(20, ids=6))
    joined.start(JOIN)
    settles(joined, history)
    wait_for(lambda: not joined.live(), "rows whose time is over stay", seconds=120)


def test_a_repeated_batch_has_its_clock(joined: JoinPipeline) -> None:
    """The driver dies between HBase's write and Spark's commit; seconds later, the replay writes identical cells."""
    history = Recent(7, 300)
    joined.publish(history.change(600, ids=100))
    killed = joined.start([*DYING, "0"])
    assert killed.wait(300) == -9, joined.said()
    written: dict[bytes, Cells] = joined.cells()
    assert written
    over = len(written) // 20
    wait_for(lambda: len(now_live(joined, history)) < len(written) - over, "no row's time ends", seconds=120)
    killed = joined.start([*DYING, "0"])
    assert killed.wait(300) == -9, joined.said()
    assert joined.cells() == written, "the replay used another clock"
