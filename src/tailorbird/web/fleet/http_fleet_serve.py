"""Serves the fleet's page; it holds no secret of its own, and asks a gateway with the token of whoever looks."""

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
    """Serve on loopback until SIGTERM or SIGINT. UsageError where the port is taken, or `ca` can not be read.

    Loopback alone: tokens pass from the browser to here without TLS. Others use a tunnel, or run their own.
    """
    FleetApi(api, ca, "none")  # refuses what is no certificate, before anybody looks
    refuse_taken("127.0.0.1", port)

    @ui.page("/", title="Fleet")
    async def page(client: Client) -> None:
        ui.add_css(STYLE + _OWN)
        shown = FleetPage(lambda token: FleetApi(api, ca, token), client)
        await client.connected()
        await shown.begin()

    serve_pages("fleet page", host="127.0.0.1", port=port, title="Fleet", reported={"gateway": api})
