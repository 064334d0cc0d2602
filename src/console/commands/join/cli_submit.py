"""`tailorbird submit`: a join on a Spark cluster."""

from __future__ import annotations

import os
from typing import Annotated

import typer


def submit(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[
        str | None, typer.Option("--table", help="Which table; may be left out when there is one.")
    ] = None,
    master: Annotated[str, typer.Option("--master", help="The cluster, as spark-submit takes it.")] = "yarn",
    print_only: Annotated[bool, typer.Option("--print", help="Only show the command.")] = False,
) -> None:
    """Run a join's executors on a Spark cluster, through spark-submit; the driver stays here.

    The checkpoint must lie on a file system that the executors share (TAILORBIRD_HOME), and every node needs the Python
    packages that Tailorbird depends on.

    Example: tailorbird submit topologies/shop.yml --table orders_wide --master spark://host:7077 --print
    """
    from cdc.words.extras import extras_named

    with extras_named("joins"):
        from joins.engine.submit import shown
        from joins.run import cluster_command

        command = cluster_command(file, table, master=master)
    if print_only:
        print(shown(command))
        return
    os.execvp(command[0], command)
