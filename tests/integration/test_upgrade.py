"""Processes of version 0.1 and of the present one work together: upgrades and downgrades in any order, in traffic."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import pytest

from tailorbird.cli.change.cli_apply import provision
from tailorbird.cli.cli_demo_fleet import DemoFleet
from tailorbird.cli.cli_demo_steps import background_traffic
from tailorbird.devtools.demo.mysql_demo import MySqlShop
from tailorbird.devtools.demo.shop import Shop
from tailorbird.operate.pipeline.proc_pipeline import Pipeline
from tests.support.changing_topology import ChangingTopology, settled
from tests.support.earlier_version import VERSION_0_1, check_out_earlier_version
from tests.support.versions_mixed import MixedPipeline
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(2400)]
PRESENT: dict[str, str] = {}


@pytest.mark.parametrize(("seed", "fleet"), [(1, False), (2, False), (3, True), (4, True)])
def test_processes_are_upgraded_and_downgraded_one_at_a_time(
    changing: ChangingTopology, shop: tuple[MySqlShop, Shop], tmp_path: Path, seed: int, fleet: bool
) -> None:
    """Version 0.1 runs under traffic. Each process is replaced by the present version, in a random order; then each by
    version 0.1 again, and by the present version, in other orders. At the end `verify` finds no difference in log,
    table and index, and no table was read again.
    """
    servers, generator = shop
    random = Random(seed)
    earlier = check_out_earlier_version(tmp_path / "earlier", VERSION_0_1)
    topology = changing.topology
    list(provision(topology))
    own = DemoFleet(topology, tmp_path) if fleet else None
    with Pipeline(topology, home=tmp_path, captures=own.parts() if own else ()) as pipeline:
        mixed = MixedPipeline(pipeline)
        with background_traffic(generator, servers, rate=20.0) as changes:
            mixed.start(earlier)
            if own:
                own.command()
            wait_for(lambda: changing.documents() > 900, "the first rows do not come", 900)
            for environ in (PRESENT, earlier, PRESENT):
                for name in random.sample(mixed.names, len(mixed.names)):
                    before = changes()
                    mixed.replace(name, environ)
                    wait_for(lambda before=before: changes() > before + 20, "there is no traffic", 60)  # type: ignore[misc]
        settled(changing, servers)
        pipeline.must_run()
        result = changing.command("verify", "--json")
        assert mixed.rows_read_again() == 0
    assert result.returncode == 0, result.stdout + result.stderr
    outcomes = [json.loads(line) for line in result.stdout.splitlines()]
    assert {one["stage"] for one in outcomes} == {"log", "table", "index"}
    assert {one["outcome"] for one in outcomes} == {"equal"}, outcomes
