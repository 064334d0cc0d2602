"""SolrCloud instead of a standalone Solr: the same commands, the same index."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest
import requests

from benchmarks.index.load import BarrierWatch, Load, differences
from benchmarks.index.world import World
from tailorbird.devtools.stack.proc_stack import Stack
from tailorbird.provision.solr_cloud import SolrCloudAdmin, admin_of_solr
from tests.integration.solr_servers import SolrServer, cloud

pytestmark = [pytest.mark.integration, pytest.mark.matrix]


@pytest.fixture(scope="module")
def server(stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SolrServer]:
    made = cloud(stack, tmp_path_factory.mktemp("cloud"))

    def answers() -> bool:
        url = f"http://127.0.0.1:{made.port}/solr/admin/collections?action=LIST"
        try:
            return requests.get(url, timeout=5).ok
        except requests.RequestException:
            return False

    try:
        made.start(answers)
        yield made
    finally:
        made.stop()


def reported(*arguments: str) -> str:
    command = [sys.executable, "-m", "tailorbird", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)
    assert done.returncode == 0, (arguments, done.stderr)
    return done.stdout


def test_an_index_in_solr_cloud(server: SolrServer) -> None:
    """Indexed live, rebuilt, rolled back, removed and created again: equal each time, no barrier before its rows."""
    with World(solr=f"{{url: 'http://127.0.0.1:{server.port}/solr'}}") as world:
        admin = admin_of_solr(world.topology.solr)
        assert isinstance(admin, SolrCloudAdmin)
        file = str(world.file)
        process = world.start()
        load = Load(world, keys=1500)
        watch = BarrierWatch(world, load)
        watch.start()

        def equal() -> None:
            for _ in range(3):
                load.write_until_accepted(300)
            world.wait_visible(world.solr(), seconds=120)
            assert differences(world, load) == []

        equal()
        first = admin.identity(world.index.collection)
        assert json.loads(reported("index", "reindex", file, "--json"))["swapped"]
        assert admin.identity(world.index.collection) != first
        equal()
        reported("index", "reindex", file, "--rollback")
        assert admin.identity(world.index.collection) == first
        equal()
        reported("index", "reindex", file, "--finish")
        equal()
        watch.stop()
        assert watch.early == []
        assert watch.looked
        process.terminate()  # if it were killed, it would stay registered until its ZooKeeper session ends
        assert process.wait(60) == 0
        world.processes.remove(process)
        reported("index", "rm", file, "--yes")
        assert not admin.exists(world.index.collection)
        reported("apply", file)
        world.start()
        equal()
