"""Serve the fleet's page. It has no secrets of its own: it calls a gateway with the token of each user."""

from __future__ import annotations

from pathlib import Path

from nicegui import ui
from nicegui.client import Client

from tailorbird.web.dashboard.guard.http_serve import refuse_taken, serve_pages
from tailorbird.web.dashboard.style import STYLE
from tailorbird.web.fleet.http_fleet import FleetApi
from tailorbird.web.fleet.http_fleet_page import FleetPage

_OWN = """
.tb-fleet { display: grid; gap: 16px; grid-template-columns: minmax(0, 1fr); }
.tb-fleet-table { width: 100%; border-collapse: collapse; }
.tb-fleet-table th { text-align: left; color: var(--soft); font-weight: 500; font-size: 13px; padding: 4px 8px; }
.tb-fleet-table td { border-top: 1px solid var(--line); padding: 8px; vertical-align: top; overflow-wrap: anywhere; }
.tb-fleet-table progress { width: 160px; accent-color: var(--accent); }
.tb-fleet-place { font-weight: 600; padding: 8px; cursor: pointer; }
.tb-fleet-place > * { display: inline; }
.tb-fleet summary > * { display: inline; }
.tb-fleet .tb-chip > * { display: inline; }
.tb-fleet-button { border: 1px solid var(--line); background: var(--card); color: var(--accent); border-radius: 6px;
  padding: 4px 12px; cursor: pointer; font: inherit; font-size: 13px; white-space: nowrap; }
.tb-fleet-button:hover { background: var(--hover); }
.tb-fleet-login { display: flex; flex-direction: column; gap: 12px; max-width: 560px; }
.tb-fleet-dialog { min-width: min(640px, 90vw); background: var(--card); color: var(--ink); }
.tb-fleet-dialog-body { display: flex; flex-direction: column; gap: 8px; width: 100%; max-height: 70vh;
  overflow: auto; }
.tb-fleet-dialog textarea { font-family: monospace; font-size: 13px; }
"""


def serve_fleet(api: str, ca: Path, *, port: int) -> None:
    """Serve on loopback until SIGTERM or SIGINT. Raises UsageError if the port is in use or `ca` cannot be read.

    It listens on loopback only, because tokens pass from the browser to the server without TLS. Remote users need a
    tunnel or must run the page themselves."""
    FleetApi(api, ca, "none")  # rejects an invalid certificate before the first request
    refuse_taken("127.0.0.1", port)

    @ui.page("/", title="Fleet")
    async def page(client: Client) -> None:
        ui.add_css(STYLE + _OWN)
        shown = FleetPage(lambda token: FleetApi(api, ca, token), client)
        await client.connected()
        await shown.begin()

    serve_pages("fleet page", host="127.0.0.1", port=port, title="Fleet", reported={"gateway": api})
