"""One server of the local stack as data: how it is started, what must be there before. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tailorbird.devtools.stack.settings import ServiceName, StackSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the machine offers: the Java command, the unpacked MySQL, and where libaio is (None: in the system).

    `unprivileged` is what goes before the command of a server that refuses root; nothing for other users.
    """

    java: Path
    mysql: Path
    libraries: Path | None
    root: bool
    unprivileged: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """A command to run once before the first start; it fills `work`, which is then renamed to `result`.

    Killed half-way it leaves no `result`, and the next `up` begins it anew.
    """

    argv: tuple[str, ...]
    work: Path
    result: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSpec:
    """One server: `argv` starts it in the foreground, `files` are written before, it writes `log` and `out`.

    `leftovers` of a killed one are removed before it starts again.
    """

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
        """Changes whenever the command line or a file does: a server of another fingerprint runs with old settings."""
        text = repr((self.argv, sorted((str(path), body) for path, body in self.files.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def log_files(settings: StackSettings, name: ServiceName) -> tuple[Path, Path]:
    """Where a service writes: its own log, and what reaches its standard output (a JVM that cannot start, say)."""
    return settings.home / "logs" / f"{name}.log", settings.home / "logs" / f"{name}.out"


def temporary(settings: StackSettings, name: ServiceName) -> Path:
    """The folder of a service's temporary files."""
    return settings.home / "tmp" / name


def own_temporary(settings: StackSettings, name: ServiceName) -> str:
    """A JVM's flag for it: in the system's folder servers would meet, and one that is full would stop them all."""
    return f"-Djava.io.tmpdir={temporary(settings, name)}"
