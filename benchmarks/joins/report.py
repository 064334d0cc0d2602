"""From readings to what a person is shown: ratios, halves, state sizes, and whether what must hold does. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Final

# What must hold on every shape; aims are 1.0× and a state not larger than Flink's.
LEAST_RATIO: Final = 0.7
LEAST_SECOND_HALF: Final = 0.9
MOST_GROWTH: Final = 1.25
MOST_FAN_OUT: Final = 10  # rows written for a change, up to which halves are compared by the changes that they read
# A run from which the host of the machine withheld more than this share of the processors is taken again.
MOST_WITHHELD: Final = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One run; `batches` = (changes read, seconds, rows written) of each, empty where the engine has none.

    `withheld`: the share of the processors' time that the machine's host kept for others meanwhile. `cpu_seconds`: what
    the JVM used of them, 0 where the engine does not tell; it varies less than `seconds` where others use them, too.
    `restart_bytes`: what of the state a restart reads, 0 where that is all of it.
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
        """Changes/s of the whole run, start-up included."""
        return self.changes / self.seconds

    def halves(self) -> tuple[Half, Half]:
        """The first and the second half of the batches; the first batch, which warms up, is in neither."""
        warm = self.batches[1:]
        middle = len(warm) // 2
        return Half(warm[:middle]), Half(warm[middle:])

    def to_json(self) -> str:
        """As one line."""
        return "READING " + json.dumps(asdict(self))


class Half:
    """What some batches did a second; all are 0 without batches.

    A dimension's row has ever more facts as a run goes on, so that a change makes ever more rows to write: `work`, the
    changes read and the rows written, tells whether a slower half did less or had more to do.
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
        """Changes read and rows written, /s."""
        return (self.changes + self.written) / self.seconds if self.seconds else 0.0

    @property
    def fan_out(self) -> float:
        """Rows written for a change."""
        return self.written / self.changes if self.changes else 0.0


def reading_of(output: str, changes: int) -> Reading:
    """The reading in a process's output; ValueError if there is none."""
    lines = [line for line in output.splitlines() if line.startswith("READING ")]
    if not lines:
        raise ValueError(f"no reading in: {output[-2000:]}")
    value = {"changes": changes, **json.loads(lines[-1].removeprefix("READING "))}
    value["batches"] = tuple((n, s, rows) for n, s, rows in value.get("batches", ()))
    return Reading(**value)


def line_of(shape: str, ours: Reading, flink: Reading) -> str:
    """One shape in a line."""
    return (
        f"{shape:10} {ours.rate / flink.rate:.2f}× Flink   {ours.rate:>8,.0f} against {flink.rate:>8,.0f} changes/s"
        f"   state {_state(ours)} against {_state(flink)}\n"
        f"{'':10} {_halves(ours)}\n"
        f"{'':10} processors withheld by the host: {ours.withheld:.1%} of ours, {flink.withheld:.1%} of Flink's run"
    )


def _state(of: Reading) -> str:
    restart = f" (a restart reads {of.restart_bytes / 1e6:,.0f})" if of.restart_bytes else ""
    return f"{of.state_bytes / 1e6:,.0f} MB{restart}"


def trusting_line(ours: Reading, flink: Reading) -> str:
    """What stands beside where Flink trusts its source."""
    return (
        f"{'':10} {ours.rate / flink.rate:.2f}× a Flink that trusts its source: {flink.rate:,.0f} changes/s, state"
        f" {_state(flink)}, processors withheld {flink.withheld:.1%}"
    )


def steady_line(ours: Reading) -> str:
    """The star whose facts are all there before its changes begin, in a line."""
    return (
        f"star whose facts are all there at first: {_halves(ours)}"
        f" (processors withheld: {ours.withheld:.1%} of the run)"
    )


def _halves(ours: Reading) -> str:
    first, second = ours.halves()
    return (
        f"second half {_share(second.work, first.work):.2f}× the first in changes read and rows written,"
        f" {_share(second.rate, first.rate):.2f}× in changes read;"
        f" rows written for a change: {first.fan_out:.2f}, then {second.fan_out:.2f}"
    )


def growth_line(small: Sequence[Reading], large: Sequence[Reading]) -> str:
    """The growth in a line."""
    withheld = max(reading.withheld for reading in (*small, *large))
    return (
        f"tables ten times larger: {growth(small, large):.2f}× the cost per change"
        f" (processors withheld: up to {withheld:.1%} of a run)"
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def misses(shape: str, ours: Reading, flink: Reading) -> list[str]:
    """What must hold for a shape and does not."""
    found = []
    if ours.rate < LEAST_RATIO * flink.rate:
        found.append(f"{shape}: {ours.rate / flink.rate:.2f}× Flink, at least {LEAST_RATIO}× is asked for")
    return found + half_misses(shape, ours)


def half_misses(shape: str, ours: Reading) -> list[str]:
    """The miss of a second half that reads fewer changes a second than the first, if it is one."""
    found: list[str] = []
    first, second = ours.halves()
    if second.fan_out > MOST_FAN_OUT:  # the first half only fills what the second one meets: no like work
        return found
    if second.rate < LEAST_SECOND_HALF * first.rate:
        found.append(
            f"{shape}: the second half runs at {_share(second.rate, first.rate):.2f}× the first,"
            f" {LEAST_SECOND_HALF}× is asked for"
        )
    return found


def growth(small: Sequence[Reading], large: Sequence[Reading]) -> float:
    """Cost per change with the tables ten times larger: the warm batches of several runs of each."""
    slow, fast = (Half([batch for each in of for batch in each.batches[1:]]) for of in (large, small))
    return fast.rate / max(1e-9, slow.rate)


JOINS: Final = (
    "# Joins beside Flink SQL\n\nWritten by `make bench-joins`; the same Debezium JSON files, the same machine, one "
    "sitting, both into nowhere; start of the query to its end. A dimension's row has ever more facts as a run goes "
    "on, so a change makes ever more rows to write: the halves are told both ways, judged by changes read."
)


def document(lines: Iterable[str], facts: Mapping[str, str], what: str = JOINS) -> str:
    """A page of docs/results."""
    table = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    return f"{what}\n\n{table}\n\n```\n{chr(10).join(lines)}\n```\n"
