"""Query the processes of a topology that run on this machine."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from cdc.process.file_running import ended, running
from cdc.topology.topology import Topology
from tailorbird.operate.status.part_status import PartStatus, part_statuses


def asked_parts(topology: Topology) -> list[PartStatus]:
    """Query the health of all processes on this machine, in parallel."""
    # imported here: the parser of metrics would slow down `--help`
    from tailorbird.operate.status.http_metrics import read_health, read_metrics

    found = running(topology.name)
    addresses = {one.port: one.address for one in found if one.port and not one.stopped}
    ports = sorted(addresses)
    with ThreadPoolExecutor(max(1, 2 * len(ports))) as pool:
        health, figures = (
            pool.map(read_health, ports, map(addresses.get, ports)),
            pool.map(read_metrics, ports, map(addresses.get, ports)),
        )  # unresponsive ports wait in parallel
    return part_statuses(
        topology,
        found,
        ended(topology.name),
        {port: answer for port, answer in zip(ports, health, strict=True) if answer is not None},
        dict(zip(ports, figures, strict=True)),
        now_ms=time.time_ns() // 1_000_000,
    )
