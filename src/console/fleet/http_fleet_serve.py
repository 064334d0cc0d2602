"""Serves the fleet's page; it holds no secret of its own, and asks a gateway with the token of whoever looks."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import structlog
from nicegui import app, ui
from nicegui.client import Client
from starlette.middleware.trustedhost import TrustedHostMiddleware

from cdc.words.errors import UsageError
from console.dashboard.http_dashboard import ICON, SECONDS_TO_RECONNECT, StrictHeaders
from console.dashboard.style import STYLE
from console.fleet.http_fleet import FleetApi
from console.fleet.http_fleet_page import FleetPage
from console.probes.tcp_probe import port_is_free

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
    if not port_is_free("127.0.0.1", port):
        raise UsageError(f"127.0.0.1:{port} can not be served: the port is in use", f"try --port {port + 1}")

    @ui.page("/", title="Fleet")
    async def page(client: Client) -> None:
        ui.add_css(STYLE + _OWN)
        shown = FleetPage(lambda token: FleetApi(api, ca, token), client)
        await client.connected()
        await shown.begin()

    @app.get("/health")
    def health() -> dict[str, str]:
        """As every process of ours tells it; whether the gateway is there, the page says."""
        return {"status": "moving", "reason": f"serves http://127.0.0.1:{port}/"}

    app.add_middleware(StrictHeaders)
    # another site's page must not reach this one through a name that it points here
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=["127.0.0.1", "localhost"])
    os.environ.pop("PYTEST_CURRENT_TEST", None)  # NiceGUI would take a process of a test's for a test of its own
    for number in (signal.SIGTERM, signal.SIGINT):  # which uvicorn raises again after it has stopped cleanly
        signal.signal(number, lambda *_: None)
    log = structlog.wrap_logger(structlog.PrintLogger(sys.stderr))
    app.on_startup(lambda: log.info("fleet page serves", url=f"http://127.0.0.1:{port}/", gateway=api))
    ui.run(
        host="127.0.0.1",
        port=port,
        title="Fleet",
        dark=None,
        favicon=ICON,
        language="en-US",
        reload=False,
        show=False,
        show_welcome_message=False,
        tailwind=False,
        reconnect_timeout=SECONDS_TO_RECONNECT,
        timeout_graceful_shutdown=2,
    )
    log.info("fleet page stopped")
