"""A proxy between a page and Solr, which counts the queries and can cut the connection; other tests need Solr
itself."""

from __future__ import annotations

from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from urllib.error import HTTPError
from urllib.request import Request

from tests.support.browser import OPEN


@dataclass
class SolrProxy:
    """A proxy to Solr at the URL `solr`. `queries` are the paths of all queries so far."""

    solr: str
    queries: list[str] = field(default_factory=list)
    port: int = 0
    server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/solr"

    def repair(self) -> None:
        line = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.forward(None)

            def do_POST(self) -> None:
                self.forward(self.rfile.read(int(self.headers["Content-Length"])))

            def forward(self, body: bytes | None) -> None:
                if "/select" in self.path:
                    line.queries.append(self.path)
                headers = {"Content-Type": self.headers["Content-Type"]} if body else {}
                address = line.solr.removesuffix("/solr") + self.path
                try:
                    answer = OPEN.open(Request(address, data=body, headers=headers), timeout=10)
                except HTTPError as error:
                    answer = error
                with answer:
                    content = answer.read()
                    self.send_response(answer.status)
                    self.send_header("Content-Type", answer.headers["Content-Type"])
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Suppress log lines, since tests print nothing of their own."""

        self.server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def cut(self) -> None:
        if self.server:
            self.server.shutdown()
            self.server.server_close()
            self.server = None
