"""Build the spark-submit command of a table's join, and write the files that it ships to executors."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from cdc.model.errors import UsageError
from cdc.process.file_topology import home
from cdc.topology.topology import Table, Topology
from joins.cluster.file_archive import write_archive
from joins.cluster.submit import Shipped, submit_command
from joins.engine.spark_session import JVM_OPTIONS, STREAMING, jars


def cluster_command(
    topology: Topology, table: Table, *, master: str, environment: str | None = None, more: Sequence[str] = ()
) -> list[str]:
    """Return the words of the spark-submit command. `environment` and `more` are described at `submit_command`.

    Raises UsageError if the packed environment or Spark's jars are missing."""
    if environment is not None and "://" not in environment and not Path(environment).is_file():
        raise UsageError(f"{environment}: no such file", "pack one: venv-pack -o environment.tar.gz (docs/cluster.md)")
    sources = Path(__file__).resolve().parents[2]
    return submit_command(
        topology,
        table,
        master=master,
        main=sources / "joins" / "__main__.py",
        shipped=Shipped(
            archive=write_archive(sources, home() / "submit" / "tailorbird.zip"),
            jars=jars(),
            environment=environment,
        ),
        settings=STREAMING,
        java=JVM_OPTIONS,
        python=sys.executable,
        more=more,
    )
