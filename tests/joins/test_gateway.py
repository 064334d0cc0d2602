"""The start of a local session's JVM: Spark's options, a Java that ends, and the archive that fits a Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cdc.model.errors import UsageError
from joins.engine import proc_gateway
from joins.engine.file_classes import archive_of, created_archive, used_archive
from joins.engine.proc_gateway import MODULE_OPTIONS, answer, spark_folder, spark_log, start_jvm
from joins.engine.proc_jvm import find_java
from joins.process.spark_application import Application
from tests.support.waiting import wait_for

VECTORS = "--add-modules=jdk.incubator.vector"


def test_the_options_are_sparks_without_the_module_of_vectors() -> None:
    """A new version of Spark that needs another option fails here, and not in a join."""
    find_java()
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else "java"
    launcher = ["org.apache.spark.launcher.Main", "org.apache.spark.deploy.SparkSubmit", "pyspark-shell"]
    (jar,) = spark_folder().glob("jars/spark-launcher*.jar")
    libraries = os.pathsep.join([str(jar), *map(str, spark_folder().glob("jars/spark-common-utils*.jar"))])
    environ = {**os.environ, "SPARK_HOME": str(spark_folder()), "SPARK_SCALA_VERSION": "2.13"}
    done = subprocess.run(
        [java, "-cp", libraries, *launcher], env=environ, capture_output=True, text=True, timeout=60, check=True
    )
    words = done.stdout.replace("\n", "\0").split("\0")
    first, last = words.index(MODULE_OPTIONS[0]), words.index(MODULE_OPTIONS[-1])
    theirs = words[first : last + 1]
    assert VECTORS in theirs
    assert tuple(word for word in theirs if word != VECTORS) == MODULE_OPTIONS


def _java(folder: Path, script: str = "exit 3", version: str = "17.0.1") -> Path:
    """Write a Java whose command is a shell script; return its home."""
    (folder / "bin").mkdir(parents=True)
    java = folder / "bin" / "java"
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    (folder / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return folder


def test_a_java_that_ends_at_once_is_a_usage_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the exit code and the path of the log, which has the reason."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "java", "echo too old >&2; exit 3")))
    monkeypatch.setattr(proc_gateway, "jars", list)
    started = start_jvm(tmp_path / "scratch")
    started.process.wait(30)
    with pytest.raises(UsageError, match=r"Java ended with 3 before Spark started.*") as raised:
        answer(started, spark_log(tmp_path / "scratch"))
    assert str(tmp_path / "scratch" / "spark.log") in str(raised.value)
    assert not started.folder.exists()


def test_a_jvm_that_nobody_uses_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A join that fails before its first session leaves no JVM and no folder."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "java", "exec sleep 300")))
    monkeypatch.setattr(proc_gateway, "jars", list)
    started = start_jvm(tmp_path / "scratch")
    assert started.process.poll() is None
    started.end()
    assert started.process.returncode == -9
    assert not started.folder.exists()


def test_pyspark_is_not_imported_before_the_jvm_starts() -> None:
    """The import takes a second, in which the JVM starts."""
    script = "import sys, joins.engine.proc_gateway, joins.process.spark_application; print('pyspark' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("version", "used", "created"),
    [
        ("17.0.1", "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="),
        ("24", "-XX:SharedArchiveFile=", "-XX:ArchiveClassesAtExit="),
        ("25.0.3", "-XX:AOTCache=", "-XX:AOTCacheOutput="),
    ],
)
def test_the_kind_of_archive_fits_java(
    version: str, used: str, created: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From Java 25 the archive also has linked classes and profiles of methods."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "java", version=version)))
    archive = archive_of([], spark_folder())
    assert (used_archive(archive)[0], created_archive(archive)) == (f"{used}{archive}", f"{created}{archive}")


def test_an_application_starts_one_jvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its tables asks for it; and spark-submit has started one already."""
    monkeypatch.setenv("JAVA_HOME", str(_java(tmp_path / "java", "echo . >>starts; exec sleep 300")))
    monkeypatch.setattr(proc_gateway, "jars", list)
    monkeypatch.chdir(tmp_path)
    application = Application("x", scratch=tmp_path / "scratch", together=True)
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    application.start()
    assert not (tmp_path / "scratch").exists()
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT")
    for _ in range(3):
        application.start()
    wait_for((tmp_path / "starts").exists, "no Java was started", 20)
    application.end_unused()
    assert (tmp_path / "starts").read_text() == ".\n"
