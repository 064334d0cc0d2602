"""Artefacts are downloaded by Maven, or else by Ivy, completely or not at all. Small scripts replace both tools."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.model.artefacts import bundle_folder
from cdc.model.errors import TailorbirdError
from tailorbird.devtools.stack import proc_fetch
from tailorbird.devtools.stack.proc_fetch import fetch_bundles, spark_connector_jars
from tailorbird.devtools.stack.progress import StackProgress, silent

CONTENT = b"the bytes of a jar"
JAR = "commons-pool2-2.13.1.jar"
# Maven writes into the module's folder, Ivy where its pattern says; both print what they transfer.
MAVEN = f"""
for word; do case $word in */pom.xml) work=${{word%/pom.xml}};; esac; done
mkdir -p $work/spark/lib && cp {{source}} $work/spark/lib/{JAR}
echo "[INFO] Downloaded from somewhere: x/{JAR} (1 kB at 1 kB/s)"
"""
IVY = f"""
for word; do case $word in */lib/*) lib=${{word%/*}};; esac; done
mkdir -p $lib && cp {{source}} $lib/{JAR}
"""
FAIL = "echo '[ERROR] Unknown host'; exit 1"


class Machine:
    """A PATH with the tools that a test lays on it, one published jar, and a cache."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.bin, self.cache, self.source = folder / "bin", folder / "cache", folder / "published"
        self.bin.mkdir()
        self.source.write_bytes(CONTENT)
        for tool in ("sh", "mkdir", "cp", "echo"):
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        monkeypatch.setenv("PATH", str(self.bin))
        files = folder / "files"
        (files / "jars").mkdir(parents=True)
        listed = f"{hashlib.sha256(CONTENT).hexdigest()}  org.apache.commons:commons-pool2:2.13.1\n"
        (files / "jars" / "spark.txt").write_text(listed)
        shutil.copytree(str(proc_fetch._FILES / "poms"), files / "poms")
        shutil.copytree(str(proc_fetch._FILES / "ivy"), files / "ivy")
        monkeypatch.setattr(proc_fetch, "_FILES", files)
        self.java = self.script("java", FAIL)
        self.reported: list[StackProgress] = []

    def script(self, name: str, text: str) -> Path:
        path = self.bin / name
        path.write_text(f"#!/bin/sh\n{text.replace('{source}', str(self.source))}\n")
        path.chmod(0o755)
        return path

    def fetch(self) -> None:
        fetch_bundles(self.cache, self.java, self.reported.append, ["spark"])


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_maven_brings_a_bundle_and_progress_is_counted(machine: Machine) -> None:
    """The folder appears with what the list says, and the bar ends full."""
    machine.script("mvn", MAVEN)
    machine.fetch()
    assert [path.read_bytes() for path in spark_connector_jars(machine.cache)] == [CONTENT]
    counts = [(reported.done, reported.total) for reported in machine.reported if reported.step == "download"]
    assert counts[0] == (0, 1)
    assert counts[-1] == (1, 1)
    # nothing but the bundle and the lock is left
    assert sorted(path.name for path in machine.cache.iterdir()) == ["lock", "spark-4.2.0"]


def test_a_second_fetch_does_nothing(machine: Machine) -> None:
    """`make setup` is quick when all is there: no tool is started."""
    machine.script("mvn", MAVEN)
    machine.fetch()
    machine.script("mvn", FAIL)
    machine.fetch()


def test_ivy_helps_where_maven_is_missing(machine: Machine) -> None:
    """A machine with nothing but Java is enough."""
    machine.script("java", IVY)
    machine.fetch()
    assert [path.name for path in spark_connector_jars(machine.cache)] == [JAR]


def test_ivy_helps_where_maven_fails(machine: Machine) -> None:
    """A home that is not writable, settings for another place: Maven's troubles need not be ours."""
    machine.script("mvn", FAIL)
    machine.script("java", IVY)
    machine.fetch()
    assert [path.name for path in spark_connector_jars(machine.cache)] == [JAR]
    assert any("Unknown host; retrying" in reported.detail for reported in machine.reported)


def test_a_failed_download_leaves_nothing_and_says_what_to_do(machine: Machine) -> None:
    """The next attempt begins from what the tools' own caches keep; no half bundle is ever taken for whole."""
    machine.script("mvn", FAIL)
    with pytest.raises(TailorbirdError, match=r"Unknown host; check the network and run .*stack fetch") as refused:
        machine.fetch()
    assert "\n" not in str(refused.value)
    assert [path.name for path in machine.cache.iterdir()] == ["lock"]
    with pytest.raises(TailorbirdError, match="run `tailorbird stack fetch`"):
        spark_connector_jars(machine.cache)


def test_a_damaged_jar_is_refused(machine: Machine) -> None:
    """A truncated or altered jar must not run, whatever its origin."""
    machine.script("mvn", MAVEN)
    machine.source.write_bytes(CONTENT[:-1])
    with pytest.raises(TailorbirdError, match=f"{JAR} is not the file that was published"):
        machine.fetch()
    assert [path.name for path in machine.cache.iterdir()] == ["lock"]


def test_what_a_killed_fetch_left_is_removed(machine: Machine) -> None:
    """kill -9 half-way: its folder is no bundle, and does not stay for ever."""
    left = machine.cache / "fetch-abc"
    (left / "spark" / "lib").mkdir(parents=True)
    (left / "spark" / "lib" / JAR).write_bytes(b"half")
    machine.script("mvn", MAVEN)
    machine.fetch()
    assert not left.exists()
    assert [path.read_bytes() for path in spark_connector_jars(machine.cache)] == [CONTENT]


def test_fetching_nothing_touches_nothing(tmp_path: Path) -> None:
    """`stack run thrift` in a container finds its bundle in the image."""
    fetch_bundles(tmp_path / "cache", Path("/java"), silent, [])
    assert not (tmp_path / "cache").exists()


def test_a_join_alone_fetches_spark(tmp_path: Path) -> None:
    """`tailorbird stack fetch` needs no client of a server: a host with the extra `joins` alone can use it."""
    absent = ("kazoo", "lz4", "opensearchpy", "pysolr")
    code = (
        f"import sys; sys.modules.update(dict.fromkeys({absent}))\n"
        "from tailorbird.cli.cli_stack import fetch\nfetch(['spark'])"
    )
    bundle_folder(tmp_path, "spark").mkdir(parents=True)
    environ = {**os.environ, "TAILORBIRD_CACHE": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
