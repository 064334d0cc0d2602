"""The disasters: what is lost, and the steps of docs/disasters.md that restore it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.disasters.world import INDEX, TABLE, VOLUMES, World

Step = Callable[[World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaster:
    """One loss by name, and `restore`, the documented steps after it."""

    name: str
    lost: str
    lose: Step
    restore: Step


def _lose_checkpoints(world: World) -> None:
    world.crash()
    world.lose(folders=("checkpoints",))


def _lose_kafka(world: World) -> None:
    world.lose("kafka", folders=("data/kafka",))


def _lose_solr(world: World) -> None:
    world.lose("solr", folders=("data/solr",))


def _lose_hbase(world: World) -> None:
    world.lose("thrift", "hbase", folders=("data/hbase",))


def _lose_zookeeper(world: World) -> None:
    world.lose("thrift", "hbase", folders=("data/hbase/zookeeper",))


def _lose_all(world: World) -> None:
    world.crash()
    world.lose("thrift", "hbase", "solr", "kafka", folders=("data/hbase", "data/solr", "data/kafka", "checkpoints"))


def _refill(world: World) -> None:
    """Fill the index from its table, after the table is proven right: the former index may have rows that are gone."""
    world.complete("table")
    world.command("verify", str(world.file), "--stage", "table")
    world.command("index", "reindex", str(world.file), "--index", INDEX, "--accept-difference")


def _rebuilt(world: World) -> None:
    world.stop()
    world.up()
    world.command("apply", str(world.file), codes=(0, 1))  # 1: a step is left to the user, the rebuild
    world.run("--rebuild", TABLE)


def _rebuilt_and_reindexed(world: World) -> None:
    _rebuilt(world)
    _refill(world)


def _reindexed(world: World) -> None:
    world.up()
    world.command("apply", str(world.file))
    _refill(world)


def _restarted_and_reindexed(world: World) -> None:
    world.stop()  # ZooKeeper refuses clients that know more of it than it does
    world.up()
    world.command("apply", str(world.file))
    world.run()
    _refill(world)


def _started(world: World) -> None:
    world.up()
    world.run()


def _applied_and_started(world: World) -> None:
    world.up()
    world.command("apply", str(world.file))
    world.run()


_FULL_SECONDS = 40.0


def _full(volume: str) -> Disaster:
    """Return the disaster of a full volume: it is full for a while, then an administrator frees space."""

    def lose(world: World) -> None:
        world.fill_volume(volume)
        time.sleep(_FULL_SECONDS)
        world.free_volume(volume)

    def restore(world: World) -> None:
        if volume == "data/hbase/zookeeper":  # ZooKeeper has ended, and its JVM waits for it: nothing can be stopped
            for service in ("thrift", "hbase"):
                world.stack.kill(service)
        world.up()  # servers that ended
        world.stop()
        if volume == "data/hbase":
            world.restart("thrift", "hbase")  # it may write to a damaged log
            world.command("index", "rm", str(world.file), "--index", INDEX, "--yes")
            world.command("apply", str(world.file))
        if volume == "data/solr":
            world.restart("solr")  # its index writer is closed
        world.run()  # also the processes that stay down

    name = "home" if volume == "." else volume
    return Disaster(name=f"full {name}", lost=f"space on the volume of {name}", lose=lose, restore=restore)


DISASTERS = (
    *(_full(volume) for volume in VOLUMES),
    Disaster(name="checkpoints", lost="the join's checkpoints", lose=_lose_checkpoints, restore=_started),
    Disaster(name="solr", lost="Solr", lose=_lose_solr, restore=_reindexed),
    Disaster(name="kafka", lost="Kafka", lose=_lose_kafka, restore=_rebuilt),
    Disaster(name="hbase", lost="HBase with its ZooKeeper", lose=_lose_hbase, restore=_rebuilt_and_reindexed),
    Disaster(name="zookeeper", lost="ZooKeeper", lose=_lose_zookeeper, restore=_restarted_and_reindexed),
    Disaster(name="all", lost="everything but the databases", lose=_lose_all, restore=_applied_and_started),
)
