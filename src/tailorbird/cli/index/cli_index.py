"""`tailorbird index …`: run an index, rebuild or remove it."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from tailorbird.cli.index import cli_index_admin, cli_index_lily, cli_index_rebuild
from tailorbird.cli.index.run_by_default import RunByDefault
from tailorbird.cli.serve.metrics_port import MetricsPort

app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Run an index, rebuild or remove it.\n\nExample: tailorbird index topologies/shop.yml --index orders",
)


@app.command("run")
def run(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    name: Annotated[str | None, typer.Option("--index", help="The index. Optional if there is only one.")] = None,
    metrics_port: MetricsPort = 0,
) -> None:
    """Index a joined table's changes into Solr until SIGTERM; run `tailorbird apply` first.

    Example: tailorbird index run topologies/shop.yml --index orders
    """
    from indexer.__main__ import main

    arguments = [file, "--metrics-port", str(metrics_port)]
    sys.exit(main([*arguments, "--index", name] if name else arguments))


app.command("reindex")(cli_index_rebuild.reindex)
app.command("rm")(cli_index_admin.remove)
app.command("replay-dead-letters")(cli_index_admin.replay_dead_letters)
app.command("import-lily")(cli_index_lily.import_lily)
