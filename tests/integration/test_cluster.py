"""A join whose executors run on a real standalone Spark cluster with separate master and worker processes."""

from __future__ import annotations

import random
import sys

import pytest

from joins.cluster.file_submit import cluster_command
from tests.integration.test_join import History, JoinPipeline, joined, oracle
from tests.support.spark_cluster import spark_cluster
from tests.support.waiting import wait_for

__all__ = ["joined"]  # a fixture

pytestmark = [pytest.mark.integration, pytest.mark.kafka("hbase", "thrift"), pytest.mark.timeout(900)]


def submitted(joined: JoinPipeline, master: str, *more: str) -> list[str]:
    """Return the command up to the topology's file, which `Joined.start` adds."""
    command = cluster_command(joined.topology, joined.topology.tables["wide"], master=master, more=more)
    return command[: command.index(str(joined.file))]


@pytest.mark.matrix  # the command, its refusals, the files it ships: tests/joins/test_submit.py
def test_executors_work_and_one_of_them_dies(joined: JoinPipeline) -> None:
    """`tailorbird submit --master spark://…` runs on the workers; one of them killed by SIGKILL loses nothing."""
    history = History(random.Random(21))
    with spark_cluster(joined.folder / "cluster", workers=2) as cluster:
        joined.publish(history.change(300, ids=6))
        joined.start(submitted(joined, cluster.url, "--executor-memory", "600m"))
        settles(joined, history)
        running = cluster.applications()
        assert [(one["name"], one["cores"]) for one in running] == [(f"{joined.name}.wide", 2)], joined.said()
        assert running[0]["memoryperexecutor"] == 600, "the options after `--` did not arrive"

        joined.publish(history.change(100, ids=6))
        cluster.kill_worker()
        joined.publish(history.change(200, ids=6))
        settles(joined, history)


@pytest.mark.matrix
def test_executors_that_can_not_work_are_named(joined: JoinPipeline) -> None:
    """Workers whose Python lacks our packages: one line says which packages are missing where, and the remedy."""
    with spark_cluster(joined.folder / "cluster", workers=1) as cluster:
        bare = f"{sys.base_prefix}/bin/python3"
        joined.publish(History(random.Random(22)).change(10, ids=6))
        process = joined.start(submitted(joined, cluster.url, "--conf", f"spark.pyspark.python={bare}"))
        assert process.wait(240) == 2, joined.said()
    last = joined.said().strip().splitlines()[-1]
    assert "executors lack" in last, joined.said()
    assert "confluent_kafka on " in last
    assert "--environment" in last


def settles(joined: JoinPipeline, history: History) -> None:
    """Wait until exactly the expected rows exist."""
    joined.publish_positions(history)
    wait_for(lambda: joined.barriers_report(history), "the barriers never arrive")
    assert joined.live() == oracle(joined, history)
