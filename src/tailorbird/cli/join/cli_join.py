"""`tailorbird join`: maintain joined tables."""

from __future__ import annotations

from typing import Annotated

import typer

from tailorbird.cli.serve.metrics_port import MetricsPorts


def join(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    table: Annotated[
        list[str] | None, typer.Option("--table", help="The table. May be repeated. Default: all.")
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Drop the state, read the log from its beginning, replace every row.")
    ] = False,
    metrics_port: MetricsPorts = None,
) -> None:
    """Keep joined tables in HBase equal to their queries; run `tailorbird apply` first.

    Runs until SIGTERM or Ctrl-C. After any end, the next start resumes from the checkpoints. Several tables share one
    Spark application. Run only one process per table.

    Example: tailorbird join topologies/shop.yml --table orders_wide
    """
    # imported here: the clients of Spark and HBase would slow down `--help` by a second
    from cdc.model.extras import extras_named

    with extras_named("joins"):
        from joins.run_join import run

        run(file, table or [], rebuild=rebuild, ports=metrics_port or [])
