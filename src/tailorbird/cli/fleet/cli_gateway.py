"""`tailorbird gateway`: what agents dial."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdc.model.errors import UsageError


def gateway(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    listen: Annotated[str, typer.Option("--listen", help="Address and port to serve at.")] = "127.0.0.1:7443",
    identity: Annotated[Path, typer.Option("--identity", help="Folder of its ca.pem, cert.pem and key.pem.")] = Path(
        "gateway"
    ),
    tokens: Annotated[
        str | None,
        typer.Option("--listen-tokens", help="Address and port for agents with a token, no certificate; else nowhere."),
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option("--tenant", help="NAME=TOPOLOGY of another tenant that it serves as well; again for more."),
    ] = None,
    api: Annotated[
        str | None, typer.Option("--api", help="Address and port to serve operators at (REST); by default nowhere.")
    ] = None,
) -> None:
    """Accept agents over mTLS and write what they capture to Kafka.

    Runs until SIGTERM or Ctrl-C, and keeps nothing; run as many as you like. With --api it also does what operators
    command (`tailorbird fleet`), over TLS, with tokens.

    Example: tailorbird gateway topologies/shop.yml --listen 0.0.0.0:7443 --identity gateway
    """
    tenants = dict[str, str]()
    for reported in tenant or ():
        name, equals, of = reported.partition("=")
        if not equals or not of or name in tenants:
            raise UsageError(f"--tenant {reported}", "--tenant NAME=TOPOLOGY, each name once")
        tenants[name] = of
    # imported here: gRPC costs a quarter of a second, which `--help` should not
    from cdc.model.extras import extras_named
    from ingest.gateway.run_gateway import run

    with extras_named("gateway"):
        run(file, listen, identity, api, tokens, tenants)
