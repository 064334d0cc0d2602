"""Sample what the processes of a pipeline and its servers hold: memory, file handles, threads, disk, topics."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka.admin import AdminClient

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
    """Values by series, one per sample, with the minutes at which they were taken."""

    minutes: list[float] = field(default_factory=list)
    series: dict[str, list[float]] = field(default_factory=dict)

    def add(self, minute: float, values: Mapping[str, float]) -> None:
        """Add one sample. A series that begins later has zeros before."""
        for name, value in values.items():
            self.series.setdefault(name, [0.0] * len(self.minutes)).append(value)
        self.minutes.append(minute)


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
    return len(AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=20).topics)


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
