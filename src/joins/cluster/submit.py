"""Build the spark-submit command of a join, with all settings that `tailorbird join` makes itself on one machine."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from cdc.model.errors import UsageError
from cdc.topology.topology import Table, Topology

_ENVIRONMENT = "environment"  # the folder that executors unpack `--environment` to
# Options that Tailorbird sets: from the topology, or because a join is only correct with them.
_OURS = {
    "--master": "name it before the `--`: tailorbird submit … --master URL",
    "--name": "the name is the topology's and the table's",
    "--py-files": "Tailorbird's sources are shipped; ship your own packages with --environment FILE.tar.gz",
    "--archives": "ship Python packages with --environment FILE.tar.gz",
    "--class": "a join is not a Java program",
}


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
    table: Table,
    *,
    master: str,
    main: Path,
    shipped: Shipped,
    settings: Mapping[str, str],
    java: str,
    python: str,
    more: Sequence[str] = (),
) -> list[str]:
    """Return the words of the spark-submit command. The driver runs on this machine, executors run anywhere.

    - `settings`: Spark settings that must be known before the driver's JVM starts. `java`: options of that JVM.
    - `python`: the interpreter here and, under the same path, on nodes that receive no environment.
    - `more`: further options of spark-submit. They come last and therefore win.

    Raises UsageError for an option that is not allowed."""
    _check(more)
    command = ["spark-submit", "--master", master, "--deploy-mode", "client", "--name", f"{topology.name}.{table.name}"]
    command += ["--jars", ",".join(map(str, shipped.jars)), "--py-files", str(shipped.archive)]
    command += ["--driver-java-options", java]
    settings = {**settings, "spark.pyspark.driver.python": python, "spark.pyspark.python": python}
    if shipped.environment is not None:
        command += ["--archives", f"{shipped.environment}#{_ENVIRONMENT}"]
        settings["spark.pyspark.python"] = f"./{_ENVIRONMENT}/bin/python"
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    return [*command, *more, str(main), topology.file, "--table", table.name]


def _check(more: Sequence[str]) -> None:
    words = [word.partition("=")[0] for word in more]
    for word in words:
        if word in _OURS:
            raise UsageError(f"{word} cannot be given to spark-submit", _OURS[word])
    if "--deploy-mode" in words and "client" not in more and "--deploy-mode=client" not in more:
        raise UsageError(
            "a join's driver does not run inside the cluster: its topology file, its checkpoint's record and its"
            " metrics are here, and a standalone cluster runs no Python driver",
            "leave --deploy-mode out, and run `tailorbird submit` on a machine of the cluster (docs/cluster.md)",
        )
    if words and not words[0].startswith("-"):
        raise UsageError(
            f"{words[0]!r} is no option of spark-submit", "write: tailorbird submit FILE -- --conf key=value"
        )


def shown(command: Sequence[str]) -> str:
    """Format the command for a shell, with one option per line."""
    lines: list[str] = []
    for word in command:
        starts = word.startswith("--") or not lines or word.endswith("__main__.py")
        if starts:
            lines.append(shlex.quote(word))
        else:
            lines[-1] += " " + shlex.quote(word)
    return " \\\n  ".join(lines)
