"""The spark-submit command of a join: what a cluster needs that `tailorbird join` does by itself. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from cdc.topology.topology import Table, Topology


def submit_command(
    topology: Topology,
    table: Table,
    *,
    master: str,
    main: Path,
    archive: Path,
    jars: Sequence[Path],
    settings: Mapping[str, str],
) -> list[str]:
    """The command's words. Driver in the client, executors anywhere; every node needs Tailorbird's Python packages.

    `archive` holds our sources and goes to every executor (`--py-files`), as `jars` do: Kafka's connector, the kernel.
    `settings` are those of Spark that must be set before its JVM starts.
    """
    command = ["spark-submit", "--master", master, "--deploy-mode", "client", "--name", f"{topology.name}.{table.name}"]
    command += ["--jars", ",".join(map(str, jars)), "--py-files", str(archive)]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, str(main), topology.file, "--table", table.name]


def shown(command: Sequence[str]) -> str:
    """The command for a shell, an option a line."""
    lines: list[str] = []
    for word in command:
        starts = word.startswith("--") or not lines or word.endswith("__main__.py")
        if starts:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
    return " \\\n  ".join(lines)
