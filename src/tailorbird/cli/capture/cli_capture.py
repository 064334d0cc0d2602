"""`tailorbird capture`: publish the changes of one source."""

from __future__ import annotations

from typing import Annotated

import typer

from tailorbird.cli.serve.metrics_port import MetricsPort


def capture(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    source: Annotated[
        str | None, typer.Option("--source", help="The source to capture. Optional if there is only one.")
    ] = None,
    metrics_port: MetricsPort = 0,
    gateway: Annotated[
        list[str] | None,
        typer.Option("--gateway", help="Host and port of a gateway to use instead of Kafka. May be repeated."),
    ] = None,
    begin: Annotated[
        str,
        typer.Option(
            "--from",
            help="Begin at an older place of the binary log: a GTID set, FILE:POSITION or a time (ISO 8601, UTC).",
        ),
    ] = "",
    identity: Annotated[
        str, typer.Option("--identity", help="Folder of this agent's ca.pem, cert.pem and key.pem.")
    ] = "agent",
) -> None:
    """Publish one source's tables, then every change, to Kafka, exactly once.

    With --gateway, this host needs no access to Kafka and accepts no connections: it dials out over mTLS.

    With --from, the first start begins at an older place of the log, and reads the tables after it. Later starts resume
    as usual.

    Runs until SIGTERM or Ctrl-C. After any end, the next start resumes where the log ends. Run one process per source.

    Example: tailorbird capture topologies/shop.yml --source shop
    """
    # imported here: the clients of MySQL and Kafka would slow down `--help` by half a second
    from ingest.run_capture import run

    run(file, source, metrics_port=metrics_port, gateways=gateway or (), identity=identity, begin=begin)
