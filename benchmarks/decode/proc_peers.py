"""Build the readers in Go and Java with their own package managers, and run each reader as a separate process."""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path

from benchmarks.decode.mysql_log import LogPlace, LogServer
from benchmarks.decode.report import LIBRARIES, Library, Reading
from benchmarks.decode.workload import Shape
from cdc.model.errors import TailorbirdError, UsageError
from tailorbird.devtools.demo.proc_debezium import build_with_maven
from tailorbird.devtools.stack.proc_tools import find_java
from tailorbird.devtools.stack.progress import silent
from tailorbird.devtools.stack.settings import CAPTURE_LOGIN

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent
# Command, its version option (empty: any version is accepted), the oldest accepted version, and its display name.
_JAVA = (("mvn", "", (0,), "Maven"), ("javac", "-version", (17,), "a JDK 17 or newer"))
_NEEDS: dict[Library, tuple[tuple[str, str, tuple[int, ...], str], ...]] = {
    "go-mysql": (("go", "version", (1, 24), "Go 1.24 or newer"),),
    "Debezium": _JAVA,
    "Debezium, larger queue": _JAVA,
}
# Twice Debezium's default batch and queue, and polls without a pause: max.batch.size, max.queue.size, poll.interval.ms.
_LARGER_QUEUE = "4096,16384,10"


def check_tools(libraries: Collection[Library]) -> None:
    """Raise UsageError, before anything starts, if a build tool of a chosen library is missing or too old."""
    missing = [
        f"{meaning} (`{command}`)"
        for library in LIBRARIES
        if library in libraries
        for command, option, oldest, meaning in _NEEDS.get(library, ())
        if _version(command, option) < oldest
    ]
    if missing:
        raise UsageError(
            f"building the peers requires {' and '.join(dict.fromkeys(missing))} in PATH",
            "install them (Debian 13: golang, maven, default-jdk-headless), or choose other peers with --library",
        )


def _version(command: str, option: str) -> tuple[int, ...]:
    """Return the first version number that a command prints; empty, so older than any, if it prints none."""
    if shutil.which(command) is None:
        return ()
    if not option:
        return (0,)
    done = subprocess.run([command, option], capture_output=True, text=True, check=False)
    number = re.search(r"(\d+)((?:\.\d+)*)", done.stdout + done.stderr)
    return tuple(map(int, (number[1] + number[2]).split("."))) if number else ()


def build_readers(cache: Path, libraries: Collection[Library]) -> dict[Library, list[str]]:
    """Return the command of each library's reader; build it in the cache if necessary."""
    build = cache / "bench-decode" / "build"
    build.mkdir(parents=True, exist_ok=True)
    commands: dict[Library, list[str]] = {}
    for library in LIBRARIES:
        if library not in libraries:
            continue
        if library == "go-mysql":
            binary = build / "go-mysql"
            _build(["go", "build", "-C", str(_HERE / "go_mysql"), "-o", str(binary), "."], "go-mysql")
            commands[library] = [str(binary)]
        elif library.startswith("Debezium"):
            folder = build / "debezium"
            build_with_maven(_HERE / "debezium" / "pom.xml", folder)
            java = find_java(cache, os.environ, silent)
            commands[library] = [str(java), "-cp", f"{folder / 'classes'}:{folder / 'lib'}/*", "DecodeBench"]
            if library != "Debezium":
                commands[library] += ["--queue", _LARGER_QUEUE]
        else:
            module = "mysql_read_ours" if library == "tailorbird" else "mysql_read_replication"
            commands[library] = [sys.executable, "-m", f"benchmarks.decode.{module}"]
    return commands


def _build(command: list[str], library: str) -> None:
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
        reason = next((line for line in said if "ERROR" in line), said[-1] if said else "no reason given")
        raise TailorbirdError(f"cannot build {library}: {reason}", "check the network and repeat")


def read_once(
    library: Library, command: list[str], server: LogServer, place: LogPlace, shape: Shape, *, check: bool
) -> Reading:
    """Run one reader over one binlog; raise TailorbirdError with the reader's name if it fails or hangs."""
    arguments = {
        "port": server.port,
        "user": CAPTURE_LOGIN.user,
        "password": CAPTURE_LOGIN.password,
        "file": place.file,
        "position": place.position,
        "gtids": place.gtids,
        "table": shape.table,
        "changes": shape.changes,
    }
    line = [*command, *(part for name, value in arguments.items() for part in (f"--{name}", str(value)))]
    try:
        done = subprocess.run(
            [*line, "--check"] if check else line,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=_ROOT,
            timeout=60 + shape.changes / 500,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise TailorbirdError(f"{library} did not find {shape.changes:,} changes in {error.timeout:.0f} s") from error
    if done.returncode:
        raise TailorbirdError(f"{library} failed on {shape.name}: {(done.stderr.strip().splitlines() or ['?'])[-1]}")
    found = json.loads(done.stdout.splitlines()[-1])
    return Reading(library=library, **found)


def machine() -> str:
    """Return processor, cores, memory and system of this machine in one line."""
    model = re.search(r"model name\s*:\s*(.+)", _text(Path("/proc/cpuinfo")))
    memory = re.search(r"MemTotal:\s*(\d+) kB", _text(Path("/proc/meminfo")))
    system = re.search(r'PRETTY_NAME="(.+)"', _text(Path("/etc/os-release")))
    parts = [
        model[1] if model else platform.machine(),
        f"{os.cpu_count()} cores",
        f"{int(memory[1]) / 2**20:.0f} GiB" if memory else "",
        system[1] if system else platform.system(),
    ]
    return ", ".join(part for part in parts if part)


def runtimes(libraries: Collection[Library]) -> str:
    """Return the versions of the language runtimes that were used."""
    parts = [f"Python {platform.python_version()}"]
    if any(library.startswith("Debezium") for library in libraries):
        reported = subprocess.run(["javac", "-version"], capture_output=True, text=True, check=False)
        parts.append(f"Java {(reported.stdout or reported.stderr).split()[-1]}")
    if "go-mysql" in libraries:
        reported = subprocess.run(["go", "env", "GOVERSION"], capture_output=True, text=True, check=False)
        parts.append(f"Go {reported.stdout.strip().removeprefix('go')}")
    return ", ".join(parts)


def load() -> float:
    """Return the load average of the last minute; figures from a busy machine are not reliable."""
    return os.getloadavg()[0]


def _text(path: Path) -> str:
    return path.read_text() if path.exists() else ""
