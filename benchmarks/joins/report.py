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


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One run; `batches` = (changes, seconds) of each, empty where the engine has none."""

    engine: str
    changes: int
    seconds: float
    state_bytes: int
    batches: tuple[tuple[int, float], ...] = ()

    @property
    def rate(self) -> float:
        """Changes/s of the whole run, start-up included."""
        return self.changes / self.seconds

    def halves(self) -> tuple[float, float]:
        """Changes/s of the first and of the second half of the batches; the first, which warms up, is in neither."""
        warm = self.batches[1:]
        middle = len(warm) // 2
        return _rate(warm[:middle]), _rate(warm[middle:])

    def to_json(self) -> str:
        """As one line."""
        return "READING " + json.dumps(asdict(self))


def _rate(batches: Sequence[tuple[int, float]]) -> float:
    seconds = sum(s for _, s in batches)
    return sum(n for n, _ in batches) / seconds if seconds else 0.0


def reading_of(output: str, changes: int) -> Reading:
    """The reading in a process's output; ValueError if there is none."""
    lines = [line for line in output.splitlines() if line.startswith("READING ")]
    if not lines:
        raise ValueError(f"no reading in: {output[-2000:]}")
    value = {"changes": changes, **json.loads(lines[-1].removeprefix("READING "))}
    value["batches"] = tuple((n, s) for n, s in value.get("batches", ()))
    return Reading(**value)


def line_of(shape: str, ours: Reading, flink: Reading) -> str:
    """One shape in a line."""
    first, second = ours.halves()
    return (
        f"{shape:10} {ours.rate / flink.rate:.2f}× Flink   {ours.rate:>8,.0f} against {flink.rate:>8,.0f} changes/s"
        f"   second half {second / first if first else 0:.2f}× the first"
        f"   state {ours.state_bytes / 1e6:,.0f} MB against {flink.state_bytes / 1e6:,.0f} MB"
    )


def misses(shape: str, ours: Reading, flink: Reading) -> list[str]:
    """What must hold for a shape and does not."""
    found = []
    if ours.rate < LEAST_RATIO * flink.rate:
        found.append(f"{shape}: {ours.rate / flink.rate:.2f}× Flink, at least {LEAST_RATIO}× is asked for")
    first, second = ours.halves()
    if second < LEAST_SECOND_HALF * first:
        found.append(
            f"{shape}: the second half runs at {second / first:.2f}× the first, {LEAST_SECOND_HALF}× is asked for"
        )
    return found


def growth(small: Reading, large: Reading) -> float:
    """Cost per change with the tables ten times larger, of the warm batches."""
    return _rate(small.batches[1:]) / max(1e-9, _rate(large.batches[1:]))


def document(lines: Iterable[str], facts: Mapping[str, str]) -> str:
    """docs/results/joins.md."""
    table = "\n".join(f"- {name}: {value}" for name, value in facts.items())
    return (
        "# Joins beside Flink SQL\n\nWritten by `make bench-joins`; the same Debezium JSON files, the same machine, "
        "one sitting, both into nowhere; start of the query to its end.\n\n"
        f"{table}\n\n```\n{chr(10).join(lines)}\n```\n"
    )
