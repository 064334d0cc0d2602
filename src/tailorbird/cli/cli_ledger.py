"""`tailorbird ledger`: maintain digests of the log, so that `verify` need not read the log."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from tailorbird.cli.serve.metrics_port import MetricsPort


def ledger(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    until_end: Annotated[
        bool, typer.Option("--until-end", help="Exit after reading everything committed so far.")
    ] = False,
    metrics_port: MetricsPort = 0,
    as_json: Annotated[bool, typer.Option("--json", help="At the end: rows by table, as one JSON object.")] = False,
) -> None:
    """Maintain digests of all rows in the log, for `verify --stage log`.

    Reads committed records of the change topics and writes `.tailorbird/ledger`. If it is killed, it resumes exactly
    where it stopped. If no ledger is running, `verify` reads the log itself first. Run one process per topology.

    Example: tailorbird ledger topologies/shop.yml --until-end
    """
    # imported here: the Kafka clients would slow down `--help`
    from ingest.ledger.run_ledger import run

    rows = run(file, until_end=until_end, metrics_port=metrics_port)
    if as_json:
        typer.echo(json.dumps(rows))
    else:
        for table, count in rows.items():
            typer.echo(f"{table}  {count:,} rows")
