"""Turn readings into ratios, halves, state sizes, verdicts against the targets, and the lines of a run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final

# Required figures of every shape; the aims are 1.0× and a state not larger than Flink's.
LEAST_RATIO: Final = 0.7
LIVE_RATE: Final = 20_000  # changes per second of a shape that Flink cannot express
LEAST_SECOND_HALF: Final = 0.9
MOST_GROWTH: Final = 1.25
MOST_FAN_OUT: Final = 10  # rows written per change, up to which the halves are compared by the changes that they read
# A run with a greater share of CPU steal is repeated.
MOST_WITHHELD: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One run; `batches` = (changes read, seconds, rows written) of each, empty if the engine has none.

    `withheld`: the share of CPU time that the machine's host withheld (CPU steal). `cpu_seconds`: CPU time of the JVM,
    0 if unknown; on a shared machine it varies less than `seconds`. `restart_bytes`: the part of the state that a
    restart reads, 0 if it reads all of it.
    """

    engine: str
    changes: int
    seconds: float
    state_bytes: int
    batches: tuple[tuple[int, float, int], ...] = ()
    withheld: float = 0.0
    cpu_seconds: float = 0.0
    restart_bytes: int = 0

    @property
    def rate(self) -> float:
        """Changes/s of the whole run, including the start."""
        return self.changes / self.seconds

    def halves(self) -> tuple[Half, Half]:
        """Return the first and the second half of the batches, without the first batch, which is a warm-up."""
        warm = self.batches[1:]
        middle = len(warm) // 2
        return Half(warm[:middle]), Half(warm[middle:])

    def to_json(self) -> str:
        """Return the reading as one line."""
        return "READING " + json.dumps(asdict(self))


class Half:
    """Rates of some batches per second; all are 0 without batches.

    During a run, each dimension row gets more facts, so a change causes more rows to be written. `work`, the sum of
    changes read and rows written, shows whether a slower half did less work or had more to do.
    """

    def __init__(self, batches: Sequence[tuple[int, float, int]]) -> None:
        self.changes = sum(n for n, _, _ in batches)
        self.written = sum(rows for _, _, rows in batches)
        self.seconds = sum(s for _, s, _ in batches)

    @property
    def rate(self) -> float:
        """Changes/s."""
        return self.changes / self.seconds if self.seconds else 0.0

    @property
    def work(self) -> float:
        """Changes read plus rows written, /s."""
        return (self.changes + self.written) / self.seconds if self.seconds else 0.0

    @property
    def fan_out(self) -> float:
        """Rows written per change."""
        return self.written / self.changes if self.changes else 0.0


def reading_of(output: str, changes: int) -> Reading:
    """Return the reading in a process's output; raise ValueError if there is none."""
    lines = [line for line in output.splitlines() if line.startswith("READING ")]
    if not lines:
        raise ValueError(f"no reading in: {output[-2000:]}")
    value = {"changes": changes, **json.loads(lines[-1].removeprefix("READING "))}
    value["batches"] = tuple((n, s, rows) for n, s, rows in value.get("batches", ()))
    return Reading(**value)


def line_of(shape: str, ours: Reading, flink: Reading) -> str:
    """Return the lines of one shape."""
    return (
        f"{shape:10} {ours.rate / flink.rate:.2f}× Flink   {ours.rate:>8,.0f} against {flink.rate:>8,.0f} changes/s"
        f"   state {_state(ours)} against {_state(flink)}\n"
        f"{'':10} {_halves(ours)}\n"
        f"{'':10} CPU steal: {ours.withheld:.1%} in Tailorbird's run, {flink.withheld:.1%} in Flink's"
    )


def _state(of: Reading) -> str:
    restart = f" (a restart reads {of.restart_bytes / 1e6:,.0f})" if of.restart_bytes else ""
    return f"{of.state_bytes / 1e6:,.0f} MB{restart}"


def trusting_line(ours: Reading, flink: Reading) -> str:
    """Return the line that compares with a Flink that trusts its source."""
    return (
        f"{'':10} {ours.rate / flink.rate:.2f}× Flink by default (trusts its source): {flink.rate:,.0f} changes/s,"
        f" state {_state(flink)}, CPU steal {flink.withheld:.1%}"
    )


def steady_line(ours: Reading) -> str:
    """Return the line of the star whose facts all exist at the start."""
    return f"star whose facts all exist at the start: {_halves(ours)} (CPU steal: {ours.withheld:.1%})"


def _halves(ours: Reading) -> str:
    first, second = ours.halves()
    return (
        f"second half {_share(second.work, first.work):.2f}× the first in changes read and rows written,"
        f" {_share(second.rate, first.rate):.2f}× in changes read;"
        f" rows written per change: {first.fan_out:.2f}, then {second.fan_out:.2f}"
    )


def growth_line(small: Sequence[Reading], large: Sequence[Reading]) -> str:
    """Return the line of the growth."""
    withheld = max(reading.withheld for reading in (*small, *large))
    return (
        f"tables ten times larger: {growth(small, large):.2f}× the cost per change"
        f" (CPU steal: up to {withheld:.1%} in a run)"
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def misses(shape: str, ours: Reading, flink: Reading) -> list[str]:
    """Return the required figures that a shape misses."""
    found = []
    if ours.rate < LEAST_RATIO * flink.rate:
        found.append(f"{shape}: {ours.rate / flink.rate:.2f}× Flink, at least {LEAST_RATIO}× is required")
    return found + half_misses(shape, ours)


def live_misses(shape: str, ours: Reading) -> list[str]:
    """Return the required figures that a shape misses which Flink cannot express: it must keep up with live changes."""
    if ours.rate >= LIVE_RATE:
        return []
    return [f"{shape}: {ours.rate:,.0f} changes/s, at least {LIVE_RATE:,} are required"]


def half_misses(shape: str, ours: Reading) -> list[str]:
    """Return a line if the second half reads too few changes per second compared with the first."""
    found: list[str] = []
    first, second = ours.halves()
    if second.fan_out > MOST_FAN_OUT:  # the first half fills the tables for the second: the work differs
        return found
    if second.rate < LEAST_SECOND_HALF * first.rate:
        found.append(
            f"{shape}: the second half runs at {_share(second.rate, first.rate):.2f}× the first,"
            f" at least {LEAST_SECOND_HALF}× is required"
        )
    return found


def growth(small: Sequence[Reading], large: Sequence[Reading]) -> float:
    """Return the relative cost per change with tables ten times larger, from the warm batches of several runs."""
    slow, fast = (Half([batch for each in of for batch in each.batches[1:]]) for of in (large, small))
    return fast.rate / max(1e-9, slow.rate)
