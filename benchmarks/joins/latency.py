"""Turn samples and the join's log into the figures of `make bench-join-latency`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

LEAST_SAMPLES: Final = 100
_BATCH = re.compile(r' event=batch .* batches=(\d+) milliseconds="(\{[^"]*\})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One change of the sample: its table, when it was appended, and the seconds until a row showed it."""

    table: str
    appended: float
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """Number of batches, and the mean duration of Spark's phases in ms."""

    batches: int
    milliseconds: Mapping[str, float]


def phases_of(log: str) -> Phases:
    """Parse the join's log; each batch line covers the batches since the previous line."""
    reported = [(int(number), ast.literal_eval(means)) for number, means in _BATCH.findall(log)]
    sums: dict[str, float] = defaultdict(float)
    for number, means in reported:
        for phase, milliseconds in means.items():
            sums[phase] += number * milliseconds
    batches = sum(number for number, _ in reported)
    return Phases(batches=batches, milliseconds={phase: total / batches for phase, total in sums.items()})


def found(samples: Sequence[Sample], phases: Phases, *, rate: int) -> str:
    """Return the figures as a Markdown list."""
    middle = (min(s.appended for s in samples) + max(s.appended for s in samples)) / 2
    halves = [[s.seconds for s in samples if (s.appended > middle) == later] for later in (False, True)]
    tables: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        tables[sample.table].append(sample.seconds)
    longest = sorted(phases.milliseconds.items(), key=lambda phase: (-phase[1], phase[0]))
    means = ", ".join(f"{phase} {milliseconds:.0f}" for phase, milliseconds in longest)
    lines = (
        f"Kafka append → row readable in HBase at {rate} changes/s: {_cuts([s.seconds for s in samples])}",
        "p50 of the first half of the time and of the second: " + ", ".join(_p50(half) for half in halves),
        "p50 by table: " + ", ".join(f"{name} {_p50(seconds)}" for name, seconds in sorted(tables.items())),
        f"{phases.batches} batches; mean ms: {means}" if phases.batches else "the join has logged no batch",
    )
    return "\n".join(f"- {line}" for line in lines)


def _cuts(seconds: Sequence[float]) -> str:
    cuts = quantiles(seconds, n=100)
    return f"p50 {cuts[49]:.2f} s, p90 {cuts[89]:.2f} s, p99 {cuts[98]:.2f} s ({len(seconds)} samples)"


def _p50(seconds: Iterable[float]) -> str:
    known = list(seconds)
    return f"{median(known):.2f} s ({len(known)})" if known else "none"
