"""The client of a gateway's API sends the operator's token to that gateway alone."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from cdc.model.errors import UsageError
from tailorbird.web.fleet.http_fleet import FleetApi
from tests.support.certificates import self_signed
from tests.support.webhook_receiver import receiver


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    certificate, key = self_signed()
    file = tmp_path / "gateway.pem"
    file.write_bytes(certificate + key)
    return file


@pytest.fixture
def redirecting(certificate: Path) -> Iterator[tuple[HTTPServer, list[str]]]:
    """A server over TLS that redirects each request to the last address of a list."""
    targets = list[str]()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(307)
            self.send_header("Location", targets[-1])
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Do not log requests."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield server, targets
    server.shutdown()
    server.server_close()


def test_a_redirect_is_not_followed(redirecting: tuple[HTTPServer, list[str]], certificate: Path) -> None:
    """Its target would get the token, without TLS if it names http."""
    server, targets = redirecting
    api = FleetApi(f"127.0.0.1:{server.server_port}", certificate, "a token")
    with receiver() as elsewhere:
        targets.append(elsewhere.url)
        with pytest.raises(UsageError, match="HTTP 307"):
            api.ask("GET", "agents")
        assert elsewhere.requests == []
