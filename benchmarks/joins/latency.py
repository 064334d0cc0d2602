"""Turn samples and the join's log into the figures of `make bench-join-latency`."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median, quantiles
from typing import Final

from benchmarks.page import bullets, page, paragraph

LEAST_SAMPLES: Final = 100
TITLE: Final = "# Latency of the join"
WHAT: Final = """This page shows how long the join takes: from a record in Kafka until the joined row can be read in
HBase. Result: {p50:.1f} s (median) at {rate} changes per second."""
RUN: Final = """Written by `make bench-join-latency ARGS='--output docs/results/join-latency.md'`, {date}, {machine}.
The query is that of `topologies/shop.yml`, with {orders:,} orders. The run took {seconds} s after a warm-up of {warm}
s; all servers and the reader of the rows ran on one machine."""
HOW: Final = """The benchmark writes the Kafka records itself, so the times do not include capture. It reads the rows of
a sample of the changes every 20 ms until they show the change. Numbers in parentheses count samples. In the last line,
triggerExecution is the whole batch and the other names are Spark's phases of it."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """When and where a run took place, with its sizes and its duration."""

    date: str
    machine: str
    orders: int
    rate: int
    seconds: int
    warm: int


def document(figures: Sequence[str], samples: Sequence[Sample], run: RunFacts) -> str:
    """Return the text of docs/results/join-latency.md; `figures` are the lines that a run prints."""
    p50 = median(sample.seconds for sample in samples)
    return page(
        TITLE,
        paragraph(WHAT.format(p50=p50, rate=run.rate)),
        paragraph(RUN.format(**asdict(run))),
        paragraph(HOW),
        bullets(figures),
    )


def found(samples: Sequence[Sample], phases: Phases, *, rate: int) -> list[str]:
    """Return the figures, one a line."""
    middle = (min(s.appended for s in samples) + max(s.appended for s in samples)) / 2
    halves = [[s.seconds for s in samples if (s.appended > middle) == later] for later in (False, True)]
    tables: dict[str, list[float]] = defaultdict(list)
    for sample in samples:
        tables[sample.table].append(sample.seconds)
    longest = sorted(phases.milliseconds.items(), key=lambda phase: (-phase[1], phase[0]))
    means = ", ".join(f"{phase} {milliseconds:.0f}" for phase, milliseconds in longest)
    return [
        f"Kafka append → row readable in HBase at {rate} changes/s: {_cuts([s.seconds for s in samples])}",
        "p50 of the first half of the time and of the second: " + ", ".join(_p50(half) for half in halves),
        "p50 by table: " + ", ".join(f"{name} {_p50(seconds)}" for name, seconds in sorted(tables.items())),
        f"{phases.batches} batches; mean ms: {means}" if phases.batches else "the join has logged no batch",
    ]


def _cuts(seconds: Sequence[float]) -> str:
    cuts = quantiles(seconds, n=100)
    return f"p50 {cuts[49]:.2f} s, p90 {cuts[89]:.2f} s, p99 {cuts[98]:.2f} s ({len(seconds)} samples)"


def _p50(seconds: Iterable[float]) -> str:
    known = list(seconds)
    return f"{median(known):.2f} s ({len(known)})" if known else "none"
