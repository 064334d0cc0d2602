"""Files on this machine about the processes of a topology: which ones run, and which error ended the last one of a
part.

Every process writes a file when it starts and removes it when it ends. An expected error that ends it goes to a second
file. `status` and `run` read both. A killed process leaves its file; its pid and start time show that it has ended.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from cdc.model.errors import TailorbirdError
from cdc.process.file_private import create_private, private_folder
from cdc.process.file_topology import home
from cdc.process.tcp_metrics_address import address_to_ask, metrics_address


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPart:
    """A process that has announced itself: its part (`capture shop`), its pid, and the port of `/health` (0: none).

    `address` is the port's address, as in a URL. `began_ms` is its start time. `stopped` are the pids, among it and its
    children (a join's JVM), that SIGSTOP has paused. `dead`: it was killed before it could remove its file.
    """

    part: str
    pid: int
    port: int
    began_ms: int
    address: str = "127.0.0.1"
    stopped: tuple[int, ...] = ()
    dead: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class PartEnd:
    """The last expected error that ended a process of a part: its class (`Fatal`, …), its text, and its time."""

    part: str
    kind: str
    message: str
    at_ms: int


@contextmanager
def announced(topology: str, part: str, port: int, address: str | None = None) -> Iterator[None]:
    """Announce this process as a part of a topology while the block runs, and record an expected error that ends it.

    `address`: where a program here reaches the port; None: where metrics are served. If the folder is not writable,
    the process continues and logs a warning, but `status` does not show it.
    """
    folder = folder_of(topology)
    entry = {
        "part": part,
        "pid": os.getpid(),
        "port": port,
        "address": address or address_to_ask(metrics_address(os.environ)),
        "began_ms": _now_ms(),
        "ticks": _stat(os.getpid()).ticks,
    }
    file = folder / f"{_name(part)}.{os.getpid()}.json"
    _forget_dead(topology, part)
    _write(file, entry)
    try:
        yield
    except TailorbirdError as error:
        end = {"part": part, "kind": type(error).__name__, "said": str(error), "at_ms": _now_ms()}
        _write(folder / f"{_name(part)}.end.json", end)
        raise
    finally:
        with suppress(OSError):
            file.unlink(missing_ok=True)


def running(topology: str, at: Path | None = None) -> list[RunningPart]:
    """Return the parts that run here or were killed here, the oldest first; several processes may serve one index."""
    found = []
    for entry in _read(folder_of(topology, at), "*.[0-9]*.json"):
        one = _stat(entry["pid"])
        dead = one.ticks != entry["ticks"] or one.state in "ZX"
        stopped = () if dead else tuple(pid for pid in family(entry["pid"]) if _stat(pid).state in "Tt")
        names = ("part", "pid", "port", "began_ms")
        found.append(
            RunningPart(
                **{name: entry[name] for name in names},
                # processes of the version before do not write it
                address=entry.get("address", "127.0.0.1"),
                stopped=stopped,
                dead=dead,
            )
        )
    return sorted(found, key=lambda one: one.began_ms)


def ticks_of(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot; -1 if no process has this pid.

    A pid is reused after a process ends; pid and start time together identify one process.
    """
    found = _stat(pid)
    return -1 if found.state in "ZX" else found.ticks


def ended(topology: str, at: Path | None = None) -> dict[str, PartEnd]:
    """Return the last expected error of each part that ever ended with one."""
    return {end.part: end for end in map(_end, _read(folder_of(topology, at), "*.end.json"))}


def _end(entry: dict[str, Any]) -> PartEnd:
    return PartEnd(part=entry["part"], kind=entry["kind"], message=entry["said"], at_ms=entry["at_ms"])


def folder_of(topology: str, at: Path | None = None) -> Path:
    """Return the folder of a topology's process files. `at` is the TAILORBIRD_HOME to use; None: that of this
    process."""
    return (at or home()) / "run" / topology


def _forget_dead(topology: str, part: str) -> None:
    """Remove the files that killed processes of a part have left. A new process of the part calls it."""
    for one in running(topology):
        if one.part == part and one.dead:
            (folder_of(topology) / f"{_name(part)}.{one.pid}.json").unlink(missing_ok=True)


def _read(folder: Path, pattern: str) -> list[dict[str, Any]]:
    found = []
    for file in sorted(folder.glob(pattern)):
        with suppress(OSError, ValueError):  # another process may remove its file at this moment
            found.append(json.loads(file.read_text(encoding="utf-8")))
    return found


def _write(file: Path, value: object) -> None:
    fresh = file.with_suffix(".new")
    try:
        private_folder(file.parent)
        with create_private(fresh) as stream:
            json.dump(value, stream)
        fresh.replace(file)
    except OSError as error:
        # imported here: read-only commands, especially `status`, start in two thirds of the time without it
        import structlog

        structlog.get_logger().warning("status does not see this process", folder=str(file.parent), reason=str(error))


def _name(part: str) -> str:
    return re.sub(r"[^\w.-]", "-", part)


class _Stat(NamedTuple):
    """State of a process (one character), and its start time in ticks since boot; -1 if it has ended (`man 5 proc`)."""

    state: str
    ticks: int


def _stat(pid: object) -> _Stat:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return _Stat("X", -1)
    return _Stat(fields[0], int(fields[19]))


def family(pid: object) -> list[int]:
    """Return a process and all its descendants."""
    found = [int(str(pid))]
    for one in found:  # the list grows
        with suppress(OSError):  # it ends in the meantime
            for thread in os.listdir(f"/proc/{one}/task"):
                with suppress(OSError):
                    found += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text().split())
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
