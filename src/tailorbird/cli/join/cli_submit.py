"""`tailorbird submit`: run a join on a Spark cluster."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer


def submit(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[
        list[str] | None, typer.Option("--table", help="A table; repeatable. Optional if there is only one.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All tables, in one Spark application.")] = False,
    master: Annotated[str, typer.Option("--master", help="The cluster, in the syntax of spark-submit.")] = "yarn",
    environment: Annotated[
        str | None,
        typer.Option("--environment", metavar="FILE.tar.gz", help="A packed Python environment for the executors."),
    ] = None,
    mode: Annotated[
        Literal["client", "cluster"],
        typer.Option("--deploy-mode", help="cluster: the driver runs on a worker of a standalone cluster, too."),
    ] = "client",
    print_only: Annotated[bool, typer.Option("--print", help="Print the command and exit.")] = False,
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="After `--`: more options of spark-submit.")
    ] = None,
) -> None:
    """Run joins on a Spark cluster by spark-submit; the driver runs here, or with --deploy-mode cluster there.

    The checkpoint (TAILORBIRD_HOME) must be on a file system that the executors share. Every node needs Tailorbird's
    Python dependencies; --environment ships them. The executors check both at the start.

    Example: tailorbird submit topologies/shop.yml --table orders_wide --master yarn -- --num-executors 4
    """
    from cdc.model.errors import UsageError
    from cdc.model.extras import extras_named
    from cdc.process.file_topology import load_topology

    with extras_named("joins"):
        from joins.cluster.file_submit import cluster_command
        from joins.cluster.submit import shown
        from joins.engine.proc_jvm import find_java
        from joins.run_join import choose_table

        topology = load_topology(file, "join")
        if every and table:
            raise UsageError("--all and --table exclude each other", "leave one of them out")
        named: list[str | None] = [*table] if table else [None]
        chosen = list(topology.tables.values()) if every else [choose_table(topology, one) for one in named]
        command = cluster_command(topology, chosen, master=master, environment=environment, mode=mode, more=more or ())
    if print_only:
        print(shown(command))
        return
    find_java()
    peers = Path(sys.executable).with_name(command[0])
    os.execvp(str(peers) if peers.exists() else command[0], command)
