"""`tailorbird ledger`: keep digests of what the log says, so that `verify` need not read it."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def ledger(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    until_end: Annotated[bool, typer.Option("--until-end", help="End once all that is committed now is read.")] = False,
    metrics_port: Annotated[int, typer.Option(help="Serve /metrics and /health on this port of loopback.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="At the end: rows by table, as one JSON object.")] = False,
) -> None:
    """Keep digests of all rows in the log, which `verify --stage log` compares.

    It reads the change topics, committed records only, and writes `.tailorbird/ledger`. It may be killed at any time
    and goes on exactly where it was. The log stage of `verify` reads it; where no ledger runs, verify reads the log by
    itself first. One process a topology.

    Example: tailorbird ledger topologies/shop.yml --until-end
    """
    # imported here: the clients of Kafka cost what `--help` should not
    from ingest.ledger.run_ledger import run

    rows = run(file, until_end=until_end, metrics_port=metrics_port)
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        for table, count in rows.items():
            typer.echo(f"{table}  {count:,} rows")
