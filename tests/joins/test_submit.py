"""The command that runs a join on a cluster."""

from __future__ import annotations

import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import UsageError
from cdc.topology.reader import read_topology
from joins.cluster.file_archive import unpacked
from joins.cluster.submit import Shipped, shown, submit_command

TEXT = """
name: t
sources:
  shop: {type: mysql, hostname: h, username: u, password: "${SECRET}", database: shop, tables: [a], server_id: 1}
log: {bootstrap_servers: "k:9092"}
hbase: {thrift: "h:9090", zookeeper: "h:2181"}
tables:
  wide: {query: "SELECT a.id FROM shop.a a", row_key: [id]}
  thin: {query: "SELECT a.id FROM shop.a a", row_key: [id]}
"""


def command(
    *more: str, environment: str | None = None, mode: Any = "client", master: str = "spark://m:7077"
) -> list[str]:
    """Return the command for a topology of one table."""
    topology = read_topology(TEXT, file="t.yml", environ={"SECRET": "hunter2"})
    return submit_command(
        topology,
        list(topology.tables.values())[: 2 if mode == "cluster" else 1],
        master=master,
        mode=mode,
        main=Path("/app/joins/__main__.py"),
        shipped=Shipped(archive=Path("/app/tailorbird.zip"), jars=[Path("/app/k.jar")], environment=environment),
        settings={"spark.ui.enabled": "false"},
        java="-Xss4m",
        python="/opt/python",
        more=more,
    )


def test_options_of_spark_pass_and_win() -> None:
    """Options after `--` come last, so that Spark prefers them to ours."""
    words = command("--executor-memory", "4g", "--conf", "spark.ui.enabled=true")
    assert words.index("--executor-memory") > words.index("spark.ui.enabled=false")
    assert words.index("spark.ui.enabled=true") > words.index("spark.ui.enabled=false")
    assert words[-3:] == ["t.yml", "--table", "wide"]


def test_no_secret_is_on_the_command_line() -> None:
    """Passwords stay in the topology's variables, which the driver reads; `ps` and `--print` do not show them."""
    assert "hunter2" not in shown(command())


def test_a_packed_environment_is_sent_and_used() -> None:
    """Executors run the Python that was shipped, the driver its own."""
    words = command(environment="env.tar.gz")
    assert words[words.index("--archives") + 1] == "env.tar.gz#environment"
    assert "spark.pyspark.python=./environment/bin/python" in words
    assert "spark.pyspark.driver.python=/opt/python" in words
    assert "spark.pyspark.python=/opt/python" in command()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--deploy-mode", "cluster"], "--deploy-mode cannot be given"),
        (["--deploy-mode=cluster"], "--deploy-mode cannot be given"),
        (["--master", "yarn"], "--master cannot be given"),
        (["--py-files=x.zip"], "--py-files cannot be given"),
        (["x.py"], "is no option of spark-submit"),
    ],
)
def test_what_can_not_be_given_is_refused(more: list[str], said: str) -> None:
    """The error has the reason and an alternative."""
    with pytest.raises(UsageError, match=said) as refused:
        command(*more)
    assert refused.value.hint


def test_a_standalone_cluster_runs_the_driver() -> None:
    """Spark refuses Python drivers there, so its own class runs ours; all tables are in one application."""
    words = command("--supervise", mode="cluster")
    assert words[words.index("--deploy-mode") + 1] == "cluster"
    assert words[words.index("--class") + 1] == "org.apache.spark.deploy.PythonRunner"
    main = words.index("/app/joins/__main__.py")
    assert words[main - 1 :] == [
        "/app/k.jar", "/app/joins/__main__.py", "/app/tailorbird.zip", "t.yml", "--table", "wide", "--table", "thin",
    ]  # fmt: skip
    assert words[words.index("--name") + 1] == "t"
    assert "spark.submit.pyFiles=/app/tailorbird.zip" in words
    assert "--py-files" not in words
    assert "spark.pyspark.driver.python=/opt/python" in words


@pytest.mark.parametrize("master", ["yarn", "k8s://https://h:6443", "local[2]"])
def test_other_clusters_run_no_driver(master: str) -> None:
    """The error says what to do instead."""
    with pytest.raises(UsageError, match="--deploy-mode cluster is not supported with --master") as refused:
        command(mode="cluster", master=master)
    assert "node of the cluster or in a pod" in refused.value.hint


def test_an_environment_is_unpacked_once(tmp_path: Path) -> None:
    """For a driver in the cluster: into a folder that is named by the content, and complete when it appears."""
    packed = tmp_path / "env.tar.gz"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text("x")
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(tmp_path / "bin", "bin")
    found = unpacked(packed, tmp_path / "submit")
    assert (found / "bin" / "python").read_text() == "x"
    (found / "mark").touch()
    assert (unpacked(packed, tmp_path / "submit") / "mark").exists()
    assert os.listdir(tmp_path / "submit") == [found.name]
    packed.write_bytes(b"no archive")
    with pytest.raises(UsageError, match=r"env\.tar\.gz"):
        unpacked(packed, tmp_path / "submit")
