"""Serves the join's counters to Prometheus."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

from cdc.errors import UsageError
from joins.sink import Report


class Metrics:
    """What became of the batches of one table; served on 127.0.0.1 when given a port."""

    def __init__(self, table: str, port: int) -> None:
        registry = CollectorRegistry()
        self._rows = Counter(
            "tailorbird_joined_rows_total", "Rows put or deleted in HBase.", ["table"], registry=registry
        ).labels(table)
        self._batch = Gauge(
            "tailorbird_join_batch", "The last batch that was written whole.", ["table"], registry=registry
        ).labels(table)
        self._dead = Counter(
            "tailorbird_dead_letters_total", "Records quarantined.", ["stage"], registry=registry
        ).labels("join")
        self._phase = Gauge(
            "tailorbird_join_batch_seconds",
            "Time of the last batch by phase, as Spark reports it.",
            ["table", "phase"],
            registry=registry,
        )
        self._state = Gauge(
            "tailorbird_join_state_keys", "Keys in each stateful operator.", ["table", "operator"], registry=registry
        )
        self._table = table
        if port:
            try:
                start_http_server(port, addr="127.0.0.1", registry=registry)
            except OSError as error:
                raise UsageError(
                    f"port {port} for metrics: {error.strerror}", "choose another --metrics-port"
                ) from error

    def written(self, batch: int, report: Report) -> None:
        """A batch was written whole."""
        self._rows.inc(report.rows_put + report.rows_gone)
        self._dead.inc(report.refused)
        self._batch.set(batch)

    def progress(self, phases: Mapping[str, float], keys: Mapping[str, int]) -> None:
        """How long the phases of the last batch took (seconds), and how many keys each operator holds."""
        for phase, seconds in phases.items():
            self._phase.labels(self._table, phase).set(seconds)
        for operator, count in keys.items():
            self._state.labels(self._table, operator).set(count)
