"""`tailorbird capture`: publish the changes of one source."""

from __future__ import annotations

from typing import Annotated

import typer


def capture(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    source: Annotated[
        str | None, typer.Option("--source", help="Which source; may be left out when there is one only.")
    ] = None,
    metrics_port: Annotated[
        int, typer.Option("--metrics-port", help="Serve Prometheus here on 127.0.0.1; 0: nowhere.")
    ] = 0,
    gateway: Annotated[
        list[str] | None,
        typer.Option("--gateway", help="Host and port of a gateway to go through, instead of Kafka; again for more."),
    ] = None,
    identity: Annotated[
        str, typer.Option("--identity", help="Folder of this agent's ca.pem, cert.pem and key.pem.")
    ] = "agent",
) -> None:
    """Publish one source's tables, then every change, to Kafka, exactly once.

    With --gateway this host needs no way to Kafka, and nobody connects to it: it dials out, over mTLS.

    Runs until SIGTERM or Ctrl-C. However it ends, the next start goes on where the log ends. One process per source.

    Example: tailorbird capture topologies/shop.yml --source shop
    """
    # imported here: the clients of MySQL and Kafka cost half a second, which `--help` should not
    from ingest.run_capture import run

    run(file, source, metrics_port=metrics_port, gateways=gateway or (), identity=identity)
