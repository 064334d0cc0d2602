"""The present version takes over what the version before 0.2 wrote, on real servers and under traffic."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tailorbird.cli.cli_demo_steps import background_traffic
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import Shop
from tests.support.changing_topology import ChangingTopology, settled
from tests.support.earlier_version import MODULE, check_out_earlier_version
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]
RATE = 20.0


def test_every_stage_continues_from_the_state_of_the_earlier_version(
    changing: ChangingTopology, shop: tuple[MySqlShop, Shop], tmp_path: Path
) -> None:
    """The earlier version runs under traffic and stops; the present one continues under the same traffic. It reads no
    table again and keeps each join's state, and all three stages of `verify` are equal.
    """
    servers, generator = shop
    environ = check_out_earlier_version(tmp_path / "earlier")
    with background_traffic(generator, servers, rate=RATE) as changes:
        with changing.run((sys.executable, "-m", MODULE), environ):
            wait_for(lambda: changing.documents() > 900, "the first rows do not come", 900)
            wait_for(lambda: all(run["complete"] for run in _runs(tmp_path).values()), "no join is complete", 900)
            before = changes()
            wait_for(lambda: changes() > before + 200, "there is no traffic", 60)
        runs = _runs(tmp_path)
        assert len(runs) == 2, runs
        before = changes()
        with changing.run():
            wait_for(lambda: changes() > before + 200, "there is no traffic", 60)
            wait_for(lambda: _healthy(changing), "the present version does not start", 900)
            verified = changing.command("verify", "--json")
    with changing.run():
        settled(changing, servers)
        at_rest = changing.command("verify", "--json")
    kept = {table: (run["id"], run["fingerprint"]) for table, run in _runs(tmp_path).items()}
    assert kept == {table: (run["id"], run["fingerprint"]) for table, run in runs.items()}
    for result in (verified, at_rest):
        assert result.returncode == 0, result.stdout + result.stderr
        outcomes = [json.loads(line) for line in result.stdout.splitlines()]
        assert {one["stage"] for one in outcomes} == {"log", "table", "index"}
        assert {one["outcome"] for one in outcomes} == {"equal"}, outcomes


def _runs(home: Path) -> dict[str, dict[str, object]]:
    """Return the stored record of each join's run by the folder of its checkpoint."""
    return {str(file.parent.relative_to(home)): json.loads(file.read_text()) for file in home.rglob("query.json")}


def _healthy(changing: ChangingTopology) -> bool:
    """Return whether `status` reports every process as healthy."""
    return changing.command("status").returncode == 0
