"""One server of each listening port, as a process: `python -m tests.hostile.port_servers NAME FOLDER`.

It prints its port, and then reads its standard input until that is closed. What it prints is explained per server.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import structlog
from starlette.websockets import WebSocket, WebSocketDisconnect

from tests.support.ports import free_port


def _operation(folder: Path) -> None:
    from cdc.process.http_operation import serve_operation
    from cdc.process.verdict import HealthVerdict

    server = serve_operation(0, lambda: (HealthVerdict(status="moving", reason="works"), {}))
    _listens(server.server_port)


def _replication(folder: Path) -> None:
    from indexer.peer.tcp_peer import PeerServer

    server = PeerServer(lambda edits: None, lambda error: os._exit(1))
    _listens(server.port)


def _syslog(folder: Path) -> None:
    """Print each message that contains `honest`."""
    from ingest.syslog.tcp_syslog_source import _Sockets
    from tests.ingest.syslog.test_syslog import topology

    port = free_port()
    source = topology(f"{{tcp: '127.0.0.1:{port}'}}").sources["sys"]
    with _Sockets(source, source.listen) as sockets:
        _listens(port)
        for message in sockets:
            if message is not None and b"honest" in message.data:
                print(message.data.decode(), flush=True)


def _maxscale(folder: Path) -> None:
    from tests.support.cdc_served import served
    from tests.support.changes_made import MemoryChanges

    with served(MemoryChanges()) as server:
        _listens(server.address[1])
        threading.Event().wait()


def _api(folder: Path) -> None:
    from ingest.gateway.http_api import serve_api
    from tests.ingest.fleet.test_commands import SessionHandler

    port = free_port()
    _listens(port)
    commands = SessionHandler().commands
    asyncio.run(serve_api([commands], f"127.0.0.1:{port}", folder / "gateway", asyncio.Event()))


def _gateway(folder: Path) -> None:
    from tests.ingest.fleet.test_grpc_server import Served
    from tests.support.gateways import server_open

    with server_open(Served(), folder) as address:
        _listens(int(address.rpartition(":")[2]))
        threading.Event().wait()


def _dashboard(folder: Path) -> None:
    """Serve pages with a websocket at `/live` that returns the length of each message."""
    from tailorbird.web.dashboard.guard.http_serve import pages_app, serve_pages

    app = pages_app()

    @app.websocket("/live")
    async def live(socket: WebSocket) -> None:
        await socket.accept()
        try:
            while True:
                await socket.send_text(str(len(await socket.receive_text())))
        except WebSocketDisconnect:
            return

    port = free_port()
    _listens(port)
    serve_pages(app, "dashboard", host="127.0.0.1", port=port, reported={})


SERVERS: dict[str, Callable[[Path], None]] = {
    "operation": _operation,
    "replication": _replication,
    "syslog": _syslog,
    "maxscale": _maxscale,
    "api": _api,
    "gateway": _gateway,
    "dashboard": _dashboard,
}


def _listens(port: int) -> None:
    print(port, flush=True)


def _end_with_input() -> None:
    sys.stdin.read()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    threading.Thread(target=_end_with_input, daemon=True).start()
    SERVERS[sys.argv[1]](Path(sys.argv[2]))
    threading.Event().wait()
