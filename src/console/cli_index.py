"""`tailorbird index`: one index's process."""

from __future__ import annotations

import sys
from typing import Annotated

import typer


def index(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    name: Annotated[str | None, typer.Option("--index", help="Which index; not needed where there is one.")] = None,
    metrics_port: Annotated[int, typer.Option(help="Serve Prometheus on 127.0.0.1 (0 = not).")] = 0,
) -> None:
    """Index a joined table's changes into Solr until SIGTERM; `tailorbird apply` comes first.

    Example: tailorbird index topologies/shop.yml --index orders
    """
    from indexer.__main__ import main

    arguments = [file, "--metrics-port", str(metrics_port)]
    sys.exit(main([*arguments, "--index", name] if name else arguments))
