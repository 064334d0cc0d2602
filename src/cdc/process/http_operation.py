"""Serve `/metrics` (Prometheus) and `/health` (200 while data moves, else 503 with the reason) on loopback.

Every process uses this server, with its own health check.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, generate_latest

from cdc.model.errors import UsageError
from cdc.process.verdict import HealthVerdict

Judge = Callable[[], tuple[HealthVerdict, dict[str, object]]]


def serve_operation(port: int, judge: Judge, registry: CollectorRegistry = REGISTRY) -> ThreadingHTTPServer:
    """Serve from daemon threads. `judge` returns the verdict and further fields of `/health`.

    Raises UsageError if the port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/metrics":
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
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    except OSError as error:
        raise UsageError(f"metrics on port {port}: {error}", "choose another --metrics-port") from error
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server
