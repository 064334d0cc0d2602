"""What a process is told from outside: its topology file, and the folder for what it keeps while it runs."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from cdc.words.errors import UsageError

PORTS = "ports.json"  # in the data folder of a local stack


def load_topology(file: str) -> Topology:
    """The topology in `file`; TopologyError or UsageError (exit 2).

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


def local_ports(folder: Path) -> dict[str, int]:
    """The port of each listener of the stack whose data folder this is, as `tailorbird stack up` has written them; none
    where none has ever been started. UsageError where the file can not be understood.
    """
    file = folder / PORTS
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): int(port) for name, port in told.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: {error}", "`tailorbird stack up` writes it anew; remove it first") from error


def _variables() -> dict[str, str]:
    return {f"TAILORBIRD_PORT_{name.upper()}": str(port) for name, port in local_ports(home()).items()}


def home() -> Path:
    """Folder of run-time files: `$TAILORBIRD_HOME`, else `.tailorbird` here."""
    return Path(os.environ.get("TAILORBIRD_HOME") or ".tailorbird").absolute()
