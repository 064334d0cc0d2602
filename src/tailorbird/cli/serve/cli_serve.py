"""`tailorbird serve`: serve captured tables in other systems' protocols."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailorbird.cli.serve.metrics_port import MetricsPort

app = typer.Typer(
    no_args_is_help=True,
    help="Serve captured tables in other systems' protocols.\n\nExample: tailorbird serve maxscale topologies/shop.yml",
)


@app.callback()
def serve() -> None:
    """Serve captured tables in other systems' protocols.

    Example: tailorbird serve maxscale topologies/shop.yml
    """


@app.command("maxscale")
def maxscale(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    listen: Annotated[str, typer.Option("--listen", help="Address and port to listen on.")] = "127.0.0.1:4001",
    users: Annotated[
        Path | None,
        typer.Option("--users", help="The cdcusers file. Default: .tailorbird/maxscale/<topology>/cdcusers."),
    ] = None,
    source: Annotated[
        list[str] | None, typer.Option("--source", help="Serve only this source. May be repeated. Default: all.")
    ] = None,
    certificate: Annotated[
        Path | None, typer.Option("--certificate", help="PEM file of a certificate; enables TLS.")
    ] = None,
    key: Annotated[Path | None, typer.Option("--key", help="PEM file of the certificate's key.")] = None,
    clients: Annotated[int, typer.Option("--clients", min=1, help="Maximum number of connections.")] = 2000,
    metrics_port: MetricsPort = 0,
) -> None:
    """Serve captured tables to clients of MaxScale's CDC protocol. Reads only.

    A client requests `database.table`, from its beginning or from a GTID, and receives every change from then on.
    Without TLS, it listens only on loopback, because a login could be recorded and replayed.

    Example: tailorbird serve maxscale topologies/shop.yml --listen 127.0.0.1:4001
    """
    # imported here: the Kafka clients would slow down `--help`
    from ingest.maxscale.run_maxscale import CdcOptions, run
    from ingest.maxscale.tcp_server import ServerLimits

    options = CdcOptions(
        listen=listen,
        users=users,
        sources=tuple(source or ()),
        certificate=certificate,
        key=key,
        limits=ServerLimits(clients=clients),
    )
    run(file, options, metrics_port=metrics_port)
