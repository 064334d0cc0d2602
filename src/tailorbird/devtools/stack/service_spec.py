"""The definition of a server of the local stack, as data: its command, and what must exist before it starts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tailorbird.devtools.stack.settings import ServiceName, StackSettings

SMALL_JVM: Final = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=64m",
    "-Djava.net.preferIPv4Stack=true",
)
# glibc gives every thread its own arena: with a limit of two, the four JVMs together are 200 MB smaller.
JVM_ENVIRON: Final[Mapping[str, str]] = {"MALLOC_ARENA_MAX": "2"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """Tools of this machine: the Java command, the unpacked MySQL, and the folder of libaio (None: installed).

    `unprivileged` is the command prefix for servers that refuse to run as root. It is empty for other users."""

    java: Path
    mysql: Path
    libraries: Path | None
    root: bool
    unprivileged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A command that runs once before a server's first start. It fills the folder `work`, which is then renamed to
    `result`.

    If it is killed, `result` does not exist, and the next `up` runs it again."""

    argv: tuple[str, ...]
    work: Path
    result: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """One server. `files` are written before `argv` starts it in the foreground. It writes the files `log` and
    `out`.

    `leftovers` of a killed server are removed before it starts again. `folders` are created before, `preparation`
    runs once before the first start. `start_seconds` is the time limit of a start."""

    name: ServiceName
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    files: Mapping[Path, str]
    log: Path
    out: Path
    ports: tuple[tuple[str, int], ...]
    folders: tuple[Path, ...] = ()
    leftovers: tuple[Path, ...] = ()
    preparation: Preparation | None = None
    start_seconds: float = 90.0

    @property
    def fingerprint(self) -> str:
        """Return a hash of the command and the files. A running server with another fingerprint has outdated
        settings."""
        text = repr((self.argv, sorted((str(path), body) for path, body in self.files.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def log_files(settings: StackSettings, name: ServiceName) -> tuple[Path, Path]:
    """Return the two files that a service writes: its log, and its standard output (e.g. of a JVM that cannot
    start)."""
    return settings.home / "logs" / f"{name}.log", settings.home / "logs" / f"{name}.out"


def temporary(settings: StackSettings, name: ServiceName) -> Path:
    """Return the folder of a service's temporary files."""
    return settings.home / "tmp" / name


def own_temporary(settings: StackSettings, name: ServiceName) -> str:
    """Return the JVM flag that sets a service's own folder for temporary files.

    In the system's folder servers could collide, and a full disk there would stop them all."""
    return f"-Djava.io.tmpdir={temporary(settings, name)}"
