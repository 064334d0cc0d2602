"""`tailorbird gateway`: run a gateway, which agents connect to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdc.model.errors import UsageError
from tailorbird.cli.serve.metrics_port import MetricsPort


def gateway(
    file: Annotated[str, typer.Argument(metavar="TOPOLOGY", help="The topology's YAML file.")],
    listen: Annotated[str, typer.Option("--listen", help="Address and port to listen on.")] = "127.0.0.1:7443",
    identity: Annotated[
        Path, typer.Option("--identity", help="Folder of the gateway's ca.pem, cert.pem and key.pem.")
    ] = Path("gateway"),
    tokens: Annotated[
        str | None,
        typer.Option(
            "--listen-tokens", help="Address and port for agents with a token instead of a certificate. Default: off."
        ),
    ] = None,
    tenant: Annotated[
        list[str] | None,
        typer.Option("--tenant", help="NAME=TOPOLOGY of an additional tenant. May be repeated."),
    ] = None,
    api: Annotated[
        str | None, typer.Option("--api", help="Address and port of the REST API for operators. Default: off.")
    ] = None,
    oidc: Annotated[
        Path | None, typer.Option("--oidc", help="File of an OpenID Connect issuer whose users may use --api.")
    ] = None,
    metrics_port: MetricsPort = 0,
) -> None:
    """Accept agents over mTLS and write their captured changes to Kafka.

    Runs until SIGTERM or Ctrl-C. A gateway is stateless; run any number of them. With --api it also serves operators
    (`tailorbird fleet`), over TLS, with tokens.

    Example: tailorbird gateway topologies/shop.yml --listen 0.0.0.0:7443 --identity gateway
    """
    tenants = dict[str, str]()
    for reported in tenant or ():
        name, equals, of = reported.partition("=")
        if not equals or not of or name in tenants:
            raise UsageError(f"--tenant {reported}: invalid", "write --tenant NAME=TOPOLOGY, each name once")
        tenants[name] = of
    # imported here: gRPC would slow down `--help` by a quarter of a second
    from cdc.model.extras import extras_named
    from ingest.gateway.run_gateway import run

    with extras_named("gateway"):
        run(file, listen, identity, api, tokens, tenants, oidc, metrics_port)
