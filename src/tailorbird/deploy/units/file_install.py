"""Install and remove the unit of an agent: files below /etc, or below another root for packages and tests."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc.model.errors import UsageError
from tailorbird.deploy.units.units import AGENT, ETC, SYSUSERS, USER, agent_environment, unit_text

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")  # of an instance of a unit
_GATEWAY = re.compile(r"[\w.\[\]:-]+:\d+")
_IDENTITY = ("ca.pem", "cert.pem", "key.pem")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitFile:
    """A file to write. `group`: the user of the processes may read it; otherwise only root may."""

    path: Path
    content: bytes
    mode: int
    group: bool = False


def agent_files(
    name: str, *, gateways: Sequence[str], identity: Path, policy: Path, command: str, metrics_port: int
) -> list[UnitFile]:
    """Return the files of an agent's unit. Raises UsageError for an invalid argument or a file that cannot be read."""
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} cannot name a unit", "use letters, digits, dots, hyphens and underscores")
    if not gateways:
        raise UsageError("no gateway to dial", "pass --gateway HOST:PORT, once per gateway")
    for gateway in gateways:
        if not _GATEWAY.fullmatch(gateway):
            raise UsageError(f"--gateway {gateway}: invalid", "write HOST:PORT")
    if not re.fullmatch(r"/[\w./+-]+", command):
        raise UsageError(f"--command {command}: not an absolute path without spaces", "copy or link `tailorbird` there")
    if (identity / "token").exists():
        remedy = "create a certificate with: tailorbird fleet ca request"
        raise UsageError(f"{identity} contains a token, which units do not support", remedy)
    own = Path(ETC) / "agents" / name
    return [
        UnitFile(path=Path("/etc/sysusers.d/tailorbird.conf"), content=SYSUSERS.encode(), mode=0o644),
        UnitFile(path=_unit_path(), content=unit_text(AGENT, command).encode(), mode=0o644),
        UnitFile(path=own / "agent.env", content=agent_environment(tuple(gateways), metrics_port).encode(), mode=0o644),
        UnitFile(path=own / "policy.yml", content=_read(policy), mode=0o640, group=True),
        *(UnitFile(path=own / one, content=_read(identity / one), mode=0o600) for one in _IDENTITY),
    ]


def write_files(files: Sequence[UnitFile], root: Path) -> None:
    """Write files below `root`, each by a rename. An existing policy is kept: its host's owner edits it.

    Raises UsageError if a folder or file cannot be written."""
    for file in files:
        target = below(root, file.path)
        if file.path.name == "policy.yml" and target.exists():
            continue
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            new = target.with_name(f".{target.name}.new")
            new.unlink(missing_ok=True)
            with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as stream:
                stream.write(file.content)
                os.fchmod(stream.fileno(), file.mode)
            new.replace(target)
        except OSError as error:
            raise UsageError(f"{target}: {error.strerror}", "run it as root, or choose another --prefix") from error


def removed_files(name: str, root: Path) -> list[Path]:
    """Return the paths below `root` that `uninstall` removes: the agent's folder, and the unit with the last agent."""
    own = below(root, Path(ETC) / "agents" / name)
    if not own.is_dir():
        raise UsageError(f"{own}: no such agent", f"installed are: {', '.join(agents(root)) or 'none'}")
    return [own] if agents(root) != [name] else [own, below(root, _unit_path())]


def remove_files(paths: Sequence[Path]) -> None:
    """Remove files and folders. Raises UsageError if one cannot be removed."""
    for path in paths:
        try:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}", "run it as root") from error


def agents(root: Path) -> list[str]:
    """Return the names of the agents that are installed below `root`."""
    return sorted(path.parent.name for path in below(root, Path(ETC) / "agents").glob("*/agent.env"))


def below(root: Path, path: Path) -> Path:
    """Return an absolute path as one below `root`."""
    return root / path.relative_to("/")


def next_steps(name: str) -> list[str]:
    """Return the commands that start an installed agent."""
    return [
        "systemd-sysusers",
        f"chgrp {USER} {ETC}/agents/{name}/policy.yml",
        "systemctl daemon-reload",
        f"systemctl enable --now tailorbird-agent@{name}",
    ]


def _unit_path() -> Path:
    return Path("/etc/systemd/system") / AGENT.name


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "docs/fleet.md shows how to create it") from error
