"""Sample what the processes of a pipeline and its servers hold: memory, file handles, threads, heap, disk, topics."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from confluent_kafka.admin import AdminClient

from cdc.model.errors import TailorbirdError

_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Held:
    """What a group of processes holds at one moment: memory (MiB, resident), open files, threads."""

    memory: float = 0.0
    files: int = 0
    threads: int = 0

    def __add__(self, other: Held) -> Held:
        return Held(self.memory + other.memory, self.files + other.files, self.threads + other.threads)


@dataclass(slots=True)
class Samples:
    """Values by series, one per sample, with the minutes at which they were taken.

    A series of a process is named `PROCESS: QUANTITY`; `runs` has the process ids by PROCESS, 0 while there is none.
    """

    minutes: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)
    runs: dict[str, list[int]] = field(default_factory=dict)

    def add(self, minute: float, values: Mapping[str, float], pids: Mapping[str, int]) -> None:
        """Add one sample. A series that begins later has zeros before; one without a value repeats its last one."""
        for name in values:
            self.series.setdefault(name, [0.0] * len(self.minutes))
        for name, known in self.series.items():
            known.append(values.get(name, known[-1] if known else 0.0))
        for process in pids:
            self.runs.setdefault(process, [0] * len(self.minutes))
        for process, run in self.runs.items():
            run.append(pids.get(process, 0))
        self.minutes.append(minute)

    def compared(self, name: str) -> slice:
        """Return the samples of a series that may be compared: all, or those of its process's longest run.

        A process that starts again does not have the memory of the one before, so a leak shows only within a run."""
        pids = self.runs.get(name.split(":")[0])
        if pids is None:
            return slice(0, len(self.minutes))
        ends = [at for at in range(1, len(pids) + 1) if at == len(pids) or pids[at] != pids[at - 1]]
        runs = [slice(begin, end) for begin, end in pairwise((0, *ends)) if pids[begin]]
        return max(runs, key=lambda run: run.stop - run.start)


def held_by(pid: int) -> Held:
    """Return what a process and all its descendants hold. A process that ends in the meantime counts as nothing."""
    return sum((_of(one) for one in (pid, *_descendants(pid))), Held())


def children(pid: int) -> list[int]:
    """Return the processes that a process has started and that still run."""
    done = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True, check=False)
    return [int(one) for one in done.stdout.split()]


def command_of(pid: int) -> str:
    """Return a process's command line; empty if it has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return ""


@dataclass(frozen=True, slots=True)
class Heap:
    """The heap of a JVM (MiB): what it has taken from the system, and what its objects use."""

    committed: float
    used: float


def heap(text: str) -> Heap:
    """Return what `jcmd PID GC.heap_info` prints for the serial collector. Raises ValueError for another text."""
    found = re.findall(r"generation\s+total (\d+)K, used (\d+)K", text)
    if not found:
        raise ValueError(f"no generations in {text[:300]!r}")
    return Heap(sum(int(total) for total, _ in found) / 1024, sum(int(used) for _, used in found) / 1024)


def heap_after_collection(pid: int) -> Heap | None:
    """Collect the garbage of a process's JVM and return its heap; None if no JVM runs below the process.

    Spark removes a batch's broadcast variables only after a collection has found them. So the second collection counts.
    Raises TailorbirdError without `jcmd`, a part of every JDK."""
    jcmd = shutil.which("jcmd")
    if jcmd is None:
        raise TailorbirdError("no command jcmd", "install a JDK; a Java runtime does not have it")
    found = [one for one in _descendants(pid) if Path(command_of(one).split(" ")[0]).name == "java"]
    if not found:
        return None
    text = ""
    for command in ("GC.run", "GC.run", "GC.heap_info"):
        done = subprocess.run([jcmd, str(found[0]), command], capture_output=True, text=True, check=False, timeout=60)
        text = done.stdout
        time.sleep(1.0)
    return heap(text) if "generation" in text else None  # it ends in the meantime


def disk(folder: Path) -> float:
    """Return the size of a folder's files in MiB. Files that disappear in the meantime are left out."""
    total = 0
    for at, _, files in os.walk(folder):
        for name in files:
            try:
                total += os.stat(Path(at) / name).st_blocks * 512
            except FileNotFoundError:
                continue
    return total / 2**20


def topics(bootstrap: str) -> int:
    """Return the number of topics in Kafka."""
    with AdminClient({"bootstrap.servers": bootstrap}) as admin:
        return len(admin.list_topics(timeout=20).topics)


def _descendants(pid: int) -> Iterator[int]:
    for child in children(pid):
        yield child
        yield from _descendants(child)


def _of(pid: int) -> Held:
    folder = Path(f"/proc/{pid}")
    try:
        pages = int((folder / "statm").read_text().split()[1])
        return Held(pages * _PAGE / 2**20, len(list((folder / "fd").iterdir())), len(list((folder / "task").iterdir())))
    except (FileNotFoundError, ProcessLookupError):
        return Held()
