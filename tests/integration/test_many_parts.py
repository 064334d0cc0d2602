"""Many parts: 8 shards of a SolrCloud, 50 regions, 24 partitions."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from benchmarks.index.load import BarrierWatch, Load, differences
from benchmarks.index.region_servers import split_or_merge
from benchmarks.index.world import World
from cdc.model.errors import Fatal
from cdc.model.naming import hbase_table
from tailorbird.devtools.stack.proc_stack import Stack
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix, pytest.mark.timeout(1200)]
SIZES = ("--customers", "300", "--products", "150", "--orders", "1500", "--rate", "30")
TOPOLOGY = Path(__file__).parents[2] / "topologies" / "many-parts.yml"


@pytest.fixture(scope="module")
def cloud(stack: Stack) -> Iterator[str]:
    """The section `solr` of a topology in the stack's SolrCloud, which runs during the tests of this file."""
    stack.up(services=("hbase", "thrift", "kafka", "solrcloud"))
    yield f"{{url: '{stack.addresses()['solrcloud']}'}}"
    stack.stop("solrcloud")


def reported(*arguments: str, code: int = 0) -> str:
    command = [sys.executable, "-m", "tailorbird", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == code, (arguments, done.stderr)
    return done.stdout


def end(demo: subprocess.Popen[bytes]) -> None:
    """End the demo together with the processes that it has started; does nothing if it has ended."""
    demo.send_signal(signal.SIGTERM)
    try:
        demo.wait(120)
    except subprocess.TimeoutExpired:
        demo.kill()
        demo.wait()


def shards(url: str, collection: str) -> int:
    parameters = {"action": "CLUSTERSTATUS", "collection": collection}
    found = requests.get(f"{url}/admin/collections", parameters, timeout=30).json()["cluster"]["collections"]
    [one] = found.values()
    return len(one["shards"])


def test_an_index_grows_from_one_shard_to_eight(cloud: str) -> None:
    """The live feed fills both collections during the reindex; with eight shards, too, no barrier is seen before its
    rows. HBase refuses to split the table, because each region needs its own barrier."""
    with World(solr=cloud) as world:
        url, name, file = world.topology.solr.url, world.index.collection, str(world.file)
        world.start()
        load = Load(world, keys=1500)
        watch = BarrierWatch(world, load)
        watch.start()

        def equal() -> None:
            for _ in range(10):
                load.write_until_accepted(300)
            world.wait_visible(world.solr(), seconds=120)
            assert differences(world, load) == []

        equal()
        assert shards(url, name) == 1
        world.file.write_text(world.file.read_text().replace("shards: 1", "shards: 8"))
        assert json.loads(reported("index", "reindex", file, "--json"))["swapped"]
        assert shards(url, name) == 8
        equal()
        watch.stop()
        assert watch.early == []
        assert watch.looked > 20
        hbase = world.topology.hbase
        with pytest.raises(Fatal, match="split"):
            split_or_merge(hbase.zookeeper, hbase.thrift, hbase_table(world.name, "wide"), random.Random(1), b"\0\1zz")


def test_the_demo_with_many_parts(stack: Stack, cloud: str, tmp_path: Path) -> None:
    """50 regions, 24 partitions, and an index that is rebuilt from one shard to eight during the traffic: no
    difference, and `verify` of all stages agrees."""
    said, file = tmp_path / "stderr", tmp_path / "many-parts.yml"
    text = TOPOLOGY.read_text()
    file.write_text(text.replace("shards: 8", "shards: 1"))
    command = [sys.executable, "-m", "tailorbird", "demo", "--topology", str(file), "--json", "--keep", *SIZES]
    with said.open("wb") as errors:
        demo = subprocess.Popen([*command, "--port", "0"], stdout=subprocess.PIPE, stderr=errors, env=os.environ)
    try:
        wait_for(lambda: "freshness p50" in said.read_text() or demo.poll() is not None, "no traffic", 600)
        assert demo.poll() is None, said.read_text()
        file.write_text(text)
        assert "its collection has 1 shard, the topology 8 shards" in reported("plan", str(file), "--json", code=1)
        assert json.loads(reported("index", "reindex", str(file), "--json"))["swapped"]
        # the log, the table and the index, while the traffic runs
        found = [json.loads(line) for line in reported("verify", str(file), "--json").splitlines()]
        assert {"log", "table", "index"} <= {one.get("stage") for one in found}, found
        assert {one["outcome"] for one in found} == {"equal"}, found
        demo.send_signal(signal.SIGINT)
        output, _ = demo.communicate(timeout=500)
    finally:
        end(demo)
    assert demo.returncode == 0, said.read_text()[-4000:]
    outcome = json.loads(output.splitlines()[-1])
    assert outcome["hbase"] == outcome["solr"] == {"missing": 0, "extra": 0, "different": 0}
    assert outcome["tables"]["orders_wide"]["rows"] > 1000
    assert shards(stack.addresses()["solrcloud"], "many_parts_orders") == 8
