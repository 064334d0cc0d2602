"""Write docs/results/dashboard.md from the figures of a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchmarks.page import page, paragraph

PANEL: Final = "Solr: {type}, {title}, p95, ms"
SERVER: Final = "time that the server of the page adds, p95, ms"
PAINT: Final = "first paint in the browser, ms"
DRAWN: Final = "every panel drawn, ms"
MEMORY: Final = "memory of the server after {all:.0f} s of 50 viewers, relative to {start:.0f} s"
QUERIES: Final = "queries of 50 viewers, relative to one viewer"

TITLE: Final = "# Panels over a million documents"
WHAT: Final = """This page shows how long Solr and the browser need for the panels of a [dashboard](../dashboard.md).
Result: {limits}; the slowest panel takes {slowest:.0f} ms (p95)."""
HOW: Final = """`make bench-dashboard`, one run: {rows:,} documents, 30 countries, about 5,000 products, times of one
year. Each panel was queried {rounds} times, each time with a time range that Solr had not cached, and half of the times
with a filter by country, too. Machine: {machine}; {load}. The last two figures are ratios."""
QUIET: Final = "nothing else ran while Solr was timed"
BUSY: Final = "other work ran at the same time (load average {load:.0f})"


@dataclass(frozen=True, slots=True)
class Figure:
    """A measured value and its limit; None: no limit."""

    name: str
    value: float
    limit: float | None

    @property
    def holds(self) -> bool:
        """True if the value does not exceed the limit."""
        return self.limit is None or self.value <= self.limit

    @property
    def row(self) -> str:
        """A row of the table; a value above its limit is bold."""
        if self.limit is None:
            return f"| {self.name} | {self.value:,.0f} | |"
        bold = "" if self.holds else "**"
        return f"| {self.name} | {bold}{self.value:,.2f}{bold} | {self.limit:g} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The settings of a run and its machine; `load` is the load average at the start."""

    rows: int
    rounds: int
    machine: str
    load: float


def document(figures: Sequence[Figure], run: Run) -> str:
    """Return the text of the page."""
    missed = [figure.name for figure in figures if not figure.holds]
    limits = f"limits that are missed: {'; '.join(missed)}" if missed else "all limits hold"
    slowest = max(figure.value for figure in figures if figure.name.startswith("Solr: "))
    busy = BUSY.format(load=run.load) if run.load > 1 else QUIET
    return page(
        TITLE,
        paragraph(WHAT.format(limits=limits, slowest=slowest)),
        paragraph(HOW.format(rows=run.rows, rounds=run.rounds, machine=run.machine, load=busy)),
        table(figures),
    )


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as Markdown."""
    return "\n".join(["| figure | measured | limit |", "|---|---:|---:|", *(figure.row for figure in figures)])
