"""With a compromised gateway, nothing outside the agent's policy leaves polled databases, topics of Kafka, MaxScale and
syslog.

The generators are those for MySQL's log; `guarded_kinds` adds the keys of these sources.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.guarded_kinds import KINDS, guarded_source
from tests.hostile.test_hostile_gateway import attack, quiet
from tests.ingest.binlog.binlog_servers import Server
from tests.integration.conftest import servers

pytestmark = [pytest.mark.integration, pytest.mark.kafka, pytest.mark.matrix, pytest.mark.timeout(7200)]
CASES = {"configurations": 1200, "signals": 560, "histories": 240}
PARTS = int(os.environ.get("TAILORBIRD_HOSTILE_PARTS", "1"))  # a larger number tries a part of the cases


@pytest.mark.parametrize("kind", KINDS)
def test_two_thousand_cases_of_each_kind(
    kind: str, mysql80: Server, stack: object, unique: Callable[[str], str], tmp_path: Path
) -> None:
    """Configurations, signals and histories, 10,000 in all."""
    quiet()
    seed = int(os.environ.get("TAILORBIRD_HOSTILE_SEED", "353"))
    with KINDS[kind](mysql80, tmp_path, servers(), unique("hostile")) as opened, guarded_source(opened, tmp_path) as it:
        tried = attack(it, {name: count // PARTS for name, count in CASES.items()}, seed, opened.workers)
        print(kind, it.answered, tried, f"{it.received} bytes received, {it.public} public values, {it.rows} read")
        assert not it.leaks, it.leaks[:3]
        assert it.listener.connections == 0, "an agent connected to an address from the gateway"
        assert it.public > 10, "public values must arrive, or the test proves nothing"
        for name in CASES:
            assert it.answered[name] > 0, f"no session answered to {name}, so they attacked nothing"
        assert it.rows > 10 or kind != "polled", "dumps must run"
