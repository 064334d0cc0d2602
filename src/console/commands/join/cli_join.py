"""`tailorbird join`: keep one joined table."""

from __future__ import annotations

from typing import Annotated

import typer


def join(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[
        str | None, typer.Option("--table", help="Which table; may be left out when there is one only.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Forget the state, read the log from its beginning, replace every row.")
    ] = False,
    metrics_port: Annotated[
        int, typer.Option("--metrics-port", help="Serve /metrics and /health here on 127.0.0.1; 0: nowhere.")
    ] = 0,
) -> None:
    """Keep one joined table in HBase equal to its SELECT over the sources; `tailorbird apply` comes first.

    Runs until SIGTERM or Ctrl-C. However it ends, the next start goes on from its checkpoint. One process per table.

    Example: tailorbird join topologies/shop.yml --table orders_wide
    """
    # imported here: Spark and HBase's client cost a second, which `--help` should not
    from cdc.words.extras import extras_named

    with extras_named("joins"):
        from joins.run import run

        run(file, table, rebuild=rebuild, metrics_port=metrics_port)
