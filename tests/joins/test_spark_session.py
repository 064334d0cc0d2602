"""Spark sessions of one process, in turn: what is left to others, a JVM that does not stop, and one without memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from joins.engine.file_classes import forget_older
from joins.engine.spark_session import SPARK

# Three sessions in two JVMs, because a start of one takes ten seconds of CPU.
SCRIPT = """
import os
import signal
import sys
from pathlib import Path
from py4j.protocol import Py4JError
from joins.engine.spark_session import close_session, jvm_exit_code, open_session

def found(_):
    import pyspark
    return pyspark.__file__, os.environ.get("PYTHON_UNIX_DOMAIN_ENABLED")

signal.signal(signal.SIGINT, lambda *_: print("heard"))
scratch, loaded = map(Path, sys.argv[1:])
spark = open_session("first", partitions=1, scratch=scratch, jvm=f"-Xlog:class+load:file={loaded}")
os.killpg(0, signal.SIGINT)
print(spark.range(7).count())
print(*spark.sparkContext.parallelize([0], 1).map(found).first())
print("undisturbed", file=sys.stderr)
process = spark.sparkContext._gateway.proc
os.kill(process.pid, signal.SIGSTOP)
close_session(spark, settling=1.0)
print("exit code", process.wait(30))

again = open_session("again", partitions=1, scratch=scratch)
print(again.range(8).count())
close_session(again)
again = open_session("in the same JVM", partitions=1, scratch=scratch.with_name("other"))
assert again.sparkContext.parallelize([0], 1).map(found).collect()
close_session(again)
print("exit code", jvm_exit_code(again))

spark = open_session("memory", partitions=1, scratch=scratch)
assert jvm_exit_code(spark) is None
try:
    print("has", spark._jvm.java.nio.ByteBuffer.allocate(2_000_000_000))
except (Py4JError, OSError) as error:
    print("failed:", type(error).__name__)
print("exit code", jvm_exit_code(spark, settling=30))
close_session(spark)
print("closed")
"""


class Sessions(NamedTuple):
    """What the script printed, and the classes that the first JVM loaded, each with its source."""

    output: list[str]
    errors: str
    classes: dict[str, str]


@pytest.fixture(scope="module")
def sessions(tmp_path_factory: pytest.TempPathFactory) -> Sessions:
    """Run the script in a process group of its own, with the archive that `make classes` creates."""
    folder = tmp_path_factory.mktemp("sessions")
    subprocess.run([sys.executable, "-m", "joins.engine.spark_archive"], check=True, timeout=400)
    command = [sys.executable, "-u", "-c", SCRIPT, str(folder / "scratch"), str(folder / "loaded.log")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, start_new_session=True)
    assert done.returncode == 0, done.stdout + done.stderr
    loaded = [line.split("] ")[-1] for line in (folder / "loaded.log").read_text().splitlines()]
    classes = dict(line.split(" source: ") for line in loaded if " source: " in line)
    return Sessions(done.stdout.splitlines(), done.stderr, classes)


@pytest.mark.matrix
@pytest.mark.timeout(900)
def test_classes_come_from_the_archive(sessions: Sessions) -> None:
    """Classes of Spark, the connector and the kernel are in the archive that `make classes` creates."""
    assert sessions.classes["org.apache.spark.SparkContext"].startswith("shared objects file")
    assert sessions.classes["tailorbird.kernel.LocalFiles"].startswith("shared objects file")


@pytest.mark.long
def test_ctrl_c_is_left_to_whoever_opened_the_session(sessions: Sessions) -> None:
    """pyspark's own handler would raise at any point, with a stack trace of dozens of lines."""
    assert sessions.output[:2] == ["heard", "7"]
    assert sessions.errors.startswith("undisturbed\n"), sessions.errors


@pytest.mark.long
def test_workers_have_the_installed_pyspark(sessions: Sessions) -> None:
    """Spark's zip would take five times as long."""
    assert sessions.output[2].split()[0] == str(SPARK / "__init__.py")


@pytest.mark.long
def test_workers_use_unix_sockets(sessions: Sessions) -> None:
    """Over TCP each small batch waits 40 ms."""
    assert sessions.output[2].split()[1] == "True"


@pytest.mark.long
def test_a_session_that_does_not_stop_is_killed(sessions: Sessions) -> None:
    """A join ends in time whatever Spark waits for; the killed JVM does not disturb the next session."""
    assert sessions.output[3:6] == ["exit code -9", "8", "exit code None"], sessions


@pytest.mark.long
def test_without_memory_the_jvm_ends_and_its_session_can_be_closed(sessions: Sessions) -> None:
    """Otherwise only the thread without memory would end, and threads that wait for it would wait forever."""
    assert sessions.output[-2:] == ["exit code 3", "closed"], sessions
    assert "java.lang.OutOfMemoryError" in "".join(sessions.output[6:])


def test_few_archives_are_kept(tmp_path: Path) -> None:
    """Archives are large, and most belong to deleted checkouts."""
    for number in range(6):
        file = tmp_path / f"{number}.{'aot' if number % 2 else 'jsa'}"
        file.touch()
        os.utime(file, (number, number))
    forget_older(tmp_path / "5.aot")
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["2", "3", "4", "5"]
