"""What a process is told from outside: its topology file, and the folder for what it keeps while it runs."""

from __future__ import annotations

import os
from pathlib import Path

from cdc.topology.reader import read_topology
from cdc.topology.topology import Topology
from cdc.words.errors import UsageError


def load_topology(file: str) -> Topology:
    """The topology in `file`, its variables taken from the environment; TopologyError or UsageError (exit 2)."""
    try:
        text = Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"{file}: no such file", "name a topology, e.g. topologies/shop.yml") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", "name a readable text file in UTF-8") from error
    return read_topology(text, file=file, environ=os.environ)


def home() -> Path:
    """Folder of run-time files: `$TAILORBIRD_HOME`, else `.tailorbird` here."""
    return Path(os.environ.get("TAILORBIRD_HOME") or ".tailorbird").absolute()
