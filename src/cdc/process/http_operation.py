"""Serve `/metrics` (Prometheus) and `/health` (200 while data moves, else 503 with the reason).

Every process uses this server, with its own health check. It listens on loopback, or on the address that
TAILORBIRD_METRICS_ADDRESS names.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from cdc.model.connections import ConnectionLimits
from cdc.model.errors import UsageError
from cdc.process.tcp_bounded import BoundedListener
from cdc.process.tcp_metrics_address import VARIABLE, answers_for, metrics_address
from cdc.process.verdict import HealthVerdict

Judge = Callable[[], tuple[HealthVerdict, dict[str, object]]]
LIMITS = ConnectionLimits(most=48, idle_each=32, idle=10.0)  # each connection has a thread
_LONGEST = 16 * 1024  # maximum bytes of a request


class _ShortRequest:
    """The first bytes of a stream: a longer request ends early, and is therefore invalid."""

    def __init__(self, stream: Any) -> None:
        self._stream, self._left = stream, _LONGEST

    def readline(self, limit: int) -> bytes:
        line: bytes = self._stream.readline(min(limit, self._left))
        self._left -= len(line)
        return line

    def close(self) -> None:
        self._stream.close()


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler, bind_and_activate=False)
        self.socket.close()
        self.socket = self._listener = BoundedListener("operation", address, LIMITS)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.socket.getsockname()[:2]

    def process_request(self, request: Any, client_address: Any) -> None:
        """Begin a thread for a connection, and for all that were accepted with it."""
        super().process_request(request, client_address)
        while (one := self._listener.more()) is not None:
            super().process_request(*one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do not report clients that disconnect or exceed a limit."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


def serve_operation(port: int, judge: Judge, registry: CollectorRegistry = REGISTRY) -> ThreadingHTTPServer:
    """Serve from daemon threads. `judge` returns the verdict and further fields of `/health`.

    Raises UsageError if the port is taken, or if the environment's address is invalid.
    """
    listening = metrics_address(os.environ)

    class Handler(BaseHTTPRequestHandler):
        timeout = LIMITS.idle  # seconds without a byte

        def setup(self) -> None:
            super().setup()
            self.rfile: Any = _ShortRequest(self.rfile)

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if not answers_for(self.headers.get("Host", ""), listening):
                self._answer(421, "text/plain", b"ask for the IP address, or for localhost\n")
            elif path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(registry))
            elif path in ("/health", "/"):
                verdict, more = judge()
                body = {"status": verdict.status, "reason": verdict.reason, **more}
                text = json.dumps(body).encode() + b"\n"
                self._answer(200 if verdict.healthy else 503, "application/json", text)
            else:
                self._answer(404, "text/plain", b"/metrics or /health\n")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    try:
        server = _Server((listening, port), Handler)
    except OSError as error:
        remedy = f"choose another --metrics-port, or correct {VARIABLE}"
        raise UsageError(f"metrics on {listening}, port {port}: {error}", remedy) from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
