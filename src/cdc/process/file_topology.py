"""Files that a process reads at its start: the topology, the versions of its tables, and the ports of the local
stack."""

from __future__ import annotations

import json
import os
from pathlib import Path

from cdc.model.errors import Fatal, UsageError
from cdc.process.file_private import create_private, full_disk_named, private_folder
from cdc.topology.reader import read_topology
from cdc.topology.roles import KafkaRole, as_role
from cdc.topology.topology import Topology
from cdc.topology.versions import Versions, in_versions, load_versions

PORTS = "ports.json"  # in the data folder of a local stack


def load_topology(file: str, role: KafkaRole = "console") -> Topology:
    """Return the topology in `file` with every table in all its running versions (`cdc.topology.versions`).

    Clients of Kafka log in as `role`. Raises the errors of `read_file` and `kept_versions`.
    """
    topology = read_file(file, role)
    versions = kept_versions(topology.name)
    return in_versions(topology, versions)


def load_serving(file: str) -> Topology:
    """Return the topology in `file` with only the version of each table that queries see, for the role `console`.

    Versions that are being built, or kept for a rollback, are left out. Raises the errors of `read_file` and
    `kept_versions`.
    """
    topology = read_file(file, "console")
    versions = kept_versions(topology.name)
    return in_versions(topology, versions, serving_only=True)


def read_file(file: str, role: KafkaRole | None = None) -> Topology:
    """Return the topology that `file` declares; with `role`, with the login of that role in Kafka.

    Raises TopologyError or UsageError (exit 2).

    Its variables are those of the environment, and the ports of the local stack (`local_ports`) as defaults. A path in
    `${file:path}` is relative to the topology; the last newline of that file is dropped.
    """
    try:
        text = Path(file).read_text(encoding="utf-8")
    except FileNotFoundError as error:
        raise UsageError(f"{file}: no such file", "name a topology, e.g. topologies/shop.yml") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: {error}", "name a readable text file in UTF-8") from error

    def content(path: str) -> str:
        return Path(file).parent.joinpath(path).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")

    environ = {**_variables(), **os.environ}
    topology = read_topology(text, file=file, environ=environ, content=content)
    return topology if role is None else as_role(topology, role)


def kept_versions(topology: str) -> Versions:
    """Return the versions of a topology's tables that `keep_versions` stored on this machine; empty if there are none.

    Raises Fatal if the file cannot be read.
    """
    file = _versions_file(topology)
    try:
        return load_versions(json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Versions()
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fatal(f"{file}: {error!r}", "remove it: `tailorbird run` and `apply` write it again") from error


def keep_versions(topology: str, versions: Versions) -> None:
    """Store the versions of a topology's tables in a file, atomically, for all commands on this machine.

    Raises DiskFull."""
    file = _versions_file(topology)
    fresh = file.with_suffix(".new")
    with full_disk_named(file):
        private_folder(file.parent)
        with create_private(fresh) as stream:
            json.dump(versions.to_json(), stream)
        fresh.replace(file)


def _versions_file(topology: str) -> Path:
    return home() / "versions" / f"{topology}.json"


def local_ports(folder: Path) -> dict[str, int]:
    """Return the port of each listener of the stack with this data folder, as written by `tailorbird stack up`; empty
    if none was ever started. Raises UsageError if the file cannot be parsed."""
    file = folder / PORTS
    try:
        ports = json.loads(file.read_text(encoding="utf-8"))
        return {str(name): int(port) for name, port in ports.items()}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UsageError(f"{file}: {error}", "remove it; `tailorbird stack up` writes it again") from error


def _variables() -> dict[str, str]:
    return {f"TAILORBIRD_PORT_{name.upper()}": str(port) for name, port in local_ports(home()).items()}


def home() -> Path:
    """Return the folder of run-time files: `$TAILORBIRD_HOME`, else `.tailorbird` in the working folder."""
    return Path(os.environ.get("TAILORBIRD_HOME") or ".tailorbird").absolute()
