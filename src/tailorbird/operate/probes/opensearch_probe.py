"""Check whether an OpenSearch server serves requests."""

from __future__ import annotations

import base64
import ssl
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import orjson

from cdc.model.tls import SearchServer
from tailorbird.client.http_redirects import NoRedirect

_TIMEOUT = 3.0


def opensearch_problem(server: SearchServer) -> str:
    """Return the reason why OpenSearch is not ready, or an empty text. Its port opens before it knows its indexes.

    An index that cannot be loaded does not count: only that index is affected."""
    headers = {}
    if server.username is not None:
        credentials = f"{server.username}:{server.password or ''}".encode()
        headers["Authorization"] = "Basic " + base64.b64encode(credentials).decode()
    # a proxy from the environment must not be used between two processes of one machine
    handlers: list[ProxyHandler | HTTPSHandler] = [ProxyHandler({})]
    try:
        if server.url.startswith("https:"):
            handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=server.ca_file)))
        asked = Request(f"{server.url}/_cluster/health?local=true", headers=headers)
        with build_opener(*handlers, NoRedirect).open(asked, timeout=_TIMEOUT) as answer:
            orjson.loads(answer.read())
    except HTTPError as error:
        return f"HTTP {error.code}"
    except (URLError, OSError, ValueError) as error:
        return str(error)
    return ""
