"""A test's gateway, as a process, with certificates made for it; and one in the test's process."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ingest.fleet.identity import FleetIdentity
from ingest.gateway.grpc_server import AgentServer
from ingest.gateway.grpc_streams import Fleet
from tailorbird.web.fleet.file_ca import init, issue
from tests.support.ports import free_port

TENANT = "acme"


def certificates(folder: Path) -> Path:
    """Create folders `agent` and `gateway` with their certificates, issued by an authority of this fleet."""
    init(folder / "authority", TENANT)
    issue(folder / "authority", FleetIdentity(TENANT, "agents", "a1"), folder / "agent")
    issue(folder / "authority", FleetIdentity(TENANT, "gateways", "g1"), folder / "gateway", hosts=["127.0.0.1"])
    return folder


class GatewayProcess:
    """`tailorbird gateway` over a topology, which can be killed and restarted at the same address."""

    def __init__(self, file: Path, folder: Path) -> None:
        self._file, self.folder = file, certificates(folder)
        self.address = f"127.0.0.1:{free_port()}"
        self.log = folder / "gateway.log"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def options(self) -> list[str]:
        """Return the options that make a capture use this gateway."""
        return ["--gateway", self.address, "--identity", str(self.folder / "agent")]

    def start(self) -> None:
        """Start it; agents wait until it serves."""
        command = [sys.executable, "-m", "tailorbird", "gateway", str(self._file), "--listen", self.address]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*command, "--identity", str(self.folder / "gateway")], stdout=log, stderr=log
            )

    def end(self, number: int = signal.SIGKILL) -> int:
        """Kill it or send it another signal; return its exit code. It may have exited before."""
        assert self._process is not None
        self._process.send_signal(number)
        return self._process.wait(30)


@contextmanager
def server_open(fleet: Fleet, folder: Path, tokens: str | None = None) -> Iterator[str]:
    """Run a gRPC server in a thread of this process; return its address. At `tokens`, agents connect without a
    certificate."""
    address, ready = f"127.0.0.1:{free_port()}", threading.Event()
    pem = {name: (folder / "gateway" / f"{name}.pem").read_bytes() for name in ("ca", "cert", "key")}
    stopped: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    async def serve() -> None:
        stopped.append((asyncio.get_running_loop(), asyncio.Event()))
        await AgentServer(fleet).serve(address, pem, stopped[0][1], ready.set, tokens)

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="door")
    thread.start()
    assert ready.wait(60)
    try:
        yield address
    finally:
        loop, event = stopped[0]
        loop.call_soon_threadsafe(event.set)
        thread.join(20)
