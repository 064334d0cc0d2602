"""`tailorbird gateway`: one process that serves agents until it is told to stop; it keeps nothing."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Mapping
from pathlib import Path

import structlog
from cryptography import x509

from cdc.process.file_topology import load_topology
from cdc.process.proc_log_lines import log_lines
from cdc.words.errors import UsageError
from ingest.fleet.identity import FleetIdentity, identity_of
from ingest.gateway.grpc_door import Door
from ingest.gateway.kafka_sources import KafkaFleet

log = structlog.get_logger()


def run(file: str, listen: str, folder: Path) -> None:
    """Serve until SIGTERM or SIGINT at `listen` (host:port), as whom the certificate in `folder` says.

    UsageError where that is no gateway's, or the address can not be had. However it ends, agents dial anew and recover.
    """
    topology = load_topology(file)
    log_lines("json")
    pem = {name: _read(folder / f"{name}.pem") for name in ("ca", "cert", "key")}
    gateway = _named(pem["cert"])
    if gateway is None or gateway.role != "gateways":
        raise UsageError(f"{folder / 'cert.pem'} is no gateway's", "tailorbird fleet ca issue gateway NAME")
    asyncio.run(_serve(Door(KafkaFleet(topology, gateway.tenant)), listen, pem))


async def _serve(door: Door, listen: str, pem: Mapping[str, bytes]) -> None:
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    await door.serve(listen, pem, stopped, lambda: log.info("gateway serves", address=listen))


def _named(pem: bytes) -> FleetIdentity | None:
    certificate = x509.load_pem_x509_certificate(pem)
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return None
    return identity_of(names.get_values_for_type(x509.UniformResourceIdentifier))


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}", "tailorbird fleet ca issue gateway NAME --into FOLDER") from error
