"""`tailorbird agent`: run the agent on a database's host, and check its policy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailorbird.cli.fleet import cli_agent_install
from tailorbird.cli.fleet.cli_api import Json, read_keys, report
from tailorbird.cli.index.run_by_default import RunByDefault
from tailorbird.cli.serve.metrics_port import MetricsPort

app = typer.Typer(
    cls=RunByDefault,
    no_args_is_help=True,
    help="Run an agent on a database's host, or check its policy.\n\n"
    "Example: tailorbird agent --gateway gw1.example.org:7443 --identity paris",
)
policy_app = typer.Typer(
    no_args_is_help=True,
    help="Check the policy of this host.\n\nExample: tailorbird agent policy check --policy policy.yml",
)
app.add_typer(policy_app, name="policy")
app.command("install")(cli_agent_install.install)
app.command("uninstall")(cli_agent_install.uninstall)
PolicyOption = Annotated[
    str, typer.Option("--policy", help="File that limits what may leave this host, with database connections.")
]


@app.command("run")
def agent(
    gateway: Annotated[
        list[str], typer.Option("--gateway", help="Host and port of a gateway. May be repeated; tried in turn.")
    ],
    identity: Annotated[str, typer.Option("--identity", help="Folder of the agent's certificates.")] = "agent",
    policy: PolicyOption = "policy.yml",
    metrics_port: MetricsPort = 0,
) -> None:
    """Capture the sources that a gateway assigns, within this host's policy.

    The agent dials out and accepts no connections.

    Runs until SIGTERM or Ctrl-C. Needs no topology: the fleet defines the sources (`tailorbird fleet source add`).
    Applies a changed policy within seconds, and on SIGHUP.

    Example: tailorbird agent run --gateway gw1.example.org:7443 --identity paris --policy policy.yml
    """
    from ingest.agent.run_agent import run

    run(gateway, identity, policy, metrics_port=metrics_port)


@policy_app.command("check")
def check(
    policy: PolicyOption = "policy.yml",
    request: Annotated[
        Path | None,
        typer.Option("--request", help="A source's configuration, as YAML or JSON. Says whether it would be refused."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what would leave this host, and what would not. Exits with 1 if the request is refused.

    Reads names of tables and columns from the databases of the policy. Sends nothing.

    Example: tailorbird agent policy check --policy policy.yml

    Example: tailorbird agent policy check --policy policy.yml --request shop.json
    """
    from ingest.agent.catalogs import databases_of
    from ingest.agent.file_policy import load_policy
    from ingest.agent.policy_check import findings, request_verdict

    loaded = load_policy(policy)
    if request is not None:
        verdict = request_verdict(loaded, read_keys(request))
        for sentence in verdict.sentences:
            report({"request": str(request), "refused": verdict.refused, "why": sentence}, as_json, sentence)
        if verdict.refused:
            raise typer.Exit(1)
        return
    for local in loaded.connections.values():
        for database in databases_of(local):
            for finding in findings(local, database):
                report(finding.to_json(), as_json, str(finding))
