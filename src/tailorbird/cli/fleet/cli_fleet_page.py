"""`tailorbird fleet page`: the fleet to look at and to click."""

from __future__ import annotations

from typing import Annotated

import typer

from tailorbird.cli.fleet.cli_api import API, CA, Api, Ca


def page(
    api: Api = API,
    ca: Ca = CA,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to serve on, on loopback.")] = 8081,
) -> None:
    """Serve the fleet's page: agents, tables, sources and snapshot progress.

    It asks for a token and does what that token may. It listens on loopback alone; stop it with Ctrl-C.

    Example: tailorbird fleet page --api gw1.example.org:7444 --ca fleet-ca/ca.pem
    """
    from cdc.model.extras import extras_named

    with extras_named("dashboard"):
        from tailorbird.web.fleet.http_fleet_serve import serve_fleet
    serve_fleet(api, ca, port=port)
