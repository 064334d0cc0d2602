"""What a process is told from outside: its topology file, and the folder for what it keeps while it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cdc.model.errors import Fatal, UsageError
from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from cdc.topology.versions import Versions, in_versions, load_versions

PORTS = "ports.json"  # in the data folder of a local stack


def load_topology(file: str) -> Topology:
    """What runs of the topology in `file`: its tables in all their versions (`cdc.topology.versions`). Errors as of
    `read_file`.
    """
    topology = read_file(file)
    return in_versions(topology, kept_versions(topology.name))


def load_serving(file: str) -> Topology:
    """What queries see of the topology in `file`: no version that is being built, or kept to go back to."""
    topology = read_file(file)
    return in_versions(topology, kept_versions(topology.name), serving_only=True)


def read_file(file: str) -> Topology:
    """The topology as `file` declares it; TopologyError or UsageError (exit 2).

    Its variables are the environment's, and behind them the ports of the local stack (`local_ports`).
    A file of `${file:path}` is looked for beside the topology; its last newline is no part of it.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"{file}: no such file", "name a topology, e.g. topologies/shop.yml") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", "name a readable text file in UTF-8") from error

    def content(path: str) -> str:
        return Path(file).parent.joinpath(path).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")

    return read_topology(text, file=file, environ={**_variables(), **os.environ}, content=content)


def kept_versions(topology: str) -> Versions:
    """The versions of a topology's tables, as this machine heard of them last; none where it never did. Fatal where its
    file can not be read.
    """
    file = _versions_file(topology)
    try:
        return load_versions(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Versions()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fatal(f"{file}: {error!r}", "remove it: `tailorbird run` and `apply` write it anew") from error


def keep_versions(topology: str, versions: Versions) -> None:
    """Have every command of this machine know them, whole or not at all."""
    file = _versions_file(topology)
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(".new")
    fresh.write_text(json.dumps(versions.to_json()), encoding="utf-8")
    fresh.replace(file)


def _versions_file(topology: str) -> Path:
    return home() / "versions" / f"{topology}.json"


def local_ports(folder: Path) -> dict[str, int]:
    """The port of each listener of the stack whose data folder this is, as `tailorbird stack up` has written them; none
    where none has ever been started. UsageError where the file can not be understood.
    """
    file = folder / PORTS
    try:
        reported = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): int(port) for name, port in reported.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: {error}", "`tailorbird stack up` writes it anew; remove it first") from error


def _variables() -> dict[str, str]:
    return {f"TAILORBIRD_PORT_{name.upper()}": str(port) for name, port in local_ports(home()).items()}


def home() -> Path:
    """Folder of run-time files: `$TAILORBIRD_HOME`, else `.tailorbird` here."""
    return Path(os.environ.get("TAILORBIRD_HOME") or ".tailorbird").absolute()
