"""The processes of one topology: capture per source, join per table, index per index; started, watched, stopped.

Every child gets SIGTERM when this process dies, however it dies (Linux's PR_SET_PDEATHSIG), so that no second capture
or join is left behind.
"""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import structlog

from cdc.process.file_running import ended
from cdc.topology.topology import Topology
from cdc.words.errors import Fatal, UsageError

_log = structlog.get_logger()
_PR_SET_PDEATHSIG = 1
_USAGE = UsageError.exit_code
_LONGEST_PAUSE = 30.0
_SAME_REASON = 3  # times in a row


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process of a pipeline: its name (`capture shop`), how it starts, where it logs, its metrics port or 0."""

    name: str
    stage: str
    command: tuple[str, ...]
    log: Path
    metrics_port: int


def parts(topology: Topology, *, home: Path, page_port: int = 0) -> list[Part]:
    """Every process that a topology needs, in the order of the flow; its first dashboard too if given a port."""
    found: list[tuple[str, str, tuple[str, ...]]] = []
    for source in topology.sources:
        found.append(("capture", source, ("ingest", topology.file, "--source", source)))
    for table in topology.tables:
        found.append(("join", table, ("joins", topology.file, "--table", table)))
    for index in topology.indexes:
        found.append(("index", index, ("indexer", topology.file, "--index", index)))
    logs = home / "logs" / topology.name
    result = []
    for stage, name, arguments in found:
        port = _free_port()
        command = (sys.executable, "-m", *arguments, "--metrics-port", str(port))
        log = logs / f"{stage}-{name}.log"
        result.append(Part(name=f"{stage} {name}", stage=stage, command=command, log=log, metrics_port=port))
    if page_port and topology.dashboards:
        command = (sys.executable, "-m", "console", "dashboard", topology.file, "--port", str(page_port))
        result.append(Part(name="page", stage="page", command=command, log=logs / "page.log", metrics_port=0))
    return result


class Pipeline:
    """Starts and watches the parts; use as a context manager, which stops what still runs.

    `check` restarts a part that died of a passing fault, after a pause that doubles up to 30 s; a part that says that
    it is used wrongly (exit 2) is not restarted: Fatal. One that ended three times in a row for the same Fatal reason
    stays `down`, with that reason: to start it again repeats what nobody has mended.
    """

    def __init__(
        self, topology: Topology, *, home: Path, page_port: int = 0, environ: dict[str, str] | None = None
    ) -> None:
        self.parts = parts(topology, home=home, page_port=page_port)
        self.down: dict[str, str] = {}
        self._topology, self._home = topology.name, home
        self._ends: dict[str, tuple[str, int]] = {}
        self._seen = {name: end.at_ms for name, end in ended(topology.name, home).items()}
        self.environ = {**os.environ, "TAILORBIRD_HOME": str(home), **(environ or {})}
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._pauses: dict[str, float] = {}
        self._due: dict[str, float] = {}

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, started: Callable[[Part], None] = lambda part: None) -> None:
        """Start every part that does not run."""
        for part in self.parts:
            if not self.alive(part.name):
                self.start_part(part.name)
                started(part)

    def start_part(self, name: str) -> None:
        """Start one part; its output is appended to its log."""
        part = self.part(name)
        part.log.parent.mkdir(parents=True, exist_ok=True)
        with part.log.open("ab") as log:
            self._running[name] = subprocess.Popen(
                part.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=self.environ,
                start_new_session=True,
                preexec_fn=_die_with_parent,
            )

    def part(self, name: str) -> Part:
        """The part of that name; KeyError if there is none."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    def alive(self, name: str) -> bool:
        """Whether a part runs."""
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def kill(self, name: str) -> None:
        """SIGKILL a part and all its children, as a crash would."""
        process = self._running.pop(name)
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def check(self) -> None:
        """Restart what died; call it now and then. Fatal when a part can not run as it is configured."""
        now = time.monotonic()
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is None:
                continue
            if code == _USAGE:
                raise Fatal(f"{name} can not run: {self.last_words(name)}", f"see {self.part(name).log}")
            if name in self.down:
                continue
            if name not in self._due:
                if self._repeats(name):
                    _log.error("part stays down", part=name, said=self.down[name], log=str(self.part(name).log))
                    continue
                pause = self._pauses.get(name, 0.5)
                self._pauses[name] = min(pause * 2, _LONGEST_PAUSE)
                self._due[name] = now + pause
                _log.warning("part ended, to be restarted", part=name, code=code, said=self.last_words(name))
            elif now >= self._due[name]:
                del self._due[name]
                self.start_part(name)

    def _repeats(self, name: str) -> bool:
        """Whether a part that has just ended is one that stays down from now on."""
        end = ended(self._topology, self._home).get(name)
        # one that was killed leaves the error of an earlier end behind
        if end is None or end.kind != Fatal.__name__ or end.at_ms == self._seen.get(name):
            self._ends.pop(name, None)
            return False
        self._seen[name] = end.at_ms
        reason = re.sub(r"\d+", "#", end.said)  # a position in it may have moved on
        before, times = self._ends.get(name, (reason, 0))
        self._ends[name] = reason, (times + 1 if before == reason else 1)
        if self._ends[name][1] >= _SAME_REASON:
            self.down[name] = end.said
        return name in self.down

    def last_words(self, name: str) -> str:
        """The last line of a part's log."""
        try:
            lines = self.part(name).log.read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return lines[-1][:400] if lines else ""

    def stop(self, grace: float = 20.0) -> None:
        """SIGTERM to every part, last stage first; SIGKILL to what still runs after `grace` seconds."""
        for process in reversed(self._running.values()):
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + grace
        for name, process in self._running.items():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _log.warning("part did not stop in time, killed", part=name)
            # a Spark driver's JVM and workers are in its group; none may outlive it
            _signal_group(process, signal.SIGKILL)
            process.wait()
        self._running.clear()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
