"""Every relation of the SQL equals its SELECT on real servers although the driver dies and the checkpoint is lost.

Plain joins are in test_join_failures.py, groups in test_groups_failures.py.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cdc.process.file_topology import load_topology
from tailorbird.cli.change.cli_apply import provision
from tests.integration.test_join import History, JoinPipeline, oracle
from tests.integration.test_join_failures import begins, kill_group, planned
from tests.support.waiting import wait_for

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka("hbase", "thrift"),
    pytest.mark.timeout(3000),
    pytest.mark.matrix,
]
RELATIONS = {
    "ranks": (
        """SELECT f.id, f.near_id, rank() OVER (PARTITION BY f.near_id ORDER BY f.price) AS place,
          lag(f.price) OVER (PARTITION BY f.near_id ORDER BY f.id) AS former,
          sum(f.price) OVER (PARTITION BY f.near_id ORDER BY f.id ROWS 2 PRECEDING) AS running FROM shop.facts f""",
        "id",
    ),
    "shares": ("SELECT f.id, f.price, sum(f.price) OVER (PARTITION BY f.near_id) AS total FROM shop.facts f", "id"),
    "first of each": (
        """SELECT f.id, f.near_id, f.price FROM shop.facts f
          QUALIFY row_number() OVER (PARTITION BY f.near_id ORDER BY f.price, f.id) <= 2""",
        "id",
    ),
    "first of all": ("SELECT f.id, f.price FROM shop.facts f ORDER BY f.price, f.id LIMIT 5", "id"),
    "correlated": (
        """SELECT f.id, f.price FROM shop.facts f
          WHERE f.price > (SELECT avg(i.price) FROM shop.facts i WHERE i.near_id = f.near_id)""",
        "id",
    ),
    "exists and not in": (
        """SELECT n.id, n.name FROM shop.near n
          WHERE EXISTS (SELECT 1 FROM shop.facts f WHERE f.near_id = n.id AND f.price < -300)
          AND n.id NOT IN (SELECT g.far_id FROM shop.facts g WHERE g.price < -900)""",
        "id",
    ),
    "except": (
        """SELECT f.near_id AS id FROM shop.facts f WHERE f.near_id IS NOT NULL
          EXCEPT SELECT r.id FROM crm.far r""",
        "id",
    ),
    "intersect": ("SELECT n.name FROM shop.near n INTERSECT SELECT r.name FROM crm.far r", "name"),
    "rollup": (
        """SELECT f.near_id, f.far_id, grouping_id() AS level, count(*) AS facts, sum(f.price) AS price
          FROM shop.facts f GROUP BY ROLLUP (f.near_id, f.far_id)""",
        "near_id, far_id, level",
    ),
    "full": (
        """SELECT n.id, r.id AS other, n.name AS near, r.name AS far
          FROM shop.near n FULL JOIN crm.far r ON n.id = r.id""",
        "id, other",
    ),
    "expression": (
        "SELECT f.id, n.name FROM shop.facts f LEFT JOIN shop.near n ON n.id = coalesce(f.near_id, f.far_id) % 3",
        "id",
    ),
    "union": (
        "SELECT 'n' AS which, n.id, n.name FROM shop.near n UNION ALL SELECT 'r', r.id, r.name FROM crm.far r",
        "which, id",
    ),
}


KILLS = 4


def test_all_relations_survive(unique: Callable[[str], str], tmp_path: Path) -> None:
    """One application has a table of each relation. SIGKILL hits it at random moments of its work, and then all
    checkpoints are lost while rows change, so that every outdated row has to go."""
    joined = JoinPipeline(unique("relations"), tmp_path)
    tables = [name.replace(" ", "_") for name in RELATIONS]
    text = joined.file.read_text()
    for name, (query, row_key) in zip(tables, RELATIONS.values(), strict=True):
        text += f"  {name}:\n    query: |\n      {query}\n    row_key: [{row_key}]\n    state_partitions: 1\n"
    joined.file.write_text(text)
    assert list(provision(load_topology(str(joined.file))))
    command = [sys.executable, "-m", "joins", *(word for name in ("wide", *tables) for word in ("--table", name))]
    chance, history = random.Random(37), History(random.Random(37))

    def settle() -> None:
        joined.publish_positions(history)
        for one in map(joined.of, tables):
            wait_for(partial(one.barriers_report, history), "the barriers never come", seconds=600)
            assert one.live() == oracle(one, history), one.declared.name

    try:
        for _ in range(KILLS):
            joined.publish(history.change(200, ids=6))
            before = planned(joined)
            process = joined.start(command)
            begins(joined, process, after=before)
            joined.publish(history.change(50, ids=6))
            time.sleep(chance.uniform(0, 15))
            kill_group(process)
        joined.publish(history.change(50, ids=6))
        process = joined.start(command)
        settle()
        kill_group(process)
        subprocess.run(["rm", "-rf", str(tmp_path / "checkpoints")], check=True)
        joined.publish([history.truncate(), *history.change(300, ids=6)])
        joined.start(command)
        settle()
    finally:
        joined.close()
