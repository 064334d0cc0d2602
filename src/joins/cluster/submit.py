"""Build the spark-submit command of joins, with all settings that `tailorbird join` makes itself on one machine.

A standalone cluster runs no Python driver, but Java classes. So `cluster` mode submits Spark's own class that runs a
Python driver in `client` mode, too, `PythonRunner`, with files that all workers see.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from cdc.model.errors import UsageError
from cdc.topology.topology import Table, Topology

DeployMode = Literal["client", "cluster"]
_ENVIRONMENT = "environment"  # the folder that executors unpack `--environment` to
# Options that Tailorbird sets: from the topology, or because a join is only correct with them.
_OURS = {
    "--master": "name it before the `--`: tailorbird submit … --master URL",
    "--name": "the name is the topology's and the table's",
    "--py-files": "Tailorbird's sources are shipped; ship your own packages with --environment FILE.tar.gz",
    "--archives": "ship Python packages with --environment FILE.tar.gz",
    "--class": "a join is not a Java program",
    "--deploy-mode": "name it before the `--`: tailorbird submit … --deploy-mode cluster",
}
_RUNNER = "org.apache.spark.deploy.PythonRunner"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """The files that go to every executor: Tailorbird's sources (`archive`), Kafka's connector and the kernel
    (`jars`).

    `environment`, if given, is a packed Python environment (conda-pack, venv-pack) with the packages that Tailorbird
    needs."""

    archive: Path
    jars: Sequence[Path]
    environment: str | None = None


def submit_command(
    topology: Topology,
    tables: Sequence[Table],
    *,
    master: str,
    main: Path,
    shipped: Shipped,
    settings: Mapping[str, str],
    java: str,
    python: str,
    mode: DeployMode = "client",
    more: Sequence[str] = (),
) -> list[str]:
    """Return the words of the spark-submit command that joins some tables in one application.

    - `settings`: Spark settings that must be known before the driver's JVM starts. `java`: options of that JVM.
    - `python`: the interpreter here and, under the same path, on nodes that receive no environment.
    - `mode`: whether the driver runs here, or on a worker of a standalone cluster. There it needs all files under the
      same paths, and `python` for itself and the executors: the cluster unpacks no environment for a driver.
    - `more`: further options of spark-submit. They come last and therefore win.

    Raises UsageError for an option that is not allowed, and for a cluster without this mode."""
    _check(more)
    _check_mode(mode, master)
    name = f"{topology.name}.{tables[0].name}" if len(tables) == 1 else topology.name
    command = ["spark-submit", "--master", master, "--deploy-mode", mode, "--name", name]
    command += ["--jars", ",".join(map(str, shipped.jars)), "--driver-java-options", java]
    settings = {**settings, "spark.pyspark.driver.python": python, "spark.pyspark.python": python}
    program = [str(main)]
    if mode == "cluster":
        command += ["--files", str(shipped.archive), "--class", _RUNNER]
        settings["spark.submit.pyFiles"] = str(shipped.archive)
        program = [str(shipped.jars[-1]), str(main), str(shipped.archive)]
    else:
        command += ["--py-files", str(shipped.archive)]
        if shipped.environment is not None:
            command += ["--archives", f"{shipped.environment}#{_ENVIRONMENT}"]
            settings["spark.pyspark.python"] = f"./{_ENVIRONMENT}/bin/python"
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    chosen = [word for table in tables for word in ("--table", table.name)]
    return [*command, *more, *program, topology.file, *chosen]


def _check_mode(mode: DeployMode, master: str) -> None:
    if mode == "cluster" and not master.startswith("spark://"):
        raise UsageError(
            f"--deploy-mode cluster is not supported with --master {master}",
            "run `tailorbird submit` without it on a node of the cluster or in a pod (docs/cluster.md)",
        )


def _check(more: Sequence[str]) -> None:
    words = [word.partition("=")[0] for word in more]
    for word in words:
        if word in _OURS:
            raise UsageError(f"{word} cannot be given to spark-submit", _OURS[word])
    if words and not words[0].startswith("-"):
        raise UsageError(
            f"{words[0]!r} is no option of spark-submit", "write: tailorbird submit FILE -- --conf key=value"
        )


def shown(command: Sequence[str]) -> str:
    """Format the command for a shell, with one option per line."""
    lines: list[str] = []
    for word in command:
        starts = word.startswith("--") or not lines or word.endswith(("__main__.py", ".jar"))
        if starts:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
    return " \\\n  ".join(lines)
