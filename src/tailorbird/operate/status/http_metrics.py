"""Read the metrics that a process of the pipeline serves."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from cdc.process.tcp_metrics_address import address_to_ask, metrics_address


def read_health(port: int, address: str | None = None) -> dict[str, Any] | None:
    """Return the JSON of a process's `/health`, for any HTTP status. None if there is no answer within a second.

    `address` is in the form of a URL; None: that of processes with this environment."""
    request = urllib.request.Request(f"http://{address or _here()}:{port}/health")
    try:
        with urllib.request.urlopen(request, timeout=1) as answer:
            text = answer.read()
    except urllib.error.HTTPError as error:  # 503 has the reason in its body
        with error:
            text = error.read()
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return None
    try:
        reported = json.loads(text)
    except (ValueError, RecursionError):  # another program's answer may be anything
        return None
    return reported if isinstance(reported, dict) else None


def read_metrics(port: int, address: str | None = None) -> dict[str, float]:
    """Return each metric by name, summed over its labels. Empty if the process does not serve metrics yet."""
    try:
        with urllib.request.urlopen(f"http://{address or _here()}:{port}/metrics", timeout=1) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return {}
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals


def _here() -> str:
    return address_to_ask(metrics_address(os.environ))
