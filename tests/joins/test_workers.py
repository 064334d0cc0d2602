"""Spark's Python workers start from a Python without Spark's zip."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from joins.engine.file_worker_python import worker_python
from joins.engine.spark_session import SPARK


@pytest.fixture
def python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an executable in a folder, and a PYTHONPATH, that a shell would split."""
    folder = tmp_path / "it's $HOME"
    (folder / "lib").mkdir(parents=True)
    monkeypatch.setenv("PYTHONPATH", str(folder / "lib"))
    return worker_python(folder)


def test_workers_find_modules_where_the_driver_does(python: Path, tmp_path: Path) -> None:
    """Spark's own path entries do not matter; arguments, environment and standard input are passed on."""
    with zipfile.ZipFile(tmp_path / "zipped.zip", "w") as archive:
        archive.writestr("pyspark.py", "")
    program = "import os, sys, pyspark; print(pyspark.__file__, sys.argv[1:], os.environ['MORE'], sys.stdin.read())"
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path / 'zipped.zip'}:/elsewhere", "MORE": "a b"}
    command = [str(python), "-c", program, "x y", "*"]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, input="in", timeout=60, check=True)
    assert done.stdout == f"{SPARK / '__init__.py'} ['x y', '*'] a b in\n"
    assert python.stat().st_mode & 0o777 == 0o700


def test_a_worker_is_the_process_that_spark_has_started(python: Path) -> None:
    """Its exit status and its signals are the worker's, and a kill leaves no other process."""
    assert subprocess.run([str(python), "-c", "raise SystemExit(7)"], timeout=60, check=False).returncode == 7
    program = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    for number in (signal.SIGTERM, signal.SIGKILL):
        with subprocess.Popen([str(python), "-c", program], stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert int(process.stdout.readline()) == process.pid
            process.send_signal(number)
            assert process.wait(30) == -number


def test_it_is_this_python_where_no_file_can_be_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # as in a folder mounted noexec
    assert worker_python(tmp_path) == Path(sys.executable)
