"""`tailorbird api`: serve topologies over REST."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def api(
    context: typer.Context,
    files: Annotated[list[str], typer.Argument(metavar="TOPOLOGY...", help="The topologies' YAML files.")],
    host: Annotated[str, typer.Option(help="Address to listen on. Other machines cannot reach a loopback address.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve on.")] = 7450,
    oidc: Annotated[
        Path | None, typer.Option("--oidc", help="File of an OpenID Connect issuer whose users may use the API.")
    ] = None,
    tls_cert: Annotated[str, typer.Option("--tls-cert", help="Certificate of the server (PEM).")] = "",
    tls_key: Annotated[str, typer.Option("--tls-key", help="Private key of the server (PEM).")] = "",
    behind_proxy: Annotated[bool, typer.Option("--behind-proxy", help="Your reverse proxy terminates TLS.")] = False,
) -> None:
    """Serve status, plan, apply, verify, wait, explain, dead letters and search over REST.

    Every request needs a token of the topology (`tailorbird fleet token issue`). Other machines can then run these
    commands with `tailorbird --api URL`. Runs until SIGTERM or Ctrl-C (docs/rest-api.md).

    Example: tailorbird api topologies/shop.yml --port 7450
    """
    # imported here: the web server takes a second to load
    from cdc.model.extras import extras_named
    from cdc.process.file_topology import load_serving, read_file

    with extras_named("dashboard"):
        from tailorbird.cli.api.remote_commands import remote_commands
        from tailorbird.cli.cli_mcp import explained
        from tailorbird.web.api.run_api import run_api
        from tailorbird.web.dashboard.guard.access import Access

        settings = None
        if oidc is not None:
            from cdc.oidc.http_oidc import load_oidc

            settings = load_oidc(oidc)
    run_api(
        [(read_file(file, "operator"), load_serving(file)) for file in files],
        remote_commands(context.find_root().command),
        explained,
        host=host,
        port=port,
        access=Access(certificate=tls_cert, key=tls_key, behind_proxy=behind_proxy),
        oidc=settings,
    )
