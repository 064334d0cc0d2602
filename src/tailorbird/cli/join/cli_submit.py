"""`tailorbird submit`: run a join on a Spark cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer


def submit(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[str | None, typer.Option("--table", help="The table. Optional if there is only one.")] = None,
    master: Annotated[str, typer.Option("--master", help="The cluster, in the syntax of spark-submit.")] = "yarn",
    environment: Annotated[
        str | None,
        typer.Option("--environment", metavar="FILE.tar.gz", help="A packed Python environment for the executors."),
    ] = None,
    print_only: Annotated[bool, typer.Option("--print", help="Print the command and exit.")] = False,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="After `--`: more options of spark-submit.")
    ] = None,
) -> None:
    """Run a join's executors on a Spark cluster by spark-submit; the driver runs here.

    The checkpoint (TAILORBIRD_HOME) must be on a file system that the executors share. Every node needs Tailorbird's
    Python dependencies; --environment ships them. The executors check both at the start.

    Example: tailorbird submit topologies/shop.yml --table orders_wide --master yarn -- --num-executors 4
    """
    from cdc.model.extras import extras_named
    from cdc.process.file_topology import load_topology

    with extras_named("joins"):
        from joins.cluster.file_submit import cluster_command
        from joins.cluster.submit import shown
        from joins.engine.proc_jvm import find_java
        from joins.run_join import choose_table

        topology = load_topology(file, "join")
        chosen = choose_table(topology, table)
        command = cluster_command(topology, chosen, master=master, environment=environment, more=more or ())
    if print_only:
        print(shown(command))
        return
    find_java()
    peers = Path(sys.executable).with_name(command[0])
    os.execvp(str(peers) if peers.exists() else command[0], command)
