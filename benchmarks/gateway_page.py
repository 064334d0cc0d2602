"""Write docs/results/gateway.md from the figures of a run."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median
from typing import Final, NamedTuple

from benchmarks.page import page, paragraph

MUST_RATIO, GOAL_RATIO, MUST_CHANGE = 0.7, 0.9, 10
TITLE: Final = "# A gateway with a thousand agents"
WHAT: Final = """This page shows the cost of writing through a [gateway](../fleet.md) instead of directly to Kafka.
Result: {ratio:.2f} of the direct throughput (required: {must}; the goal of {goal} is {reached}), and {agents:,} idle
agents need {idle:.1f}% of a core."""
HOW: Final = """`make bench-gateway ARGS="--turns {turns} --records {records}"`: {machine}, {state}. One writer sends
{records:,} equal records with a commit every 10,000, in turns directly and through a gateway process over mTLS. No
database is read. Then {agents:,} agents connect, each with its own certificate, stream and source. CPU time and memory
are the gateway's."""


class Cost(NamedTuple):
    """Seconds of wall-clock time, and of the gateway's CPU time."""

    seconds: float
    cpu: float


NOTHING: Final = Cost(0.0, 0.0)


@dataclass(slots=True)
class Figures:
    """The figures of a run: records/s, seconds of CPU time, memory in MiB, % of a core while idle."""

    records: int = 0
    agents: int = 0
    direct: list[float] = field(default_factory=list)
    gateway: list[float] = field(default_factory=list)
    spent: float = 0.0
    memory: float = 0.0
    connected: Cost = NOTHING
    changed: Cost = NOTHING
    idle: float = 0.0
    idle_memory: float = 0.0

    @property
    def ratios(self) -> list[float]:
        """Rates through the gateway relative to the direct ones, by turn."""
        return [ours / direct for ours, direct in zip(self.gateway, self.direct, strict=True)]

    def rows(self) -> list[tuple[str, str]]:
        """Return name and value of each figure that was measured."""
        rows: list[tuple[str, str]] = []
        if self.records:
            ratios = ", ".join(f"{ratio:.2f}" for ratio in self.ratios)
            targets = f"(required {MUST_RATIO}, goal {GOAL_RATIO})"
            rows += [
                ("directly", f"{_rates(self.direct)} records/s"),
                ("through the gateway", f"{_rates(self.gateway)} records/s"),
                ("ratio", f"{ratios}: median {median(self.ratios):.2f} {targets}"),
                (
                    f"CPU time of the gateway for {self.records:,} records; memory (RSS)",
                    f"{self.spent:.1f} s; {self.memory:.0f} MiB",
                ),
            ]
        if self.agents:
            (connected, cpu), (changed, change_cpu) = self.connected, self.changed
            took = f"{connected:.1f} s, {cpu:.1f} s of CPU"
            rows += [
                (f"{self.agents:,} agents connected and assigned their sources", took),
                (
                    f"a changed configuration reached all {self.agents:,}",
                    f"{changed:.1f} s (required {MUST_CHANGE}), {change_cpu:.1f} s of CPU",
                ),
                (f"{self.agents:,} idle agents", f"{self.idle:.1f}% of a core; RSS {self.idle_memory:.0f} MiB"),
            ]
        return rows


def document(figures: Figures, machine: str, *, load: float, withheld: float) -> str:
    """Return the text of the page; `load` is the load average before the run, `withheld` the share of CPU steal."""
    ratio = median(figures.ratios)
    steal = f"{withheld:.1%}" if round(withheld, 3) else "no"
    busy = f"with other work running (load average {load:.0f}, " if load > 1 else "otherwise idle ("
    what = WHAT.format(
        ratio=ratio, must=MUST_RATIO, goal=GOAL_RATIO, reached="reached" if ratio >= GOAL_RATIO else "missed",
        agents=figures.agents, idle=figures.idle,
    )  # fmt: skip
    how = HOW.format(
        turns=len(figures.direct), records=figures.records, agents=figures.agents, machine=machine,
        state=f"{busy}{steal} CPU steal)",
    )  # fmt: skip
    rows = [f"| {name} | {value} |" for name, value in figures.rows()]
    return page(TITLE, paragraph(what), paragraph(how), "\n".join(["| figure | measured |", "|---|---|", *rows]))


def _rates(found: list[float]) -> str:
    return ", ".join(f"{rate:,.0f}" for rate in found)
