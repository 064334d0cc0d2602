"""Run each capture as a separate process, and measure its memory and CPU time from outside."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.decode.mysql_log import LogPlace
from cdc.model.errors import TailorbirdError

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
_TICK = os.sysconf("SC_CLK_TCK")


def our_command(topology: Path) -> list[str]:
    """Return the command of Tailorbird's capture as it is deployed."""
    return [sys.executable, "-m", "ingest", str(topology), "--source", "bench"]


def stage_costs(topology: Path, place: LogPlace, changes: int) -> dict[str, float]:
    """Run `mysql_stages` in a separate process; return its figures."""
    given = [str(topology), place.file, str(place.position), place.gtids, str(changes)]
    command = [sys.executable, "-m", "benchmarks.capture.mysql_stages", *given]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=_ROOT, check=False)
    if done.returncode:
        raise TailorbirdError(f"cannot time the stages: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    costs: dict[str, float] = json.loads(done.stdout)
    return costs


class WatchedProcess:
    """A running capture; `memory` is the greatest resident size seen, in MB."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path) -> None:
        self.name, self._process, self.log = name, process, log
        self._ended = threading.Event()
        self.memory = 0.0
        self.cpu = 0.0
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    def alive(self) -> None:
        """Raise TailorbirdError with the last line of its log if it has ended."""
        if self._process.poll() is not None:
            words = self.log.read_text(errors="replace").strip().splitlines()
            raise TailorbirdError(f"{self.name} ended: {words[-1] if words else 'no output'}", f"see {self.log}")

    def idle(self, settle: float, seconds: float) -> float:
        """Wait `settle` seconds; return the percentage of a core that the idle process uses in `seconds`."""
        time.sleep(settle)
        before, began = self.used(), time.monotonic()
        time.sleep(seconds)
        self.alive()
        return (self.used() - before) / (time.monotonic() - began) * 100

    def stop(self) -> None:
        """Stop the process with SIGTERM, then SIGKILL; `memory` and `cpu` remain."""
        self._ended.set()
        self._watcher.join()
        if self._process.poll() is None:
            self.cpu = self.used()
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._process.wait()

    def _watch(self) -> None:
        status = Path(f"/proc/{self._process.pid}/status")
        while not self._ended.wait(0.2):
            try:
                for line in status.read_text().splitlines():
                    if line.startswith("VmRSS:"):
                        self.memory = max(self.memory, int(line.split()[1]) / 1024)
            except (FileNotFoundError, ProcessLookupError):
                return

    def used(self) -> float:
        """Return the seconds of processor time so far."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICK


@contextmanager
def running(name: str, command: list[str], log: Path) -> Iterator[WatchedProcess]:
    """Run a process during the block; its output goes to a file."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    watched = WatchedProcess(name, process, log)
    try:
        yield watched
    finally:
        watched.stop()
