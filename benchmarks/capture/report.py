"""Turn passes into rates by the broker's clock, ratios, verdicts against the targets, and the page of results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

from benchmarks.page import bullets, page, paragraph, span

Task = Literal["bulk", "oltp", "snapshot"]
Side = Literal["tailorbird", "Debezium"]
TASKS: Final[tuple[Task, ...]] = ("bulk", "oltp", "snapshot")
SIDES: Final[tuple[Side, ...]] = ("tailorbird", "Debezium")
# The last part of a pass is not timed, because it includes the wait for a batch to fill.
TIMED: Final = 0.98
MOST_MEMORY, MOST_IDLE = 150.0, 5.0

# (times Debezium: must, aim), (changes/s: must, aim)
TARGETS: Final[Mapping[Task, tuple[tuple[float | None, float | None], tuple[float | None, float | None]]]] = {
    "bulk": ((0.9, 2.0), (None, 39_000)),
    "oltp": ((1.3, 2.0), (13_000, 39_000)),
    "snapshot": ((None, None), (None, None)),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicCount:
    """Changes of a topic by `op`, the broker's time of each (ms, sorted), and bytes of values, as read_committed."""

    kinds: Mapping[str, int]
    moments: tuple[int, ...]
    size: int

    @property
    def changes(self) -> int:
        """Number of all changes."""
        return len(self.moments)

    @property
    def rate(self) -> float:
        """Changes per second from the first to the one that ends the timed part."""
        last = max(1, int(self.changes * TIMED) - 1)
        return last / max(0.001, (self.moments[last] - self.moments[0]) / 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pass:
    """One pass of one side over one task.

    `memory` is the maximum resident size in MB, `cpu` the CPU seconds of all threads from start to end, `idle` the
    percentage of a core that is used while idle (None: not measured).
    """

    task: Task
    side: Side
    counted: TopicCount
    memory: float
    cpu: float
    idle: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """Microseconds of wall-clock time per change until it is decoded, and until its records exist (Tailorbird)."""

    task: Task
    decoded: float
    recorded: float


def missing(done: Pass, expected: Mapping[str, int]) -> str:
    """Return how the output of a pass differs from the expected changes; empty if each exists exactly once."""
    found = {kind: number for kind, number in done.counted.kinds.items() if number or kind in expected}
    return "" if found == dict(expected) else f"{done.side}, {done.task}: {found} instead of {dict(expected)}"


def rate_of(passes: Sequence[Pass], task: Task, side: Side) -> float | None:
    """Return the median rate of a side's passes over a task."""
    rates = [one.counted.rate for one in passes if one.task == task and one.side == side]
    return median(rates) if rates else None


def verdicts(passes: Sequence[Pass]) -> list[tuple[str, bool]]:
    """Return lines such as `oltp: 1.85× Debezium (required ≥ 1.3: reached)`, and whether each misses its minimum."""
    lines: list[tuple[str, bool]] = []
    for task in TASKS:
        ours, theirs = rate_of(passes, task, "tailorbird"), rate_of(passes, task, "Debezium")
        if ours is None:
            continue
        (ratio_must, ratio_aim), (rate_must, rate_aim) = TARGETS[task]
        if theirs is not None:
            lines.append(_line(f"{task}: {ours / theirs:.2f}× Debezium", ours / theirs, ratio_must, ratio_aim))
        lines.append(_line(f"{task}: {ours:,.0f} changes/s", ours, rate_must, rate_aim))
    streamed = [one for one in passes if one.side == "tailorbird" and one.task != "snapshot"]
    if streamed:
        memory = max(one.memory for one in streamed)
        lines.append((f"streaming: {memory:.0f} MB resident (required ≤ {MOST_MEMORY:g}{_met(memory <= MOST_MEMORY)})",
                      memory > MOST_MEMORY))  # fmt: skip
    idle = [one.idle for one in passes if one.side == "tailorbird" and one.idle is not None]
    if idle:
        lines.append((f"idle: {max(idle):.1f} % of a core (required ≤ {MOST_IDLE:g}{_met(max(idle) <= MOST_IDLE)})",
                      max(idle) > MOST_IDLE))  # fmt: skip
    return lines


def _line(text: str, value: float, must: float | None, aim: float | None) -> tuple[str, bool]:
    words = [
        f"{word} ≥ {asked:,g}{_met(value >= asked)}"
        for word, asked in (("required", must), ("goal", aim))
        if asked is not None
    ]
    return text + (f" ({', '.join(words)})" if words else ""), must is not None and value < must


def _met(reached: bool) -> str:
    return ": reached" if reached else ": missed"


def table(passes: Sequence[Pass]) -> list[str]:
    """Return a Markdown table of all passes."""
    rows = [
        "| task | side | changes/s (median) | passes | CPU µs per change | resident MB | bytes per change |",
        "|---|---|---|---|---|---|---|",
    ]
    for task in TASKS:
        for side in SIDES:
            chosen = [one for one in passes if one.task == task and one.side == side]
            if not chosen:
                continue
            rates = ", ".join(f"{one.counted.rate:,.0f}" for one in chosen)
            cpu = median(one.cpu / one.counted.changes for one in chosen) * 1e6
            memory = max(one.memory for one in chosen)
            size = chosen[0].counted.size / chosen[0].counted.changes
            middle = median(one.counted.rate for one in chosen)
            rows.append(f"| {task} | {side} | {middle:,.0f} | {rates} | {cpu:.0f} | {memory:.0f} | {size:.0f} |")
    return rows


def where(passes: Sequence[Pass], stages: Sequence[Stages]) -> list[str]:
    """Return a Markdown table of Tailorbird's time by stage, in microseconds of wall-clock time per change."""
    rows = [
        "| Tailorbird's time, µs per change | reading, decoding | envelopes, positions | Kafka, commits | all |",
        "|---|---|---|---|---|",
    ]
    for one in stages:
        rate = rate_of(passes, one.task, "tailorbird")
        if rate:
            whole = 1e6 / rate
            parts = (one.decoded, one.recorded - one.decoded, whole - one.recorded, whole)
            rows.append(f"| {one.task} | {' | '.join(f'{part:.1f}' for part in parts)} |")
    return rows if len(rows) > 2 else []


TITLE: Final = "# Capture of MySQL compared with Debezium"
WHAT: Final = """This page compares the throughput of capture with Debezium's, from MySQL's binary log to records that
Kafka has acknowledged. {result}*Bulk* is large transactions, *oltp* is transactions of one row, *snapshot* is the first
read of a table."""
RESULT: Final = """Result: {changes} times Debezium's for changes and {snapshot} times for snapshots, with at most
{memory:.0f}% of the memory. """
COLUMNS: Final = """The columns: the rate of each pass and their median, from the first record until 98% of the records
are in Kafka; CPU time of the process; its greatest resident memory; size of the records' values before compression."""
PARTS: Final = """This is wall-clock time: `all` is one second divided by the rate above. The first two parts are
measured by themselves, and the third is the difference to `all`, so it can be negative."""
NOTES: Final = (
    """One MySQL 8.0 and one Kafka on the loopback address, no TLS, replication factor 1, two partitions. Twelve columns
    and two kinds of transactions as in [decode.md](decode.md); the snapshot reads the rows that remain after the bulk
    binlog.""",
    "Tailorbird: `python -m ingest`, exactly once (Kafka transactions, acks=all, lz4), metrics and health as deployed.",
    """Debezium 3.6.1: its embedded engine at its default queue and batch (8192, 2048), one task, JSON converter without
    schemas, decimals as strings, times as ISO strings.""",
    """As in Debezium Server, the records of a batch are sent by a KafkaProducer (acks=all, idempotent, lz4, linger 5
    ms), and marked as processed once the broker has all of them: at least once. Offsets and schema history are in
    memory, which saves disk writes.""",
    "Both write deletes as an event and a tombstone. The consumer that counts runs after a pass, not during it.",
)


def document(passes: Sequence[Pass], stages: Sequence[Stages], facts: Mapping[str, str]) -> str:
    """Return the text of docs/results/capture.md."""
    spent = where(passes, stages)
    return page(
        TITLE,
        paragraph(WHAT.format(result=_result(passes))),
        bullets(f"{name}: {value}" for name, value in facts.items()),
        paragraph(COLUMNS),
        "\n".join(table(passes)),
        bullets(line for line, _ in verdicts(passes)),
        "\n".join(spent),
        paragraph(PARTS) if spent else "",
        bullets(NOTES),
    )


def ratios_of(passes: Sequence[Pass], tasks: Iterable[Task]) -> list[float]:
    """Return Tailorbird's median rate relative to Debezium's for each task that both sides ran."""
    rates = [(rate_of(passes, task, "tailorbird"), rate_of(passes, task, "Debezium")) for task in tasks]
    return [ours / theirs for ours, theirs in rates if ours and theirs]


def _result(passes: Sequence[Pass]) -> str:
    """Return the result of a full run; empty if a task or a side is missing."""
    if len(ratios_of(passes, TASKS)) < len(TASKS):
        return ""
    shares = [_memory(passes, task, "tailorbird") / _memory(passes, task, "Debezium") for task in TASKS]
    changes, snapshot = ratios_of(passes, ("bulk", "oltp")), ratios_of(passes, ("snapshot",))
    result = RESULT.format(changes=span(changes), snapshot=span(snapshot), memory=100 * max(shares))
    return result + _missed_goals(passes)


def _memory(passes: Sequence[Pass], task: Task, side: Side) -> float:
    return max(one.memory for one in passes if (one.task, one.side) == (task, side))


def _missed_goals(passes: Sequence[Pass]) -> str:
    """Return a sentence that names the goals that are missed; empty if there are none."""
    missed: list[str] = []
    for task in TASKS:
        (_, ratio_goal), (_, rate_goal) = TARGETS[task]
        if ratio_goal is not None and ratios_of(passes, (task,))[0] < ratio_goal:
            missed.append(f"{ratio_goal:g} times Debezium's rate for *{task}*")
        if rate_goal is not None and (rate_of(passes, task, "tailorbird") or 0.0) < rate_goal:
            missed.append(f"{rate_goal:,} changes/s for *{task}*")
    return f"Goals that are missed: {', '.join(missed)}. " if missed else ""


def as_json(passes: Sequence[Pass], stages: Sequence[Stages], facts: Mapping[str, str]) -> dict[str, Any]:
    """Return the same results as JSON values."""
    return {
        "facts": dict(facts),
        "passes": [
            {
                "task": one.task,
                "side": one.side,
                "changes": one.counted.changes,
                "changes_per_second": round(one.counted.rate),
                "cpu_seconds": round(one.cpu, 2),
                "resident_mb": round(one.memory),
                "idle_percent": one.idle,
            }
            for one in passes
        ],
        "stages": [{"task": s.task, "decoded_us": s.decoded, "recorded_us": s.recorded} for s in stages],
        "verdicts": [{"text": text, "failed": failed} for text, failed in verdicts(passes)],
    }
