"""HTTP connections to one Solr. They are reused, check that Solr is ready, and keep credentials out of messages."""

from __future__ import annotations

import base64
import contextlib
import http.client
import ssl
import threading
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import orjson
import requests

from cdc.model.errors import Retriable, UsageError
from cdc.topology.topology import Solr

UNAVAILABLE = "`tailorbird stack status`; HBase keeps the backlog until then"
Exchange = Callable[[str, str, bytes | None], "tuple[int, bytes]"]


def _anything_goes(exchange: Exchange) -> None:
    """Accept Solr in any state. The default of `ready`, for callers that only read."""


class SolrConnections:
    """Requests to one Solr. Threads may share it: each request borrows a connection.

    `ready` is called on every new connection, before its first request, and raises Retriable while Solr must not be
    written to. A connection ends with its Solr process, so one check per connection is enough. A request may be sent
    twice if a reused connection turns out to be closed, so every request must be repeatable. Raises Retriable if
    Solr does not answer."""

    def __init__(self, solr: Solr, *, timeout: float, ready: Callable[[Exchange], None] = _anything_goes) -> None:
        self._solr, self._timeout, self._ready = solr, timeout, ready
        parts = urlsplit(solr.url)
        self._host, self._port, self._base = parts.hostname or "", parts.port, parts.path
        self._tls = _tls(solr) if parts.scheme == "https" else None
        self._headers = {"Content-Type": "application/json", "Accept": "application/json"}
        if solr.username is not None:
            credentials = f"{solr.username}:{solr.password or ''}".encode()
            self._headers["Authorization"] = "Basic " + base64.b64encode(credentials).decode()
        self._kept: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()

    def request(self, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
        """Send a request. `path` is relative to `/solr`. Return the HTTP status and the body of the response.

        If a kept connection fails, the request is sent again over a new one. Raises Retriable if Solr is
        unavailable."""
        with self._lock:
            connection = self._kept.pop() if self._kept else None
        if connection is not None:
            try:
                return self._exchange(connection, method, path, body)
            except (OSError, http.client.HTTPException):
                # Solr closes idle connections; a new one shows whether it is available
                connection.close()
        fresh = self._open()
        try:
            self._ready(lambda method, path, body: self._send(fresh, method, path, body))
            return self._exchange(fresh, method, path, body)
        except (OSError, http.client.HTTPException) as error:
            fresh.close()
            raise self._unavailable(error) from error
        except BaseException:
            fresh.close()
            raise

    def json(self, method: str, path: str, body: object = None) -> tuple[int, dict[str, Any]]:
        """Send a request with a JSON body. Return the HTTP status and the decoded response.

        A response that is not JSON becomes `{"error": {"msg": …}}`. Raises Retriable for the statuses 401 and 403, and
        while Solr does not answer."""
        status, answer = self.request(method, path, None if body is None else orjson.dumps(body))
        try:
            value: dict[str, Any] = orjson.loads(answer)
        except orjson.JSONDecodeError:
            value = {"error": {"msg": answer[:300].decode(errors="replace")}}
        return status, value

    def close(self) -> None:
        """Close the kept connections."""
        with self._lock:
            for connection in self._kept:
                connection.close()
            self._kept.clear()

    def _open(self) -> http.client.HTTPConnection:
        if self._tls is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout)

    def _exchange(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        answer = self._send(connection, method, path, body)
        if connection.sock is None:  # Solr requested to close the connection
            return answer
        with self._lock:
            self._kept.append(connection)
        return answer

    def _send(
        self, connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None
    ) -> tuple[int, bytes]:
        # Without this, http.client would open another connection by itself, without `ready`.
        connection.request(method, self._base + path, body, self._headers)
        connection.auto_open = 0
        with contextlib.closing(connection.getresponse()) as response:
            answer = response.read()
        if response.status in (401, 403):
            who = f"user {self._solr.username}" if self._solr.username else "a request without credentials"
            raise Retriable(
                f"Solr at {self._solr.url} refuses {who}: HTTP {response.status}",
                "set solr.username and solr.password in the topology",
            )
        return response.status, answer

    def _unavailable(self, error: Exception) -> Retriable:
        reason = f"{type(error).__name__}: {error}" if isinstance(error, ssl.SSLError) else type(error).__name__
        return Retriable(f"Solr at {self._solr.url} does not answer: {reason}", UNAVAILABLE)


def reading_session(solr: Solr) -> requests.Session:
    """Return a session of `requests`, for pysolr and plain reads, with the credentials and certificates of the
    topology."""
    session = requests.Session()
    # a proxy from the environment must not be used between two processes of one machine
    session.trust_env = False
    if solr.username is not None:
        session.auth = (solr.username, solr.password or "")
    if solr.ca_file is not None:
        session.verify = solr.ca_file
    return session


def _tls(solr: Solr) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=solr.ca_file)
    except OSError as error:
        raise UsageError(f"solr.ca_file {solr.ca_file}: {error}", "name a file of certificates in PEM form") from error
