"""Build the spark-submit command of joins, and write the files that it ships to executors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from cdc.model.errors import UsageError
from cdc.process.file_topology import home
from cdc.topology.topology import Table, Topology
from joins.cluster.file_archive import unpacked, write_archive
from joins.cluster.submit import DeployMode, Shipped, submit_command
from joins.engine.proc_gateway import JVM_OPTIONS, jars
from joins.engine.spark_session import STREAMING, TOGETHER


def cluster_command(
    topology: Topology,
    tables: Sequence[Table],
    *,
    master: str,
    environment: str | None = None,
    mode: DeployMode = "client",
    more: Sequence[str] = (),
) -> list[str]:
    """Return the words of the spark-submit command. The parameters are described at `submit_command`.

    With `mode` "cluster", a packed environment is unpacked to TAILORBIRD_HOME, which all nodes see. Raises UsageError
    if Spark's jars or the environment are missing, or if it is not a local file that can be unpacked."""
    if environment is not None and "://" in environment and mode == "cluster":
        where = "copy it to a folder of this machine; all nodes see the copy that is unpacked to TAILORBIRD_HOME"
        raise UsageError(f"{environment}: --deploy-mode cluster needs a local file", where)
    if environment is not None and "://" not in environment and not Path(environment).is_file():
        raise UsageError(f"{environment}: no such file", "pack one: venv-pack -o environment.tar.gz (docs/cluster.md)")
    sources, python = Path(__file__).resolve().parents[2], sys.executable
    if mode == "cluster":
        topology = replace(topology, file=str(Path(topology.file).resolve()))
        if environment is not None:
            python = str(unpacked(Path(environment), home().resolve() / "submit") / "bin" / "python")
    return submit_command(
        topology,
        tables,
        master=master,
        main=sources / "joins" / "__main__.py",
        shipped=Shipped(
            archive=write_archive(sources, home().resolve() / "submit" / "tailorbird.zip"),
            jars=jars(),
            environment=environment,
        ),
        settings=STREAMING if len(tables) == 1 else {**STREAMING, **TOGETHER},
        java=JVM_OPTIONS,
        python=python,
        mode=mode,
        more=more,
    )
