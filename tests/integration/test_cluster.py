"""A join whose executors run on a real standalone Spark cluster with separate master and worker processes."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tarfile
from functools import partial
from pathlib import Path

import pytest

from joins.cluster.file_submit import cluster_command
from tailorbird.cli.change.cli_apply import provision
from tests.integration.test_join import ROOT, History, JoinPipeline, joined, oracle
from tests.support.spark_cluster import spark_cluster
from tests.support.waiting import wait_for

__all__ = ["joined"]  # a fixture

pytestmark = [pytest.mark.integration, pytest.mark.kafka("hbase", "thrift"), pytest.mark.timeout(900)]
LEVELS = """
  levels:
    query: |
      SELECT f.id, n.name AS near, r.name AS far FROM shop.facts f
      LEFT JOIN shop.near n ON n.id = f.near_id
      LEFT JOIN crm.far r ON r.id = f.far_id
    row_key: [id]
    state_partitions: 1
"""
WAITS = "spark.standalone.submit.waitAppCompletion=true"  # spark-submit ends with its driver


def submitted(joined: JoinPipeline, master: str, *more: str) -> list[str]:
    """Return the command up to the topology's file, which `Joined.start` adds."""
    command = cluster_command(joined.topology, [joined.topology.tables["wide"]], master=master, more=more)
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


@pytest.mark.matrix
def test_the_driver_of_two_tables_runs_on_a_worker(joined: JoinPipeline) -> None:
    """`submit --all --deploy-mode cluster`: killed by SIGKILL, another submit resumes; both tables are the oracle's.

    Driver and executors run the Python of the packed environment.
    """
    joined.file.write_text(joined.file.read_text() + LEVELS)
    levels = joined.of("levels")
    assert list(provision(levels.topology))
    history = History(random.Random(23))
    command = cluster_command(
        levels.topology, list(levels.topology.tables.values()), mode="cluster", environment=str(packed(joined.folder)),
        master="spark://m:1", more=("--executor-memory", "600m", "--driver-memory", "900m", "--conf", WAITS),
    )  # fmt: skip
    command = command[: command.index(str(joined.file.resolve()))]
    with spark_cluster(joined.folder / "cluster", workers=3) as cluster:
        command[command.index("spark://m:1")] = cluster.url
        joined.publish(history.change(300, ids=6))
        joined.start(command)
        both_settle(joined, levels, history)
        assert [(one["name"], one["cores"]) for one in cluster.applications()] == [(joined.name, 2)]
        assert not children_of(joined.processes[-1].pid), "the driver runs here"
        started = (joined.folder / "started").read_text()
        assert "__main__.py" in started, "the driver has another Python"
        assert "pyspark.daemon" in started, "the executors have another Python"

        joined.publish(history.change(100, ids=6))
        for number in drivers(joined):
            os.kill(number, signal.SIGKILL)
        wait_for(lambda: not cluster.applications(), "the application survives its driver")
        joined.start(command)
        joined.publish(history.change(100, ids=6))
        both_settle(joined, levels, history)
        for number in drivers(joined):
            os.kill(number, signal.SIGKILL)


@pytest.mark.matrix
def test_spark_itself_refuses_a_python_driver_there(joined: JoinPipeline) -> None:
    """That is why `cluster` mode submits `PythonRunner`. If this fails, Spark can do it, and the class can go."""
    with spark_cluster(joined.folder / "cluster", workers=1) as cluster:
        main = str(ROOT / "src" / "joins" / "__main__.py")
        process = joined.start(["spark-submit", "--master", cluster.url, "--deploy-mode", "cluster", main])
        assert process.wait(120) != 0
    assert "Cluster deploy mode is currently not supported for python applications" in joined.said()


def packed(folder: Path) -> Path:
    """Return a packed environment: a Python that notes how it is started. A real one has the packages in it, too."""
    program = folder / "python"
    program.write_text(f'#!/bin/sh\necho "$@" >> {folder}/started\nexec {sys.executable} "$@"\n')
    program.chmod(0o755)
    with tarfile.open(folder / "environment.tar.gz", "w:gz") as archive:
        archive.add(program, "bin/python")
    return folder / "environment.tar.gz"


def drivers(joined: JoinPipeline) -> list[int]:
    """Return the processes of the driver on the worker: its JVM and Python, but not spark-submit."""
    found = subprocess.run(["pgrep", "-f", str(joined.file)], capture_output=True, text=True, check=True)
    numbers = map(int, found.stdout.split())
    return [one for one in numbers if os.getsid(one) not in {process.pid for process in joined.processes}]


def children_of(number: int) -> list[int]:
    """Return the Python processes of a session."""
    found = subprocess.run(["pgrep", "-s", str(number), "python"], capture_output=True, text=True, check=False)
    return [int(one) for one in found.stdout.split()]


def both_settle(joined: JoinPipeline, levels: JoinPipeline, history: History) -> None:
    """Wait until the barriers of both tables cover the history, and compare with the oracle."""
    joined.publish_positions(history)
    for one in (joined, levels):
        wait_for(partial(one.barriers_report, history), f"the barriers never arrive: {output(joined)}", 240)
        assert one.live() == oracle(one, history)


def output(joined: JoinPipeline) -> str:
    """Return the ends of what the drivers wrote on their workers."""
    logs = sorted(joined.folder.glob("cluster/work-*/driver-*/std*"))
    return "\n".join(f"{log}: {log.read_text()[-1500:]}" for log in logs)
