"""`tailorbird submit`: a join on a Spark cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def submit(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[
        str | None, typer.Option("--table", help="Which table; may be left out when there is one.")
    ] = None,
    master: Annotated[str, typer.Option("--master", help="The cluster, as spark-submit takes it.")] = "yarn",
    environment: Annotated[
        str | None,
        typer.Option("--environment", metavar="FILE.tar.gz", help="A packed Python environment for the executors."),
    ] = None,
    print_only: Annotated[bool, typer.Option("--print", help="Only show the command.")] = False,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Behind `--`: further options of spark-submit.")
    ] = None,
) -> None:
    """Run a join's executors on a Spark cluster by spark-submit; the driver stays here.

    The checkpoint must lie on a file system that the executors share (TAILORBIRD_HOME), and every node needs the Python
    packages that Tailorbird depends on, or they are shipped: --environment. Both are asked of the executors at start.

    Example: tailorbird submit topologies/shop.yml --table orders_wide --master spark://host:7077 -- --num-executors 4
    """
    from cdc.model.extras import extras_named
    from cdc.process.file_topology import load_topology

    with extras_named("joins"):
        from joins.cluster.file_submit import cluster_command
        from joins.cluster.submit import shown
        from joins.engine.proc_jvm import find_java
        from joins.run_join import choose_table

        topology = load_topology(file)
        chosen = choose_table(topology, table)
        command = cluster_command(topology, chosen, master=master, environment=environment, more=more or ())
    if print_only:
        print(shown(command))
        return
    find_java()
    peers = Path(sys.executable).with_name(command[0])
    os.execvp(str(peers) if peers.exists() else command[0], command)
