"""Reads the metrics that a process of the pipeline serves."""

from __future__ import annotations

import urllib.error
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def read_metrics(port: int) -> dict[str, float]:
    """Sum over the labels of every sample, by name; empty while the process does not serve yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=2) as answer:
            text = answer.read().decode()
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return {}
    totals: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            totals[sample.name] = totals.get(sample.name, 0.0) + sample.value
    return totals
