"""Prepare the JVM's surroundings: a Java, an environment, a folder, and a file for its output."""

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

# the start of every line of our log; it may occur within a line of the JVM, which writes some lines piecewise
_OURS = re.compile(rb"timestamp=\d{4}-\d\d-\d\dT")


def prepare_environment(spark_home: Path) -> None:
    """Point Spark to this process's pyspark and Python, and to a Java; UsageError if there is none."""
    os.environ["SPARK_HOME"] = str(spark_home)
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    find_java()


def find_java() -> None:
    """Make a Java available to Spark: the installed or the downloaded one; UsageError if there is none."""
    if "JAVA_HOME" not in os.environ and shutil.which("java") is None:
        java = runtime_folder(cache_folder(os.environ))
        if not (java / "bin" / "java").exists():
            raise UsageError("no Java found", "install Java 17 or newer, or run `tailorbird stack fetch`")
        os.environ["JAVA_HOME"] = str(java)


def empty_folder(folder: Path) -> None:
    """Create a folder, or empty it, as a killed run leaves its files there."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def exit_code(process: subprocess.Popen[bytes], settling: float) -> int | None:
    """Return a process's exit code, negative for a signal; None if it still runs after `settling` seconds."""
    try:
        return process.wait(settling)
    except subprocess.TimeoutExpired:
        return None


@contextlib.contextmanager
def apart(file: Path) -> Iterator[None]:
    """Redirect the stderr of children started within to `file`; lines of our own log among it go to our stderr.

    Use it around the start of the JVM, whose Python workers inherit the redirection. The file is overwritten.
    """
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
    """Keep the process's own handler of SIGINT: pyspark sets one that raises at any point."""
    ours = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # pyspark sets its handler only there, too
            signal.signal(signal.SIGINT, ours)


def _pump(reading: int, file: Path) -> None:
    with os.fdopen(reading, "rb") as lines, file.open("wb", buffering=0) as rest:
        for line in lines:
            found = _OURS.search(line)
            at = found.start() if found else len(line)
            rest.write(line[:at])
            if found:
                sys.stderr.buffer.write(line[at:])
                sys.stderr.flush()
