"""Prometheus metrics and health of a join."""

from __future__ import annotations

import time
from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge

from cdc.process.http_operation import serve_operation
from cdc.process.verdict import HealthTracker
from joins.engine.progress import BatchProgress
from joins.runtime.cuts import Lag, Positions
from joins.runtime.sink import Report


class JoinMetrics:
    """The metrics of one table's join. Served on 127.0.0.1 if a port is given."""

    def __init__(self, table: str, port: int) -> None:
        self.health = HealthTracker()
        self.registry = registry = CollectorRegistry()

        def gauge(name: str, what: str, *labels: str) -> Gauge:
            return Gauge(f"tailorbird_join_{name}", what, ["table", *labels], registry=registry)

        self._rows = Counter(
            "tailorbird_joined_rows_total", "Rows put or deleted in HBase.", ["table"], registry=registry
        ).labels(table)
        self._dead = Counter(
            "tailorbird_dead_letters_total", "Records refused, and kept as dead letters.", ["stage"], registry=registry
        ).labels("join")
        self._late = Counter(
            "tailorbird_join_late_rows_total",
            "Rows that arrived after the watermark of a join by time, and are dead letters.",
            ["table"],
            registry=registry,
        ).labels(table)
        self._watermarks = gauge(
            "watermark_seconds", "Time (since 1970) before which a join by time accepts no more rows."
        )
        self._batch = gauge("batch", "The last batch that was written completely.").labels(table)
        self._input = gauge("input_changes_per_second", "Changes read per second in the last batch.").labels(table)
        self._phase = gauge("batch_seconds", "Time of the last batch by phase, as Spark reports it.", "phase")
        self._state_rows = gauge(
            "state_rows", "Rows in each stateful operator's store (RocksDB's estimate).", "operator"
        )
        self._state_bytes = gauge("state_bytes", "Size of each stateful operator's store.", "operator")
        self._behind = gauge("lag_changes", "Changes in the log that no batch has read yet.").labels(table)
        self._seconds = gauge("lag_seconds", "Age of the oldest source position the table does not show.", "source")
        self._positions = gauge("lag_positions", "Source positions that the table does not show.", "source")
        self._drifted = gauge(
            "drifted_columns", "Used columns that their source has dropped, or changed to another type."
        ).labels(table)
        self._incomplete = gauge(
            "incomplete_records", "Open dead-letter records of this join: the table lacks their changes."
        ).labels(table)
        self._cuts = Counter(
            "tailorbird_join_cuts_total",
            "Batches whose end was published, by whether they end exactly at a position of the source.",
            ["table", "source", "exact"],
            registry=registry,
        )
        self._table = table
        if port:
            serve_operation(port, lambda: (self.health.judge(time.monotonic()), {}), registry)

    def written(self, batch: int, report: Report) -> None:
        """Count a batch whose rows are all written."""
        self._rows.inc(report.rows_put + report.rows_gone)
        self._dead.inc(report.refused)
        self._late.inc(report.late)
        self._batch.set(batch)

    def progress(self, progress: BatchProgress) -> None:
        """Publish the progress of the last batch."""
        self._input.set(progress.changes_per_second)
        self._behind.set(progress.behind)
        for phase, seconds in progress.phases.items():
            self._phase.labels(self._table, phase).set(seconds)
        for operator in progress.operators:
            if operator.rows is not None:
                self._state_rows.labels(self._table, operator.name).set(operator.rows)
            self._state_bytes.labels(self._table, operator.name).set(operator.bytes)

    def cut(self, positions: Positions) -> None:
        """Count the source positions that new barriers have, by source."""
        for source, position in positions.items():
            self._cuts.labels(self._table, source, str(position["exact"]).lower()).inc()

    def watermark(self, milliseconds: int) -> None:
        """Publish the watermark of the last batch, for a join by time."""
        self._watermarks.labels(self._table).set(milliseconds / 1000)

    def incomplete(self, records: int) -> None:
        """Publish how many open dead-letter records the table lacks."""
        self._incomplete.set(records)

    def drifted(self, columns: int) -> None:
        """Publish how many columns of the plan are affected by schema changes."""
        self._drifted.set(columns)

    def lag(self, lags: Mapping[str, Lag]) -> None:
        """Publish how far the table lags each source's committed positions."""
        for source, lag in lags.items():
            self._seconds.labels(self._table, source).set(lag.seconds)
            self._positions.labels(self._table, source).set(lag.positions)
