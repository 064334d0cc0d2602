"""Spark's Python workers start from a Python without Spark's zip, by a daemon that has loaded what they need."""

from __future__ import annotations

import os
import pickle
import re
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark import cloudpickle

from joins.engine.spark_session import SPARK
from joins.engine.workers.file_python import worker_python
from joins.engine.workers.spark_processor import StepProcessor
from tests.support.waiting import wait_for


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


def test_asking_for_states_imports_nothing_heavy() -> None:
    """Spark asks a separate process per stateful operator, one after the other, and waits ten seconds for each."""
    program = """
import sys, pickle, pyspark.sql.streaming.transform_with_state_driver_worker
before = {*sys.modules}
pickle.loads(sys.stdin.buffer.read())
print(sorted({*sys.modules} - before))
"""
    work = cloudpickle.dumps(StepProcessor(_Work()))  # type: ignore[no-untyped-call]  # as Spark gets it
    done = subprocess.run([sys.executable, "-c", program], input=work, capture_output=True, timeout=60, check=True)
    processor = "joins.engine.workers.spark_processor"
    assert done.stdout.decode().strip() == str(["joins", "joins.engine", "joins.engine.workers", processor])


class _Work:
    """A processor's work, which counts how often it was unpickled."""

    loaded = 0

    def __setstate__(self, state: object) -> None:
        type(self).loaded += 1

    def __getstate__(self) -> object:
        return 1

    def __call__(self, states: Any, rows: Iterator[Any]) -> Iterator[Any]:
        return (f"{states}: {row}" for row in rows)


class _Handle:
    def getMapState(self, name: str, key: str, value: str) -> str:
        return f"{name} {key}, {value}"


def test_work_is_unpickled_when_rows_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, sys))  # importlib's mode registers none
    pickled = pickle.dumps(StepProcessor(_Work()))
    processor: Any = pickle.loads(pickled)
    before = _Work.loaded
    processor.init(_Handle())
    assert _Work.loaded == before
    found = [list(processor.handleInputRows((1,), iter(rows), None)) for rows in ("ab", "c")]
    reported = "states k binary, state binary: "
    assert found == [[reported + "a", reported + "b"], [reported + "c"]]


def test_the_daemon_forks_what_has_loaded_all_and_runs_no_thread() -> None:
    """A lock held by a thread during a fork would stay locked in the new process."""
    program = """
import os, sys
from joins.engine.workers.proc_worker import load
load()
names = ("pandas", "pyarrow", "pyspark.worker", "joins.engine.stage", "joins.stores.kafka_log")
print(*(name in sys.modules for name in names), len(os.listdir("/proc/self/task")))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [*["True"] * 5, "1"]


def test_the_daemon_is_pysparks(python: Path) -> None:
    """It prints only its port; each connection gets a worker; when the daemon ends, no worker remains."""
    environ = {
        **os.environ,
        "PYTHON_UNIX_DOMAIN_ENABLED": "true",
        "PYTHON_WORKER_FACTORY_SOCK_DIR": tempfile.gettempdir(),
    }
    command = [str(python), "-m", "joins.engine.workers.proc_worker", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ) as daemon:
        assert daemon.stdout is not None
        assert daemon.stdin is not None
        (length,) = struct.unpack("!i", daemon.stdout.read(4))
        path = daemon.stdout.read(length).decode()
        with socket.socket(socket.AF_UNIX) as one, socket.socket(socket.AF_UNIX) as other:
            for connection in (one, other):
                connection.settimeout(60)
                connection.connect(path)
                (pid,) = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
                assert Path(f"/proc/{pid}").exists()
                # pyspark's worker sends its number first, and then the daemon's signal ends it
                wait_for(partial(_hears_hangups, pid), f"worker {pid} does not begin")
            daemon.stdin.close()
            assert [one.recv(1), other.recv(1)] == [b"", b""]  # closed, as their workers end
        daemon.wait(60)


def _hears_hangups(pid: int) -> bool:
    """Return whether a process does not ignore SIGHUP."""
    (ignored,) = re.findall(r"^SigIgn:\s*(\w+)$", Path(f"/proc/{pid}/status").read_text(), re.MULTILINE)
    return not int(ignored, 16) & 1 << (signal.SIGHUP - 1)
