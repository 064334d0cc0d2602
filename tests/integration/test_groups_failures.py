"""Groups over a join on real servers equal the SELECT although the driver dies and the checkpoint is lost.

No row reports a change that is counted twice or never: only the sums are wrong then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
# every kind of state of a group: sums, an ordered list of values, counts per value, a list
QUERY = """SELECT n.id, n.name, count(*) AS facts, sum(f.price) AS price, min(f.at) AS first, max(f.price) AS most,
             count(DISTINCT r.name) AS names, collect_list(f.id) AS ids
      FROM shop.facts f
      LEFT JOIN shop.near n ON n.id = f.near_id
      LEFT JOIN crm.far r ON r.id = f.far_id
      GROUP BY n.id, n.name"""


@pytest.fixture
def grouped(unique: Callable[[str], str], tmp_path: Path) -> Iterator[JoinPipeline]:
    made = JoinPipeline(unique("groups"), tmp_path, query=QUERY, row_key="id, name")
    yield made
    made.close()


@pytest.mark.chaos
def test_driver_killed_very_often(grouped: JoinPipeline) -> None:
    """Send SIGKILL twenty times, at random moments."""
    survives_kills(grouped, 20, seed=23)


def test_driver_killed(grouped: JoinPipeline) -> None:
    """Send SIGKILL twice, at random moments."""
    survives_kills(grouped, 2, seed=29)


def test_checkpoint_deleted(grouped: JoinPipeline) -> None:
    """The whole checkpoint is lost while the join is down, and all groups vanish for a while: no outdated group
    remains.
    """
    survives_a_lost_checkpoint(grouped, seed=31)
