"""Counters and health of the indexer."""

from __future__ import annotations

import time

from prometheus_client import CollectorRegistry, Counter, Gauge

from cdc.process.http_operation import serve_operation
from cdc.process.verdict import HealthTracker
from indexer.index.processor import Tally


class IndexMetrics:
    """Counts the batches of one index and their results. Serves the counters on 127.0.0.1 if a port is given."""

    def __init__(self, index: str, port: int) -> None:
        self.health = HealthTracker()
        self.registry = registry = CollectorRegistry()
        self._documents = Counter(
            "tailorbird_indexed_documents_total",
            "Documents that Solr accepted: rows and tombstones, including repeats, without barriers.",
            ["index"],
            registry=registry,
        ).labels(index)
        self._barriers = Counter(
            "tailorbird_indexed_barriers_total", "Barriers that Solr accepted.", ["index"], registry=registry
        ).labels(index)
        self._dead = Counter(
            "tailorbird_dead_letters_total", "Rows refused, and written as dead letters.", ["stage"], registry=registry
        ).labels("indexer")
        self._sent_back = Counter(
            "tailorbird_index_batches_sent_back_total",
            "Batches sent back to HBase, which sends them again.",
            ["index"],
            registry=registry,
        ).labels(index)
        self._lag = Gauge(
            "tailorbird_index_lag_seconds",
            "Age of the newest edit of the last batch when Solr had accepted it.",
            ["index"],
            registry=registry,
        ).labels(index)
        if port:
            serve_operation(port, lambda: (self.health.judge(time.monotonic()), {}), registry)

    def handled(self, tally: Tally, lag_seconds: float) -> None:
        """Count a batch that was acknowledged. `lag_seconds` is the age of its newest edit."""
        self._documents.inc(tally.accepted)
        self._barriers.inc(tally.barriers)
        self._dead.inc(tally.dead)
        self._lag.set(max(0.0, lag_seconds))

    def sent_back(self) -> None:
        """Count a batch that was not acknowledged. HBase keeps it and sends it again."""
        self._sent_back.inc()
