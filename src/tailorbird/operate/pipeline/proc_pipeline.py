"""Start, watch and stop the processes of a topology: one per source, one for all joins, one per index.

Every child gets SIGTERM when this process dies for any reason (Linux's PR_SET_PDEATHSIG), so that no second capture or
join remains.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import structlog

from cdc.model.errors import Fatal, UsageError
from cdc.process.file_private import private_folder
from cdc.process.file_running import ended
from cdc.process.restarts import Restarts
from cdc.topology.topology import Topology
from tailorbird.operate.pipeline.tcp_ports import ReservedPorts

_log = structlog.get_logger()
_PR_SET_PDEATHSIG = 1
_USAGE = UsageError.exit_code


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One process of a pipeline: its name (`capture shop`), its command, and its log file.

    `serves` gives the metrics port by name in `tailorbird status`. The process of the joins has one per joined table
    (`join orders_wide`); most other processes have one under their own name."""

    name: str
    stage: str
    command: tuple[str, ...]
    log: Path
    serves: Mapping[str, int]


def parts(topology: Topology, *, home: Path, page_port: int = 0, ports: ReservedPorts | None = None) -> list[Part]:
    """Return the processes that a topology needs, in the order of the data flow. Dashboards need a `page_port`.

    One process runs all checks. A ledger process is added if a check needs it. `ports` reserves their metrics ports;
    without it another program may get one before the process starts."""
    ports = ports or ReservedPorts()
    found: list[tuple[str, tuple[str, ...], tuple[str, ...]]] = []
    captured = [name for name, source in topology.sources.items() if source.agent is None]
    found += [("capture", (name,), ("ingest", topology.file, "--source", name)) for name in captured]
    tables = list(topology.tables)
    shared = [tables] if topology.joins.isolation == "shared" and tables else [[name] for name in tables]
    for names in shared:
        asked = [word for name in names for word in ("--table", name)]
        found.append(("join", tuple(names), ("joins", topology.file, *asked)))
    found += [("index", (name,), ("indexer", topology.file, "--index", name)) for name in topology.indexes]
    result = [_part(stage, names, arguments, home / "logs" / topology.name, ports) for stage, names, arguments in found]
    logs = home / "logs" / topology.name
    proving = ["ledger"] * topology.keeps_ledger + ["checks"] * bool(topology.checks)
    proving += ["notify"] * bool(topology.webhooks)
    for name in proving:
        port = ports.reserve()
        command = (sys.executable, "-m", "tailorbird", name, topology.file, "--metrics-port", str(port))
        result.append(Part(name=name, stage=name, command=command, log=logs / f"{name}.log", serves={name: port}))
    if page_port and topology.pages:
        command = (sys.executable, "-m", "tailorbird", "dashboard", topology.file, "--port", str(page_port))
        serves = {f"dashboard {name}": page_port for name in topology.pages}
        result.append(Part(name="page", stage="page", command=command, log=logs / "page.log", serves=serves))
    return result


def _part(stage: str, names: Sequence[str], arguments: Sequence[str], logs: Path, ports: ReservedPorts) -> Part:
    serves = {f"{stage} {name}": ports.reserve() for name in names}
    words = [word for port in serves.values() for word in ("--metrics-port", str(port))]
    return Part(
        name=f"{stage} {names[0]}" if len(names) == 1 else f"{stage}s",
        stage=stage,
        command=(sys.executable, "-m", *arguments, *words),
        log=logs / (f"{stage}-{names[0]}.log" if len(names) == 1 else f"{stage}s.log"),
        serves=serves,
    )


def _alone(topology: Topology, stage: str, name: str, logs: Path, ports: ReservedPorts) -> Part:
    """Return the process of a single join or index."""
    words = (
        ("joins", topology.file, "--table", name) if stage == "join" else ("indexer", topology.file, "--index", name)
    )
    return _part(stage, [name], words, logs, ports)


class Pipeline:
    """Starts and watches processes (parts). As a context manager it stops them at the end.

    `check` restarts a part that ended with a transient error, after a pause that doubles up to 30 s. A part stays
    `down` if it ended with a usage error (exit code 2), or three times with the same Fatal error. The other parts
    keep running. `captures` replace the capture processes of the topology."""

    def __init__(
        self,
        topology: Topology,
        *,
        home: Path,
        page_port: int = 0,
        environ: dict[str, str] | None = None,
        captures: Sequence[Part] = (),
    ) -> None:
        self._ports = ReservedPorts()
        own = parts(topology, home=home, page_port=page_port, ports=self._ports)
        self.parts = [*captures, *(part for part in own if part.stage != "capture")] if captures else own
        self._topology, self._home, self._shown = topology.name, home, topology.pages
        self._restarts = Restarts()
        self._seen = {name: end.at_ms for name, end in ended(topology.name, home).items()}
        self.environ = {**os.environ, "TAILORBIRD_HOME": str(home), **(environ or {})}
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def down(self) -> dict[str, str]:
        """Return the parts that stay down, each with the reason."""
        return self._restarts.down

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, started: Callable[[Part], None] = lambda part: None) -> None:
        """Start every part that does not run. `started` is called with each."""
        for part in self.parts:
            if not self.alive(part.name):
                self.start_part(part.name)
                started(part)

    def start_part(self, name: str) -> None:
        """Start one part. Its output is appended to its log."""
        part = self.part(name)
        private_folder(part.log.parent)
        self._restarts.began(name, time.monotonic())
        self.down.pop(name, None)
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

    def follow(self, topology: Topology, started: Callable[[Part], None] = lambda part: None) -> None:
        """Start the joins and indexes that a changed topology adds, and stop those that it removes.

        A process of several joins is restarted if some of its tables are removed, and so is the dashboard if the
        indexes change. Captures and checks stay as they are."""
        shown, self._shown = self._shown, topology.pages
        for part in self.parts:
            if part.stage == "page" and shown != topology.pages:
                self._end(part.name)
        wanted = {part.name: part for part in parts(topology, home=self._home) if part.stage in ("join", "index")}
        needed = {name: part for part in wanted.values() for name in part.serves}
        for part in [part for part in self.parts if part.stage in ("join", "index")]:
            left = {name: port for name, port in part.serves.items() if name in needed}
            if len(left) < len(part.serves):
                self._end(part.name)
                self.parts.remove(part)
        known = {name for part in self.parts for name in part.serves}
        for stage in ("join", "index"):
            new = [name.partition(" ")[2] for name, part in needed.items() if part.stage == stage and name not in known]
            for name in new:
                self.parts.append(_alone(topology, stage, name, self._home / "logs" / topology.name, self._ports))
        for part in self.parts:
            if not self.alive(part.name) and part.name not in self.down and not self._restarts.waits(part.name):
                self.start_part(part.name)
                started(part)

    def _end(self, name: str) -> None:
        """Send SIGTERM to a part, and SIGKILL if it does not end in time."""
        process = self._running.pop(name, None)
        if process is None:
            return
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            _log.warning("part did not stop in time, killed", part=name)
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def part(self, name: str) -> Part:
        """Return the part of that name. Raises KeyError if there is none."""
        for part in self.parts:
            if part.name == name:
                return part
        raise KeyError(name)

    def alive(self, name: str) -> bool:
        """Return whether a part runs."""
        process = self._running.get(name)
        return process is not None and process.poll() is None

    def pid(self, name: str) -> int:
        """Return the process id of a part that was started. Raises KeyError for another."""
        return self._running[name].pid

    def kill(self, name: str) -> None:
        """Send SIGKILL to a part and all its children, like a crash."""
        process = self._running.pop(name)
        _signal_group(process, signal.SIGKILL)
        process.wait()

    def check(self) -> None:
        """Restart parts that ended. The caller runs this periodically."""
        now = time.monotonic()
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is None or name in self.down or self._restarts.waits(name):
                continue
            last_line = self.last_words(name)
            if code == _USAGE:
                self._restarts.stays_down(name, last_line)
            elif self._restarts.ended(name, now, fatal=self._fatal(name)):
                _log.warning("part ended, will be restarted", part=name, code=code, output=last_line)
            if name in self.down:
                _log.error("part stays down", part=name, reason=self.down[name], log=str(self.part(name).log))
        for name in self._restarts.due(now):
            if any(part.name == name for part in self.parts):
                self.start_part(name)

    def must_run(self) -> None:
        """Restart parts that ended. Raises Fatal if a part stays down. For callers that need every part."""
        self.check()
        for name, reason in self.down.items():
            raise Fatal(f"{name} cannot run: {reason}", f"see {self.part(name).log}")

    def _fatal(self, name: str) -> str | None:
        """Return the Fatal error that ended a part, or None. A killed process writes none, and an older one is
        ignored."""
        ends = ended(self._topology, self._home)
        fresh = [end for one in self.part(name).serves if (end := ends.get(one)) and end.at_ms != self._seen.get(one)]
        for end in fresh:
            self._seen[end.part] = end.at_ms
        last = max(fresh, key=lambda end: end.at_ms, default=None)
        return last.message if last is not None and last.kind == Fatal.__name__ else None

    def last_words(self, name: str) -> str:
        """Return the last line of a part's log, up to 400 characters. Empty if the log does not exist or is empty."""
        try:
            lines = self.part(name).log.read_text(errors="replace").strip().splitlines()
        except FileNotFoundError:
            return ""
        return lines[-1][:400] if lines else ""

    def stop(self, grace: float = 20.0) -> None:
        """Stop every part, last stage first: SIGTERM, then SIGKILL for those that run longer than `grace` seconds."""
        for process in reversed(self._running.values()):
            if process.poll() is None:
                process.terminate()
        deadline = time.monotonic() + grace
        for name, process in self._running.items():
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                _log.warning("part did not stop in time, killed", part=name)
            # a Spark driver's JVM and workers are in its group; none may survive it
            _signal_group(process, signal.SIGKILL)
            process.wait()
        self._running.clear()
        self._ports.close()


def _signal_group(process: subprocess.Popen[bytes], number: int) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
