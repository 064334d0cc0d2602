"""`tailorbird agent`: the only command on a database's host."""

from __future__ import annotations

from typing import Annotated

import typer


def agent(
    gateway: Annotated[
        list[str], typer.Option("--gateway", help="Host and port of a gateway to dial; again for more, by turns.")
    ],
    identity: Annotated[str, typer.Option("--identity", help="Folder of the agent's certificates.")] = "agent",
    policy: Annotated[
        str, typer.Option("--policy", help="What may leave this host, and how databases are reached.")
    ] = "policy.yml",
    metrics_port: Annotated[
        int, typer.Option("--metrics-port", help="Serve Prometheus and /health here on 127.0.0.1; 0: nowhere.")
    ] = 0,
) -> None:
    """Capture what a gateway asks for, within this host's policy.

    The agent dials out and listens nowhere.

    Runs until SIGTERM or Ctrl-C. Needs no topology: sources come from the fleet (`tailorbird fleet source add`).

    Example: tailorbird agent --gateway gw1.example.org:7443 --identity paris --policy policy.yml
    """
    from ingest.agent.run_agent import run

    run(gateway, identity, policy, metrics_port=metrics_port)
