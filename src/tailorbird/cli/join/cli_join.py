"""`tailorbird join`: keep joined tables."""

from __future__ import annotations

from typing import Annotated

import typer


def join(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[
        list[str] | None, typer.Option("--table", help="Which table; again for more. Left out: all of them.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Forget the state, read the log from its beginning, replace every row.")
    ] = False,
    metrics_port: Annotated[
        list[int] | None,
        typer.Option("--metrics-port", help="Serve /metrics and /health here on 127.0.0.1, a port for each table."),
    ] = None,
) -> None:
    """Keep joined tables in HBase equal to their queries; run `tailorbird apply` first.

    Runs until SIGTERM or Ctrl-C. However it ends, the next start goes on from the checkpoints. Several tables share one
    Spark application; no two processes may have the same table.

    Example: tailorbird join topologies/shop.yml --table orders_wide
    """
    # imported here: Spark and HBase's client cost a second, which `--help` should not
    from cdc.model.extras import extras_named

    with extras_named("joins"):
        from joins.run_join import run

        run(file, table or [], rebuild=rebuild, ports=metrics_port or [])
