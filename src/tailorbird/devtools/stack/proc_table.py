"""Find the processes of a stack through Linux's /proc, because a pid file may be stale.

Every server is started with `TAILORBIRD_SERVICE=<home>|<service>|<fingerprint>` in its environment, which /proc
shows to the same user while the process lives. So a `kill -9` of a server, or of this command, leaves nothing to
clean up."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc.model.errors import TailorbirdError

_MARK = "TAILORBIRD_SERVICE"
_PROC = Path("/proc")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningServer:
    """A running server. `started` (clock ticks since boot) distinguishes it from a later process with the same pid."""

    service: str
    pid: int
    started: int
    fingerprint: str

    @property
    def alive(self) -> bool:
        """Return whether the process still runs, and not a later one with the same pid."""
        return _start_ticks(self.pid) == self.started

    @property
    def rss_mib(self) -> float:
        """Return the resident memory in MiB, or 0 if the process has just ended."""
        try:
            for line in (_PROC / str(self.pid) / "status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    return int(line.split()[1]) / 1024
        except OSError:
            pass
        return 0.0

    @property
    def seconds(self) -> float:
        """Return how many seconds the process has been running."""
        uptime = float((_PROC / "uptime").read_text().split()[0])
        return max(0.0, uptime - self.started / os.sysconf("SC_CLK_TCK"))

    @property
    def leads_session(self) -> bool:
        """Return whether the process leads its own session. Before that, it is not yet the server itself."""
        try:
            return os.getsid(self.pid) == self.pid
        except ProcessLookupError:
            return False

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to this process, unless it has ended."""
        if self.alive:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def wait_gone(self, seconds: float) -> bool:
        """Wait until the process has ended. Return False if it still runs after that time."""
        deadline = time.monotonic() + seconds
        while self.alive:
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True


def running_services(home: Path) -> dict[str, RunningServer]:
    """Return every running server of this data folder, by service."""
    return {running.service: running for running in _marked(f"{home}|")}


def launch(
    service: str, argv: Sequence[str], *, home: Path, fingerprint: str, environ: Mapping[str, str], out: Path
) -> RunningServer:
    """Start a server in its own session, so that it outlives this command and its terminal.

    `environ` is its whole environment; the identifying variable is added. It is re-parented at once (`setsid
    --fork`), so this process need not reap it. Raises TailorbirdError if the server ends immediately."""
    mark = mark_of(service, home, fingerprint)
    with out.open("ab") as sink:
        subprocess.run(
            ["setsid", "--fork", *argv],
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            cwd=home,
            env={**environ, **mark},
            check=True,
        )
    deadline = time.monotonic() + 3.0
    while time.monotonic() < deadline:
        for running in _marked(mark[_MARK]):
            if running.leads_session:
                return running
        time.sleep(0.02)
    raise TailorbirdError(f"{service} ended as soon as it was started", f"read {out}")


def mark_of(service: str, home: Path, fingerprint: str) -> dict[str, str]:
    """Return the environment variable that identifies a server, also for one that runs in the foreground."""
    return {_MARK: f"{home}|{service}|{fingerprint}"}


def holder_of(port: int) -> str:
    """Return the process that listens on a TCP port, as `pid 12 (java)`. Empty if it belongs to another user."""
    inodes = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = (_PROC / "net" / table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            words = line.split()
            if words[3] == "0A" and int(words[1].rpartition(":")[2], 16) == port:
                inodes.add(f"socket:[{words[9]}]")
    for pid in _pids():
        try:
            if any(os.readlink(fd) in inodes for fd in (_PROC / str(pid) / "fd").iterdir()):
                return f"pid {pid} ({(_PROC / str(pid) / 'comm').read_text().strip()})"
        except OSError:
            continue
    return ""


def _pids() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]


def _marked(prefix: str) -> Iterator[RunningServer]:
    wanted = f"{_MARK}={prefix}".encode()
    for pid in _pids():
        try:
            environ = (_PROC / str(pid) / "environ").read_bytes()
        except OSError:
            continue
        for entry in environ.split(b"\0"):
            if entry.startswith(wanted):
                _, service, fingerprint = entry.decode(errors="replace").partition("=")[2].rsplit("|", 2)
                started = _start_ticks(pid)
                if started:
                    yield RunningServer(service=service, pid=pid, started=started, fingerprint=fingerprint)


def _start_ticks(pid: int) -> int:
    """Return the start time of a process in clock ticks, or 0 if it does not exist or is a zombie."""
    try:
        # the second field is the command in brackets, which may contain blanks and brackets
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    # after a kill, a leader is a zombie at once, while its threads (dozens in a JVM) still hold its ports
    ended = fields[0] in "ZX" and int(fields[17]) <= 1
    return 0 if ended else int(fields[19])
