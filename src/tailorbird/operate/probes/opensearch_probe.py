"""Check whether an OpenSearch server serves requests."""

from __future__ import annotations

import base64
import ssl
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import orjson

_TIMEOUT = 3.0


def opensearch_problem(
    url: str, *, username: str | None = None, password: str | None = None, ca_file: str | None = None
) -> str:
    """Return the reason why OpenSearch is not ready, or an empty text. Its port opens before it knows its indexes.

    An index that cannot be loaded does not count: only that index is affected."""
    headers = {}
    if username is not None:
        headers["Authorization"] = "Basic " + base64.b64encode(f"{username}:{password or ''}".encode()).decode()
    # a proxy from the environment must not be used between two processes of one machine
    handlers: list[ProxyHandler | HTTPSHandler] = [ProxyHandler({})]
    try:
        if url.startswith("https:"):
            handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=ca_file)))
        asked = Request(f"{url}/_cluster/health?local=true", headers=headers)
        with build_opener(*handlers).open(asked, timeout=_TIMEOUT) as answer:
            orjson.loads(answer.read())
    except HTTPError as error:
        return f"HTTP {error.code}"
    except (URLError, OSError, ValueError) as error:
        return str(error)
    return ""
