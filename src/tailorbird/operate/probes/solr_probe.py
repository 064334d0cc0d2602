"""Check whether a Solr server has loaded its cores."""

from __future__ import annotations

from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

import orjson

# a proxy from the environment must not be used between two processes of one machine
_OPENER = build_opener(ProxyHandler({}))


def solr_problem(address: str) -> str:
    """Return the reason why Solr is not ready, or an empty text. Its port opens long before its cores are loaded.

    A core that cannot be loaded does not count: only its own index is affected."""
    try:
        with _OPENER.open(f"{address}/admin/cores?action=STATUS&indexInfo=false&wt=json", timeout=3.0) as answer:
            orjson.loads(answer.read())
    except (URLError, OSError, ValueError) as error:
        return str(error)
    return ""
