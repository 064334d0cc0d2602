"""`tailorbird notify`: send webhooks about a topology."""

from __future__ import annotations

from typing import Annotated

import typer

from tailorbird.cli.serve.metrics_port import MetricsPort


def notify(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    metrics_port: MetricsPort = 0,
) -> None:
    """Send the events of a topology to its `webhooks:`.

    `tailorbird run` includes this command. Run it on the machine of the captures: it sees only their processes there.

    Example: tailorbird notify topologies/shop.yml
    """
    # imported here: the clients of all servers take half a second
    from cdc.process.file_topology import load_topology
    from cdc.process.proc_log_lines import log_lines
    from tailorbird.notify.run_notify import run_notify

    topology = load_topology(file)
    log_lines("logfmt")
    run_notify(topology, metrics_port=metrics_port)
