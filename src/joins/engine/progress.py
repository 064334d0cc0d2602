"""Convert Spark's progress report of a batch to the figures that a join publishes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Operator:
    """One stateful operator after a batch: the entries in its state store (None: not counted), and its size in
    bytes."""

    name: str
    rows: int | None
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchProgress:
    """One batch: changes read, changes per second, seconds by phase, and the stateful operators.

    `behind` is the number of changes that are not read yet."""

    batch: int
    changes: int
    changes_per_second: float
    phases: Mapping[str, float]
    operators: tuple[Operator, ...]
    behind: int


def progress_of(report: Mapping[str, Any], state: Sequence[Operator] = ()) -> BatchProgress:
    """Convert the JSON of a `StreamingQueryProgress`. Raises KeyError if it is another object.

    `state`, if given, replaces the operators of the report: Spark counts rows only at the cost of a read before each
    write."""
    operators = report["stateOperators"]
    return BatchProgress(
        batch=report["batchId"],
        changes=report["numInputRows"],
        changes_per_second=report.get("processedRowsPerSecond") or 0.0,
        phases={name: milliseconds / 1000 for name, milliseconds in report["durationMs"].items()},
        operators=tuple(state) or tuple(_operator(number, one) for number, one in enumerate(operators)),
        behind=sum(_behind(source) for source in report["sources"]),
    )


def mean_milliseconds(reports: Sequence[Mapping[str, Any]]) -> dict[str, int]:
    """Return the mean duration of batches by phase in ms, longest first. A phase that a report lacks counts as 0."""
    phases = {phase for report in reports for phase in report["durationMs"]}
    means = {phase: round(sum(one["durationMs"].get(phase, 0) for one in reports) / len(reports)) for phase in phases}
    return dict(sorted(means.items(), key=lambda phase: (-phase[1], phase[0])))


def _operator(number: int, report: Mapping[str, Any]) -> Operator:
    custom = report.get("customMetrics", {})
    size = custom.get("rocksdbSstFileSize", custom.get("rocksdbTotalBytesWritten", 0))
    return Operator(name=f"operator {number}", rows=int(report["numRowsTotal"]) or None, bytes=int(size))


def _behind(source: Mapping[str, Any]) -> int:
    """Return the number of offsets between the end of a batch and the end of the log, over all partitions."""
    latest, reached = source.get("latestOffset"), source.get("endOffset")
    if not isinstance(latest, dict) or not isinstance(reached, dict):
        return 0
    return sum(
        max(0, end - reached.get(topic, {}).get(partition, 0))
        for topic, partitions in latest.items()
        for partition, end in partitions.items()
    )
