"""`tailorbird fleet page`: serve the fleet's web page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tailorbird.cli.fleet.cli_api import API, CA, Api, Ca


def page(
    api: Api = API,
    ca: Ca = CA,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve on, on loopback.")] = 8081,
    oidc: Annotated[
        Path | None, typer.Option("--oidc", help="File of an OpenID Connect issuer that the gateway accepts, too.")
    ] = None,
) -> None:
    """Serve the fleet's page: agents, tables, sources and snapshot progress.

    The page asks for a token and has the rights of that token. With --oidc, users can log in at the issuer instead. It
    listens only on loopback; stop it with Ctrl-C.

    Example: tailorbird fleet page --api gw1.example.org:7444 --ca fleet-ca/ca.pem
    """
    from cdc.model.extras import extras_named

    with extras_named("dashboard"):
        from tailorbird.web.fleet.http_fleet_serve import serve_fleet

        settings = None
        if oidc is not None:
            from cdc.oidc.http_oidc import load_oidc

            settings = load_oidc(oidc)
    serve_fleet(api, ca, port=port, oidc=settings)
