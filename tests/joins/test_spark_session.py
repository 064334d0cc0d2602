"""A session whose JVM ends before it does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path
from py4j.protocol import Py4JError
from joins.engine.spark_session import close_session, jvm_exit_code, open_session

spark = open_session("memory", partitions=1, scratch=Path(sys.argv[1]), engine=sys.argv[2])
assert jvm_exit_code(spark) is None
try:
    print("has", spark._jvm.java.nio.ByteBuffer.allocate(2_000_000_000))
except (Py4JError, OSError) as error:
    print("failed:", type(error).__name__)
print("exit code", jvm_exit_code(spark, patience=30))
close_session(spark)
print("closed")
"""


@pytest.mark.parametrize("engine", ["jvm", "python"])
def test_without_memory_the_jvm_ends_and_its_session_can_be_closed(engine: str, tmp_path: Path) -> None:
    """Else the thread that wanted the memory ends alone, and what waits for it waits for ever."""
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "scratch"), engine]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-2:] == ["exit code 3", "closed"], done.stdout + done.stderr
    assert "java.lang.OutOfMemoryError" in done.stdout
