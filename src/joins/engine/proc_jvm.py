"""Prepare the start of Spark's JVM: find Java, set the environment, and redirect its output."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from cdc.model.artefacts import cache_folder, runtime_folder
from cdc.model.errors import UsageError
from cdc.process.file_private import FULL

# the start of every line of our log; it may occur within a line of the JVM, which writes some lines piecewise
_OURS = re.compile(rb"timestamp=\d{4}-\d\d-\d\dT")


def prepare_environment(spark_home: Path) -> None:
    """Set the environment so that Spark uses this process's pyspark and Python, and a Java. Raises UsageError
    without one."""
    os.environ["SPARK_HOME"] = str(spark_home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    # glibc gives threads up to eight arenas per core. RocksDB allocates in all of them, and each keeps what it freed.
    os.environ.setdefault("MALLOC_ARENA_MAX", "2")
    find_java()


def find_java() -> None:
    """Set JAVA_HOME to an installed or downloaded Java. Raises UsageError if there is none."""
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        java = runtime_folder(cache_folder(os.environ))
        if not (java / "bin" / "java").exists():
            raise UsageError("no Java found", "install Java 17 or newer, or run `tailorbird stack fetch`")
        os.environ["JAVA_HOME"] = str(java)


def empty_folder(folder: Path) -> None:
    """Create a folder, or delete its content, which a killed run may have left."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def exit_code(process: subprocess.Popen[bytes], settling: float) -> int | None:
    """Return the exit code of a process, negative for a signal. None if it still runs after `settling` seconds."""
    try:
        return process.wait(settling)
    except subprocess.TimeoutExpired:
        return None


@contextlib.contextmanager
def apart(file: Path) -> Iterator[None]:
    """Context manager: this process, and child processes that start in it, write their stderr to `file`, which is
    overwritten. At the end, only this process's own stderr is restored.

    Use it for the start of the JVM; its Python workers inherit the redirection. Lines of Tailorbird's own log are not
    written to `file` but to this process's stderr."""
    reading, writing = os.pipe()
    ours = os.dup(2)
    threading.Thread(target=_pump, args=(reading, file), daemon=True, name="spark's stderr").start()
    sys.stderr.flush()
    os.dup2(writing, 2)
    try:
        yield
    finally:
        os.dup2(ours, 2)
        os.close(ours)
        os.close(writing)


@contextlib.contextmanager
def ctrl_c_kept() -> Iterator[None]:
    """Context manager that keeps this process's handler of SIGINT. pyspark installs one that may raise anywhere."""
    ours = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # pyspark sets its handler only there, too
            signal.signal(signal.SIGINT, ours)


def _pump(reading: int, file: Path) -> None:
    """Read the pipe to its end. While a disk is full, lines are dropped: a closed pipe would fail workers' tasks."""
    with os.fdopen(reading, "rb") as lines, file.open("wb", buffering=0) as rest:
        for line in lines:
            found = _OURS.search(line)
            at = found.start() if found else len(line)
            try:
                rest.write(line[:at])
                if found:
                    sys.stderr.buffer.write(line[at:])
                    sys.stderr.flush()
            except OSError as error:
                if error.errno not in FULL:
                    raise
