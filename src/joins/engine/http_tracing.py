"""Trace the batches of a join: for each sampled change that a table shows now, spans of its batch and of its sink."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from cdc.otel.http_spans import Tracer
from cdc.otel.stages import CAPTURE, join_stage, sink_stage
from joins.runtime.cuts import Positions
from joins.runtime.sink import Report


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchTimes:
    """Times of a batch in ns since 1970: its begin, when its first row reached the sink, and when all were written."""

    batch: int = -1
    began_ns: int = 0
    reached_ns: int = 0
    written_ns: int = 0


class BatchTraces:
    """Sends the spans of one table's batches. Without a tracer it does nothing."""

    def __init__(self, table: str, tracer: Tracer | None) -> None:
        self._table, self._tracer = table, tracer
        self._times = BatchTimes()

    def begun(self, batch: int) -> None:
        """Note that a batch begins."""
        self._times = BatchTimes(batch=batch, began_ns=time.time_ns())

    def written(self, report: Report) -> None:
        """Note that all rows of the batch are written."""
        now = time.time_ns()
        self._times = replace(self._times, reached_ns=report.reached_ns or now, written_ns=now)

    def reported(self, before: Positions, now: Positions) -> None:
        """Send the spans of the changes that the barriers of these positions add. They are written just now.

        Barriers may follow a batch later, when the positions of its changes become readable: the span of the sink
        contains that time."""
        times = self._times
        if self._tracer is None or not times.written_ns:
            return
        ended, join, sink = time.time_ns(), join_stage(self._table), sink_stage(self._table)
        attributes: dict[str, str | int] = {"tailorbird.table": self._table, "tailorbird.batch": times.batch}
        for change in self._tracer.sampling.between(before, now):
            self._tracer.span(
                change, join, parent=CAPTURE, began_ns=times.began_ns, ended_ns=times.reached_ns, attributes=attributes
            )
            self._tracer.span(
                change, sink, parent=join, began_ns=times.reached_ns, ended_ns=ended,
                attributes={**attributes, "tailorbird.rows_written_ns": times.written_ns},
            )  # fmt: skip
