"""Write docs/results/freshness.md from the times of the tracked changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.joins.latency import Phases
from benchmarks.page import page, paragraph
from tailorbird.devtools.demo.run_freshness import percentile

BUSY: Final = 1.0  # load average from which the times are not reliable
STAGES: Final = (
    "COMMIT → readable in Kafka (capture, Kafka's transaction)",
    "→ its batch begins to write (waits for the batch before it; Spark's planning)",
    "→ posted to Solr (join, HBase, replication, indexer)",
    "→ shown by a query (Solr's commit; half of the 0.1 s between two queries)",
)
TITLE: Final = "# How long a change takes, by stage"
WHAT: Final = """This page shows how much time each stage takes, from a COMMIT in the source database until a query of
Solr shows the change. Result: {waits:.0%} of the time is waiting for the join's next batch, and {batch:.0%} is that
batch, with HBase and the indexer after it."""
COMMAND: Final = '    make bench-freshness ARGS="--seconds {seconds} --output docs/results/freshness.md"'
HOW: Final = """The command needs the servers of `tailorbird stack up`. It runs the demo: at least {rows:,} rows, and
{rate:.0f} changes per second. It follows {tracked:.0f} changes of `orders` per second through all stages
(`benchmarks/bench_freshness.py`)."""
MACHINE: Final = "Date and machine: {date}, {machine}, load average {load:.0f}.{busy}"
MACHINE_BUSY: Final = " The machine was busy with other work. So the shares are meaningful, not the absolute times."
TABLE: Final = """{changes} changes, in ms. Each stage begins where the stage above it ends. `share` is the part of the
mean of all stages; p50, p90 and p99 are percentiles:"""
BATCHES: Final = """The join ran {batches} batches. Spark's phases, mean ms: {means}. CPU steal (CPU time that the
virtual machine's host took) during the run: {withheld:.1%}."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The settings of a run and its machine; `withheld` is the share of CPU steal."""

    date: str
    machine: str
    load: float
    seconds: int
    rate: float
    rows: int
    tracked: float
    withheld: float


def document(changes: Sequence[Sequence[int]], phases: Phases, run: Run) -> str:
    """Return the text of the page; `changes` has the milliseconds of each stage for every tracked change."""
    shares = _shares(changes)
    return page(
        TITLE,
        paragraph(WHAT.format(waits=shares[1], batch=shares[2])),
        COMMAND.format(seconds=run.seconds),
        paragraph(HOW.format(rows=run.rows, rate=run.rate, tracked=run.tracked)),
        paragraph(
            MACHINE.format(
                date=run.date, machine=run.machine, load=run.load, busy=MACHINE_BUSY if run.load > BUSY else ""
            )
        ),
        *figures(changes, phases, run.withheld),
    )


def figures(changes: Sequence[Sequence[int]], phases: Phases, withheld: float) -> tuple[str, str, str]:
    """Return the table with its heading, and the sentence on the join's batches."""
    longest = sorted(phases.milliseconds.items(), key=lambda phase: (-phase[1], phase[0]))
    means = ", ".join(
        f"{phase} {milliseconds:.0f}{' (the whole batch)' if phase == 'triggerExecution' else ''}"
        for phase, milliseconds in longest
    )
    batches = BATCHES.format(batches=phases.batches, means=means, withheld=withheld)
    return paragraph(TABLE.format(changes=len(changes))), table(changes), paragraph(batches)


def table(changes: Sequence[Sequence[int]]) -> str:
    """Return the stages as Markdown: their means add up to the mean of all stages, their percentiles do not."""
    lines = ["| stage | mean | share | p50 | p90 | p99 |", "|---|--:|--:|--:|--:|--:|"]
    lines.append(_row("all stages", [sum(change) for change in changes], ""))
    for number, (name, share) in enumerate(zip(STAGES, _shares(changes), strict=True)):
        lines.append(_row(name, [change[number] for change in changes], f"{100 * share:.0f} % "))
    return "\n".join(lines)


def _row(name: str, found: Sequence[int], share: str) -> str:
    cuts = " | ".join(str(percentile(list(found), part)) for part in (0.5, 0.9, 0.99))
    return f"| {name} | {sum(found) / len(found):.0f} | {share}| {cuts} |"


def _shares(changes: Sequence[Sequence[int]]) -> list[float]:
    """Return each stage's share of the time of all changes."""
    sums = [sum(stage) for stage in zip(*changes, strict=True)]
    return [each / max(1, sum(sums)) for each in sums]
