"""Run the demo with a fleet: a gateway and one agent per source, over mTLS, instead of captures.

Sources that agents cannot capture keep their own capture.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from cdc.model.errors import Retriable
from cdc.topology.topology import Topology
from tailorbird.cli.fleet.cli_fleet_token import written
from tailorbird.operate.pipeline.proc_pipeline import Part, parts
from tailorbird.operate.pipeline.tcp_ports import ReservedPorts
from tailorbird.web.fleet.file_fleet import LocalFleet
from tailorbird.web.fleet.http_fleet import FleetApi, name_in_path

_TIMEOUT = 60.0  # seconds until the gateway serves


class DemoFleet:
    """A fleet for the demo: a gateway and an agent per source, with certificates in the folder `home`."""

    def __init__(self, topology: Topology, home: Path) -> None:
        self._ports = ReservedPorts()
        listen, api = (f"127.0.0.1:{self._ports.reserve()}" for _ in range(2))
        self._fleet = LocalFleet(topology=topology, folder=home / "fleet" / topology.name, listen=listen, api=api)
        self._topology, self._home, self._logs = topology, home, home / "logs" / topology.name

    def parts(self) -> list[Part]:
        """Create the certificates. Return the processes, which replace the captures and export the same counters."""
        self._fleet.make()
        found = [self._part("gateway", "gateway", self._fleet.gateway(), {})]
        for source in self._fleet.sources:
            port = self._ports.reserve()
            command = (*self._fleet.agent(source), "--metrics-port", str(port))
            found.append(self._part(f"agent {source}", "capture", command, {f"capture {source}": port}))
        served = {name for part in found for name in part.serves}
        captures = [
            part for part in parts(self._topology, home=self._home, ports=self._ports) if part.stage == "capture"
        ]
        return [*found, *(part for part in captures if part.serves.keys().isdisjoint(served))]

    def command(self) -> None:
        """Configure the sources through the gateway's API. Raises Retriable if the gateway does not start."""
        token = written(self._topology.file, "demo", "operate", 1)["token"]
        api = FleetApi(self._fleet.api, self._fleet.ca, token)
        there = self._there(api)
        for name, spec in self._fleet.specs().items():
            path = f"sources/{name_in_path(name)}"
            api.ask("PUT", f"{path}/config", spec) if name in there else api.ask("POST", path, spec)

    def _there(self, api: FleetApi) -> set[str]:
        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                return {one["source"] for one in api.ask("GET", "sources")}
            except Retriable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _part(self, name: str, stage: str, arguments: tuple[str, ...], serves: dict[str, int]) -> Part:
        command, log = (sys.executable, "-m", "tailorbird", *arguments), self._logs / f"{name.replace(' ', '-')}.log"
        return Part(name=name, stage=stage, command=command, log=log, serves=serves)
