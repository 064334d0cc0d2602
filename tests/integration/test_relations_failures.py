"""Every relation of the SQL equals its SELECT on real servers although the driver dies and the checkpoint is lost.

Plain joins are in test_join_failures.py, groups in test_groups_failures.py.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.test_join import JoinPipeline
from tests.integration.test_join_failures import survives_a_lost_checkpoint, survives_kills

pytestmark = [
    pytest.mark.integration,
    pytest.mark.kafka("hbase", "thrift"),
    pytest.mark.timeout(1800),
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


@pytest.mark.parametrize("relation", RELATIONS)
def test_driver_killed_and_checkpoint_deleted(unique: Callable[[str], str], tmp_path: Path, relation: str) -> None:
    """SIGKILL hits the driver at random moments, and the whole checkpoint is lost."""
    query, row_key = RELATIONS[relation]
    losses: dict[str, Callable[[JoinPipeline], None]] = {
        "kill": lambda made: survives_kills(made, 2, seed=37),
        "loss": lambda made: survives_a_lost_checkpoint(made, seed=41),
    }
    for loss, survive in losses.items():
        folder = tmp_path / loss
        folder.mkdir()
        made = JoinPipeline(unique("relation"), folder, query=query, row_key=row_key)
        try:
            survive(made)
        finally:
            made.close()
