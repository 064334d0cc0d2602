"""Turn the figures of `make bench-start` into lines and a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.page import bullets, page, paragraph

TITLE: Final = "# What a join costs besides its rows"
WHAT: Final = """This page shows how long a join takes to start, and the CPU time of its start, of a batch with few
changes, and of waiting for changes."""
RUN: Final = """Written by `make bench-start ARGS='--output docs/results/start.md'`, {date}, {machine}. The query is
that of `topologies/shop.yml`, with {orders:,} orders. Figures are medians of {rounds} rounds. CPU seconds, user and
system, are those of all processes of the join: Python, the JVM and Python's workers.{before}"""
BEFORE: Final = " Rounds of the commit {before} took turns with those of this tree."
NAMES: Final = {
    "first_row_seconds": "seconds from the start of the process to its first row in HBase",
    "first_row_cpu_seconds": "CPU seconds until the first row",
    "first_minute_cpu_seconds": "CPU seconds of the first minute, or until the first row if that takes longer",
    "batch_cpu_seconds": "CPU seconds of a batch of ten changes",
    "idle_minute_cpu_seconds": "CPU seconds of a minute without changes",
}


def ratios(medians: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return a line for each figure of `medians["now"]`, with its ratio to `medians["before"]` if that exists."""
    now, before = medians["now"], medians.get("before")
    lines = []
    for name, words in NAMES.items():
        line = f"{words}: {now[name]:.2f}"
        if before is not None:
            line += f", before {before[name]:.2f}: {now[name] / before[name]:.0%}"
        lines.append(line)
    return lines


def document(lines: Sequence[str], date: str, machine: str, rounds: int, orders: int, before: str) -> str:
    """Return the text of docs/results/start.md; `lines` are those that a run prints."""
    compared = BEFORE.format(before=before) if before else ""
    run = RUN.format(date=date, machine=machine, orders=orders, rounds=rounds, before=compared)
    return page(TITLE, paragraph(WHAT), paragraph(run), bullets(lines))
