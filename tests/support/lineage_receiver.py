"""A receiver of OpenLineage events for tests: it keeps what is posted, or answers with errors, or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class LineageReceiver:
    """The received events, in order. `status` is the HTTP status of answers, and `location` where they redirect to.
    Status 0 answers nothing until `released`."""

    def __init__(self, port: int) -> None:
        self.port, self.status, self.location = port, 201, ""
        self.events: list[dict[str, Any]] = []
        self.texts: list[str] = []
        self.keys: list[str] = []
        self.released = threading.Event()

    def environ(self) -> dict[str, str]:
        """Return the variables that make a process send its events here."""
        return {"OPENLINEAGE_URL": f"http://127.0.0.1:{self.port}", "OPENLINEAGE_API_KEY": "key-of-the-receiver"}

    def steps(self, job: str) -> list[str]:
        """Return the event types of a job's runs."""
        return [one["eventType"] for one in self.of(job)]

    def of(self, job: str) -> list[dict[str, Any]]:
        """Return the events of a job."""
        return [one for one in self.events if one["job"]["name"] == job]

    def columns(self, job: str, side: str) -> dict[str, dict[str, str]]:
        """Return the newest columns and types of each input or output (`side`) of a job, by name."""
        found: dict[str, dict[str, str]] = {}
        for event in self.of(job):
            for one in event[side]:
                fields = one["facets"].get("schema", {}).get("fields", [])
                found[one["name"]] = {field["name"]: field["type"] for field in fields}
        return found

    def origins(self, job: str) -> dict[str, dict[str, set[tuple[str, str, str]]]]:
        """Return, for each output and field, the (dataset, field, way) on which its values depend."""
        found: dict[str, dict[str, set[tuple[str, str, str]]]] = {}
        for event in self.of(job):
            for one in event["outputs"]:
                fields = one["facets"].get("columnLineage", {}).get("fields", {})
                found[one["name"]] = {name: _ways(of["inputFields"]) for name, of in fields.items()}
        return found


def _ways(inputs: list[dict[str, Any]]) -> set[tuple[str, str, str]]:
    return {(one["name"], one["field"], way["subtype"]) for one in inputs for way in one["transformations"]}


@contextmanager
def lineage_receiver() -> Iterator[LineageReceiver]:
    """Run a receiver until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            if not (status := kept.status):
                kept.released.wait(60)
                status = 500
            if status < 300:
                assert self.path == "/api/v1/lineage"
                kept.texts.append(body)
                kept.keys.append(self.headers.get("Authorization", ""))
                kept.events.append(json.loads(body))
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if kept.location:
                self.send_header("Location", kept.location)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    kept = LineageReceiver(server.server_port)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield kept
    finally:
        kept.released.set()
        server.shutdown()
        server.server_close()
