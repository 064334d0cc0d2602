"""The command that runs a join on a cluster."""

from __future__ import annotations

import os
import random
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from cdc.model.errors import UsageError
from cdc.topology.reader import read_topology
from joins.cluster.file_archive import unpacked, write_archive
from joins.cluster.file_submit import cluster_command
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
    assert found.stat().st_mode & 0o777 == 0o755, "workers of other accounts enter it"


def packed_environment(folder: Path) -> Path:
    """Write a packed environment whose only file is its interpreter."""
    packed = folder / "env.tar.gz"
    (folder / "bin").mkdir()
    (folder / "bin" / "python").write_text(random.Random(1).randbytes(50_000).hex())
    with tarfile.open(packed, "w:gz") as archive:
        archive.add(folder / "bin", "bin")
    return packed


@pytest.mark.parametrize("damage", ["no archive", "truncated", "changed", "short"])
def test_a_damaged_environment_is_refused(tmp_path: Path, damage: str) -> None:
    """The error names the file, and nothing remains."""
    packed = packed_environment(tmp_path)
    content = packed.read_bytes()
    changed = content[:20_000] + b"\xff" * 200 + content[20_200:]
    packed.write_bytes(
        {"no archive": b"no archive", "truncated": content[:30_000], "changed": changed, "short": content[:5]}[damage]
    )
    with pytest.raises(UsageError, match=r"env\.tar\.gz") as refused:
        unpacked(packed, tmp_path / "submit")
    assert "venv-pack" in refused.value.hint
    assert os.listdir(tmp_path / "submit") == []


def test_two_submits_unpack_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second one uses the folder of the first, and leaves none of its own."""
    packed, submit = packed_environment(tmp_path), tmp_path / "submit"
    rename = Path.rename

    def later(self: Path, target: Path) -> Path:
        monkeypatch.setattr(Path, "rename", rename)
        assert unpacked(packed, submit) == target, "the other one is complete"
        return self.rename(target)

    monkeypatch.setattr(Path, "rename", later)
    found = unpacked(packed, submit)
    assert (found / "bin" / "python").stat().st_size == 100_000
    assert os.listdir(submit) == [found.name]


def test_two_submits_write_the_sources_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each writes its own file before it replaces the archive."""
    (tmp_path / "joins").mkdir()
    (tmp_path / "joins" / "a.py").write_text("x")
    target, replace = tmp_path / "submit" / "t.zip", Path.replace

    def later(self: Path, to: Path) -> Path:
        monkeypatch.setattr(Path, "replace", replace)
        write_archive(tmp_path, target)
        return self.replace(to)

    monkeypatch.setattr(Path, "replace", later)
    write_archive(tmp_path, target)
    assert zipfile.ZipFile(target).namelist() == ["joins/a.py"]
    assert os.listdir(target.parent) == ["t.zip"]


def test_a_cluster_unpacks_local_environments_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark could fetch an address for executors, but not for the driver."""
    monkeypatch.setenv("TAILORBIRD_HOME", str(tmp_path))
    topology = read_topology(TEXT, file="t.yml", environ={"SECRET": "hunter2"})
    tables = list(topology.tables.values())
    with pytest.raises(UsageError, match="--deploy-mode cluster needs a local file") as refused:
        cluster_command(topology, tables, master="spark://m:7077", environment="hdfs://n/env.tar.gz", mode="cluster")
    assert "copy it" in refused.value.hint
