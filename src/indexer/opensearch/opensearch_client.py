"""Requests to one OpenSearch: errors by what a caller can do about them, without credentials in messages."""

from __future__ import annotations

import logging
import ssl
from typing import Any
from urllib.parse import urlencode

import orjson
from opensearchpy import OpenSearch as Library
from opensearchpy.exceptions import ConnectionError as NoConnection
from opensearchpy.exceptions import SerializationError, TransportError
from opensearchpy.serializer import JSONSerializer

from cdc.model.errors import Retriable, UsageError
from cdc.topology.topology import OpenSearch

UNAVAILABLE = "`tailorbird stack status`; HBase keeps the backlog until then"
_CONNECTIONS = 8
_REASON_LENGTH = 500
# What a caller decides about: a refused, missing, conflicting or too long request. Other errors pass with time.
_CALLERS = (400, 404, 409, 413)


class _Serializer(JSONSerializer):
    """Parses responses with orjson."""

    def loads(self, data: Any) -> Any:
        """Return the value of a response's body."""
        try:
            return orjson.loads(data)
        except ValueError as error:
            raise SerializationError(data, error) from error


class OpenSearchClient:
    """Requests to one OpenSearch. Threads may share it. No request is repeated."""

    def __init__(self, server: OpenSearch, *, timeout: float) -> None:
        # it logs each response of an error, also those that are expected, and stack traces
        logging.getLogger("opensearch").setLevel(logging.CRITICAL)
        self._server = server
        credentials = None if server.username is None else (server.username, server.password or "")
        self._library = Library(
            hosts=[server.url],
            http_auth=credentials,
            ssl_context=_tls(server) if server.url.startswith("https:") else None,
            timeout=timeout,
            max_retries=0,
            pool_maxsize=_CONNECTIONS,
            serializer=_Serializer(),
        )

    @property
    def url(self) -> str:
        """Return the address, for messages."""
        return self._server.url

    def close(self) -> None:
        """Close the connections."""
        self._library.close()

    def call(self, method: str, path: str, body: object = None, **parameters: str | int) -> tuple[int, Any]:
        """Send a request. Return the HTTP status (200 for any success) and the decoded response.

        `body` is sent as it is if it is bytes, otherwise as JSON. Raises Retriable if OpenSearch does not answer,
        rejects the request because it is busy (429), refuses the credentials or fails."""
        content = body if body is None or isinstance(body, bytes) else orjson.dumps(body)
        # in the path, because the library takes a parameter `timeout` for itself
        target = f"{path}?{urlencode(parameters)}" if parameters else path
        try:
            answer = self._library.transport.perform_request(method, target, body=content)
        except NoConnection as error:
            what = f"OpenSearch at {self.url} does not answer: {type(error).__name__}"
            raise Retriable(what, UNAVAILABLE) from error
        except TransportError as error:
            status, reported = int(error.status_code), error.info
            if status in _CALLERS:
                return status, reported
            raise self._failed(status, reported) from error
        except SerializationError as error:
            raise Retriable(
                f"OpenSearch at {self.url} answers with other than JSON", "correct opensearch.url"
            ) from error
        return 200, answer

    def failed(self, status: int, answer: object, what: str) -> Retriable:
        """Return the error for a status that the caller cannot handle."""
        return Retriable(f"OpenSearch at {self.url}: HTTP {status} for {what}: {reason_of(answer)}", UNAVAILABLE)

    def _failed(self, status: int, answer: object) -> Retriable:
        if status == 401:
            who = f"user {self._server.username}" if self._server.username else "a request without credentials"
            return Retriable(
                f"OpenSearch at {self.url} refuses {who}: HTTP 401",
                "set opensearch.username and opensearch.password in the topology",
            )
        return Retriable(f"OpenSearch at {self.url}: HTTP {status}: {reason_of(answer)}", UNAVAILABLE)


def _tls(server: OpenSearch) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=server.ca_file)
    except OSError as error:
        hint = "name a file of certificates in PEM form"
        raise UsageError(f"opensearch.ca_file {server.ca_file}: {error}", hint) from error


def missing(collection: str) -> Retriable:
    """Return the error for a collection that OpenSearch does not have. It is not fatal: `apply` may create it."""
    return Retriable(f"OpenSearch does not serve collection {collection}", "create it: `tailorbird apply`")


def reason_of(answer: object) -> str:
    """Return the reason in an error response, or of one document of a bulk request."""
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    if not isinstance(error, dict):
        return str(error)[:_REASON_LENGTH]
    reasons = [str(error.get("reason", error.get("type", "")))]
    cause = error.get("caused_by")
    while isinstance(cause, dict):
        reasons.append(str(cause.get("reason", "")))
        cause = cause.get("caused_by")
    return ": ".join(one for one in reasons if one)[:_REASON_LENGTH]
