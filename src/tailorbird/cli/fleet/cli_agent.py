"""`tailorbird agent`: run the agent on a database's host."""

from __future__ import annotations

from typing import Annotated

import typer


def agent(
    gateway: Annotated[
        list[str], typer.Option("--gateway", help="Host and port of a gateway. May be repeated; tried in turn.")
    ],
    identity: Annotated[str, typer.Option("--identity", help="Folder of the agent's certificates.")] = "agent",
    policy: Annotated[
        str, typer.Option("--policy", help="File that limits what may leave this host, with database connections.")
    ] = "policy.yml",
    metrics_port: Annotated[
        int, typer.Option("--metrics-port", help="Serve metrics and /health on this port of 127.0.0.1; 0: off.")
    ] = 0,
) -> None:
    """Capture the sources that a gateway assigns, within this host's policy.

    The agent dials out and accepts no connections.

    Runs until SIGTERM or Ctrl-C. Needs no topology: the fleet defines the sources (`tailorbird fleet source add`).

    Example: tailorbird agent --gateway gw1.example.org:7443 --identity paris --policy policy.yml
    """
    from ingest.agent.run_agent import run

    run(gateway, identity, policy, metrics_port=metrics_port)
