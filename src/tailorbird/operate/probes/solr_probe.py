"""Whether the Solr of the stack serves every core that it has."""

from __future__ import annotations

import json
from urllib.error import URLError
from urllib.request import ProxyHandler, build_opener

# a proxy from the environment must not stand between two processes of one machine
_OPENER = build_opener(ProxyHandler({}))


def solr_problem(address: str) -> str:
    """Why Solr is not ready, empty when it is: its port opens long before its cores are loaded.

    A core that can not be loaded does not count: it is one index's problem, and the others are served.
    """
    try:
        with _OPENER.open(f"{address}/admin/cores?action=STATUS&indexInfo=false&wt=json", timeout=3.0) as answer:
            json.load(answer)
    except (URLError, OSError, ValueError) as error:
        return str(error)
    return ""
