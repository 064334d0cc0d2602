"""Spark sessions: a JVM that ends first, and a JVM that starts in half the time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from joins.engine.file_classes import forget_older
from joins.engine.spark_session import SPARK

SCRIPT = """
import sys
from pathlib import Path
from py4j.protocol import Py4JError
from joins.engine.spark_session import close_session, jvm_exit_code, open_session

spark = open_session("memory", partitions=1, scratch=Path(sys.argv[1]))
assert jvm_exit_code(spark) is None
try:
    print("has", spark._jvm.java.nio.ByteBuffer.allocate(2_000_000_000))
except (Py4JError, OSError) as error:
    print("failed:", type(error).__name__)
print("exit code", jvm_exit_code(spark, settling=30))
close_session(spark)
print("closed")
"""


@pytest.mark.long
def test_without_memory_the_jvm_ends_and_its_session_can_be_closed(tmp_path: Path) -> None:
    """Otherwise only the thread without memory would end, and threads that wait for it would wait forever."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["exit code 3", "closed"], done.stdout + done.stderr
    assert "java.lang.OutOfMemoryError" in done.stdout


STANDING = """
import os
import signal
import sys
from pathlib import Path
from joins.engine.spark_session import close_session, jvm_exit_code, open_session

spark = open_session("stands", partitions=1, scratch=Path(sys.argv[1]))
process = spark.sparkContext._gateway.proc
os.kill(process.pid, signal.SIGSTOP)
close_session(spark, settling=1.0)
print("exit code", process.wait(30))
again = open_session("again", partitions=1, scratch=Path(sys.argv[1]))
print(again.range(7).count())
close_session(again)
print("exit code", jvm_exit_code(again))
"""


@pytest.mark.long
def test_a_session_that_does_not_stop_is_killed(tmp_path: Path) -> None:
    """A join ends in time whatever Spark waits for; the killed JVM does not disturb the next session."""
    command = [sys.executable, "-c", STANDING, str(tmp_path / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["exit code -9", "7", "exit code None"], done.stdout + done.stderr


CTRL_C = """
import os
import signal
import sys
from pathlib import Path
from joins.engine.spark_session import close_session, open_session

signal.signal(signal.SIGINT, lambda *_: print("heard", flush=True))
spark = open_session("signals", partitions=1, scratch=Path(sys.argv[1]))
os.killpg(0, signal.SIGINT)
print(spark.range(7).count())
close_session(spark)
"""


@pytest.mark.long
def test_ctrl_c_is_left_to_whoever_opened_the_session(tmp_path: Path) -> None:
    """pyspark's own handler would raise at any point, with a stack trace of dozens of lines."""
    command = [sys.executable, "-c", CTRL_C, str(tmp_path / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False, start_new_session=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "heard\n7\n", "")


WORKERS = """
import sys
from pathlib import Path
from joins.engine.spark_session import close_session, open_session

def found(_):
    import pyspark
    return pyspark.__file__

spark = open_session("workers", partitions=1, scratch=Path(sys.argv[1]))
print(*spark.sparkContext.parallelize([0], 1).map(found).collect())
close_session(spark)
"""


@pytest.mark.long
def test_workers_have_the_installed_pyspark(tmp_path: Path) -> None:
    """Spark's zip would take five times as long."""
    command = [sys.executable, "-c", WORKERS, str(tmp_path / "scratch")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(SPARK / "__init__.py")]


CLASSES = """
import sys
from pathlib import Path
from joins.engine.spark_session import close_session, open_session

option = f"-Xlog:class+load:file={sys.argv[2]}"
spark = open_session("classes", partitions=1, scratch=Path(sys.argv[1]), jvm=option)
spark.range(1).count()
close_session(spark)
"""


@pytest.mark.long
@pytest.mark.timeout(600)
def test_classes_come_from_the_archive(tmp_path: Path) -> None:
    """Classes of Spark, the connector and the kernel are in the archive that `make classes` creates."""
    loaded = tmp_path / "loaded.log"
    subprocess.run([sys.executable, "-m", "joins.engine.spark_archive"], check=True, timeout=400)
    subprocess.run([sys.executable, "-c", CLASSES, str(tmp_path / "scratch"), str(loaded)], check=True, timeout=200)
    lines = [line.split("] ")[-1] for line in loaded.read_text().splitlines()]
    sources = dict(line.split(" source: ") for line in lines if " source: " in line)
    assert sources["org.apache.spark.SparkContext"] == "shared objects file (top)"
    assert sources["tailorbird.kernel.LocalFiles"] == "shared objects file (top)"


def test_few_archives_are_kept(tmp_path: Path) -> None:
    """Archives are large, and most belong to deleted checkouts."""
    for number in range(6):
        file = tmp_path / f"{number}.jsa"
        file.touch()
        os.utime(file, (number, number))
    forget_older(tmp_path / "5.jsa")
    assert sorted(file.stem for file in tmp_path.iterdir()) == ["2", "3", "4", "5"]
