"""The indexer as a replication peer of HBase 2.5."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.index.foreign_load import INDEX as PEOPLE
from benchmarks.index.foreign_load import ForeignLoad
from benchmarks.index.load import BarrierWatch, Load, differences
from benchmarks.index.world import World
from tailorbird.devtools.stack.proc_stack import Stack
from tests.integration.hbase_servers import OtherHBase
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.integration, pytest.mark.matrix]


@pytest.fixture
def hbase(stack: Stack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OtherHBase]:
    made = OtherHBase(stack, tmp_path)
    try:
        made.start()
        monkeypatch.setenv("TAILORBIRD_PORT_ZOOKEEPER", str(made.ports.zookeeper))
        monkeypatch.setenv("TAILORBIRD_PORT_THRIFT", str(made.ports.thrift))
        yield made
    finally:
        made.stop()


@pytest.mark.timeout(900)
def test_an_index_over_hbase_25(hbase: OtherHBase) -> None:
    """Tables, scopes and serial peers are created by RPC; edits of a joined and of a foreign table arrive, also after
    kill -9 of the indexer.
    """
    with World(foreign=True) as world:
        process, people = world.start(), ForeignLoad(world, keys=500)
        world.start("--index", PEOPLE)
        load = Load(world, keys=1000)
        watch = BarrierWatch(world, load)
        watch.start()
        for number in range(6):
            load.write_until_accepted(300, poison=number == 2)
            people.write_until_accepted(200, poison=number == 3)
            if number == 3:
                world.kill(process)
                process = world.start()
        world.wait_visible(world.solr(), seconds=180)
        wait_for(lambda: people.differences() == [], "people differ", seconds=120)
        watch.stop()
        assert differences(world, load) == []
        assert watch.early == []
