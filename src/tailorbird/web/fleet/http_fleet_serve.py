"""Serve the fleet's page. It has no secrets of its own: it calls a gateway with the token of each user."""

from __future__ import annotations

from pathlib import Path

from cdc.oidc.claims import OidcSettings
from tailorbird.web.dashboard.guard.http_oidc_login import OidcLogin
from tailorbird.web.dashboard.guard.http_serve import pages_app, refuse_taken, serve_pages
from tailorbird.web.fleet.http_fleet import FleetApi
from tailorbird.web.fleet.http_fleet_page import FleetSessions, serve_fleet_page


def serve_fleet(api: str, ca: Path, *, port: int, oidc: OidcSettings | None = None) -> None:
    """Serve on loopback until SIGTERM or SIGINT. Raises UsageError if the port is in use or `ca` cannot be read.

    It listens on loopback only, because tokens pass from the browser to the server without TLS. Remote users need a
    tunnel or must run the page themselves."""
    FleetApi(api, ca, "none")  # rejects an invalid certificate before the first request
    refuse_taken("127.0.0.1", port)
    app = pages_app()
    login: OidcLogin | None = None
    if oidc is not None:
        from cdc.oidc.http_oidc import OidcIssuer

        login = OidcLogin(OidcIssuer(oidc), f"http://127.0.0.1:{port}")
    serve_fleet_page(app, FleetSessions(lambda token: FleetApi(api, ca, token)), login)
    serve_pages(app, "fleet page", host="127.0.0.1", port=port, reported={"gateway": api})
