"""A receiver of webhooks for tests."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Receiver:
    """Answers with the given statuses, then with 204, and keeps the requests."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.requests: list[tuple[str, Mapping[str, str], bytes]] = []
        self.url = ""

    def events(self) -> list[Mapping[str, Any]]:
        """Return the bodies of all requests."""
        return [json.loads(body) for _, _, body in self.requests]

    def subjects(self) -> set[tuple[str, str]]:
        """Return the type (without its prefix) and the subject of each event."""
        return {(one["type"].removeprefix("io.tailorbird."), one["subject"]) for one in self.events()}


@contextmanager
def receiver(*statuses: int) -> Iterator[Receiver]:
    """Run a receiver on loopback until the block ends."""
    kept = Receiver(*statuses)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            kept.requests.append((self.path, dict(self.headers.items()), body))
            self.send_response(kept.statuses.pop(0) if kept.statuses else 204)
            self.send_header("Location", f"{kept.url}/elsewhere")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept.url = f"http://127.0.0.1:{server.server_port}/hook"
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
