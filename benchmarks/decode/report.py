"""Turn readings into medians, ratios, differences of values, and the page of results.

Dates, machine and command are arguments.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final, Literal

from benchmarks.decode.workload import SHAPES, ShapeName
from benchmarks.page import bullets, page, paragraph, span

Library = Literal["tailorbird", "mysql-replication", "Debezium", "Debezium, larger queue", "go-mysql"]
OURS: Final[Library] = "tailorbird"
PEERS: Final[tuple[Library, ...]] = ("mysql-replication", "Debezium", "Debezium, larger queue", "go-mysql")
LIBRARIES: Final[tuple[Library, ...]] = (OURS, *PEERS)

# Required and desired ratio of Tailorbird's changes/s to a peer's; None: no target.
TARGETS: Final[Mapping[tuple[ShapeName, Library], tuple[float | None, float | None]]] = {
    ("bulk", "mysql-replication"): (6.0, None),
    ("bulk", "Debezium"): (1.8, 2.5),
    ("bulk", "go-mysql"): (None, 0.6),
    ("oltp", "mysql-replication"): (10.0, None),
    ("oltp", "Debezium"): (3.0, None),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One pass of one library over one binlog; `sums` by column in a checked pass, None in a timed one.

    `seconds` is wall-clock time, `cpu` the CPU seconds of all threads in this time.
    """

    library: Library
    version: str
    inserts: int
    updates: int
    deletes: int
    seconds: float
    cpu: float
    sums: Mapping[str, Sequence[str]] | None

    @property
    def changes(self) -> int:
        """Number of changed rows; an update with its two images is one."""
        return self.inserts + self.updates + self.deletes


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """All timed passes of one library over one binlog."""

    shape: ShapeName
    readings: tuple[Reading, ...]

    @property
    def library(self) -> Library:
        """The library of these passes."""
        return self.readings[0].library

    @property
    def rates(self) -> tuple[float, ...]:
        """Changes per second of each pass."""
        return tuple(reading.changes / reading.seconds for reading in self.readings)

    @property
    def cpu(self) -> float:
        """CPU time per change in microseconds, the median of the passes; a busy machine affects it least."""
        return median(reading.cpu / reading.changes for reading in self.readings) * 1e6

    @property
    def rate(self) -> float:
        """Changes per second, the median of the passes."""
        return median(self.rates)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """Ratio of Tailorbird's rate to a peer's, with its targets."""

    shape: ShapeName
    peer: Library
    value: float

    @property
    def must(self) -> float | None:
        """Required minimum; below it the benchmark fails."""
        return TARGETS.get((self.shape, self.peer), (None, None))[0]

    @property
    def aim(self) -> float | None:
        """Desired minimum."""
        return TARGETS.get((self.shape, self.peer), (None, None))[1]

    @property
    def line(self) -> str:
        """A line such as `bulk: 8.31× mysql-replication`; scripts parse it, so its form is fixed."""
        return f"{self.shape}: {self.value:.2f}× {self.peer}"

    @property
    def verdict(self) -> str:
        """A text that says whether the targets are reached; empty without targets."""
        words = []
        for word, asked in (("required", self.must), ("goal", self.aim)):
            if asked is not None:
                words.append(f"{word} ≥ {asked:g}: {'reached' if self.value >= asked else 'missed'}")
        return ", ".join(words)

    @property
    def failed(self) -> bool:
        """True if the required minimum is missed."""
        return self.must is not None and self.value < self.must


def ratios(measurements: Iterable[Measurement]) -> list[Ratio]:
    """Return the ratio to each peer that was measured on the same binlog."""
    rates = {(m.shape, m.library): m.rate for m in measurements}
    return [
        Ratio(shape=shape, peer=peer, value=rates[shape, OURS] / rates[shape, peer])
        for shape in SHAPES
        for peer in PEERS
        if (shape, OURS) in rates and (shape, peer) in rates
    ]


def differences(checked: Sequence[Reading], expected: int) -> list[str]:
    """Return a line per disagreement of the libraries; empty if all read the same values in the same order.

    `expected` is the number of changes in the binlog.
    """
    lines = [f"{r.library}: {r.changes:,} changes instead of {expected:,}" for r in checked if r.changes != expected]
    kinds = {(r.inserts, r.updates, r.deletes) for r in checked}
    if len(kinds) > 1:
        lines += [f"{r.library}: {r.inserts:,} inserts, {r.updates:,} updates, {r.deletes:,} deletes" for r in checked]
    for column in sorted({column for r in checked for column in r.sums or {}}):
        groups: dict[tuple[str, ...], list[str]] = {}
        for reading in checked:
            groups.setdefault(tuple((reading.sums or {}).get(column, ())), []).append(reading.library)
        if len(groups) > 1:
            sides = sorted((", ".join(names) for names in groups.values()), key=len)
            lines.append(f"column {column}: the values of {' ≠ those of '.join(sides)}")
    return lines


def rate_table(measurements: Sequence[Measurement]) -> list[str]:
    """Return a Markdown table of changes per second: the median and its passes."""
    rows = [
        "| binlog | library | changes/s (median) | passes | CPU µs per change |",
        "|---|---|--:|---|--:|",
    ]
    for m in measurements:
        first = m.readings[0]
        passes = " · ".join(f"{rate:,.0f}" for rate in m.rates)
        rows.append(f"| {m.shape} | {m.library} {first.version} | {m.rate:,.0f} | {passes} | {m.cpu:.1f} |")
    return rows


TITLE: Final = "# Decoding the binlog compared with other libraries"
WHAT: Final = """This page compares the speed of Tailorbird's [binlog library](../binlog.md) with three other libraries
that read MySQL's binary log.{result}"""
COLUMNS: Final = """*Bulk* and *oltp* are two binary logs: large transactions, and transactions of one row. `passes` are
the rates whose median is shown. CPU time is that of all threads."""
EQUAL: Final = """The {logs}. All libraries return the same values for all columns of the rows before and after each
change."""
NOTES: Final = (
    """One MySQL 8.0 on the loopback address, ROW, FULL images, FULL metadata, GTID, CRC32, no TLS; all libraries read
    the same binlog files from it. Twelve columns: INT UNSIGNED, INT, DECIMAL(12,2), DOUBLE, VARCHAR and TEXT in
    utf8mb4, DATETIME(6), TIMESTAMP, DATE, JSON, ENUM, VARBINARY.""",
    """Bulk: inserts of 1000 rows, transactions of 600 updates and 400 deletes. OLTP: one row per transaction, 10
    inserts, 7 updates, 3 deletes in turn.""",
    """Debezium is its embedded (asynchronous) engine with the settings of its documentation's example, and defaults for
    everything that affects speed: max.batch.size 2048, max.queue.size 8192, poll.interval.ms 500, no transaction
    metadata.""",
    """Where its configuration differs from the example, the difference saves Debezium work: no TLS, no snapshot,
    offsets and schema history in memory, no tombstones, no schema change events, no log, Connect structs instead of
    JSON text, batches instead of single records. The clock stops at the last full batch, so that no poll interval is
    measured.""",
    """"Debezium, larger queue" has max.batch.size 4096, max.queue.size 16384 and poll.interval.ms 10.""",
    """Values have the types that each library returns by itself: Connect structs (BigDecimal, JSON as text) of
    Debezium, `[]any` with `ParseTime` of go-mysql, dictionaries of mysql-replication. go-mysql leaves signs of unsigned
    columns and labels of ENUM to its caller; they are added only when values are compared.""",
    "Other libraries do not verify CRC32 by default; Tailorbird always does.",
    "Debezium and go-mysql decode in separate threads from the consumer; the Python libraries use one thread.",
)


def document(
    *,
    measurements: Sequence[Measurement],
    checked: Mapping[ShapeName, Sequence[Reading]],
    facts: Mapping[str, str],
) -> str:
    """Return the text of `docs/results/decode.md`; `facts` are command, date, machine and versions."""
    compared = ratios(measurements)
    targets = [f"| {ratio.line} | {ratio.verdict or '—'} |" for ratio in compared]
    return page(
        TITLE,
        paragraph(WHAT.format(result=_result(compared))),
        bullets(f"{name}: {value}" for name, value in facts.items()),
        paragraph(COLUMNS),
        "\n".join(rate_table(measurements)),
        "\n".join(["| Tailorbird's rate, relative to a library | target |", "|---|---|", *targets]),
        paragraph(EQUAL.format(logs=_logs(checked))),
        bullets(NOTES),
    )


def _result(compared: Sequence[Ratio]) -> str:
    """Return the ratios to the libraries at their default settings, over both binlogs; empty if none was measured."""
    parts = []
    for peer, digits in (("Debezium", 1), ("go-mysql", 1), ("mysql-replication", 0)):
        if values := [ratio.value for ratio in compared if ratio.peer == peer]:
            parts.append(f"{span(values, digits)} times {peer}")
    named = ", and ".join(part for part in (", ".join(parts[:-1]), *parts[-1:]) if part)
    return f" Result: {named}." if named else ""


def _logs(checked: Mapping[ShapeName, Sequence[Reading]]) -> str:
    parts, verb = [], "has "
    for shape, (found, *_) in checked.items():
        kinds = f"{found.inserts:,} inserts, {found.updates:,} updates, {found.deletes:,} deletes"
        parts.append(f"{shape} binlog {verb}{found.changes:,}{' changes' if verb else ''} ({kinds})")
        verb = ""
    return ", the ".join(parts)


def as_json(measurements: Sequence[Measurement], facts: Mapping[str, str]) -> dict[str, Any]:
    """Return the same results as JSON values."""
    return {
        "facts": dict(facts),
        "measurements": [
            {
                "shape": m.shape,
                "library": m.library,
                "version": m.readings[0].version,
                "changes": m.readings[0].changes,
                "changes_per_second": round(m.rate),
                "cpu_microseconds": round(m.cpu, 2),
                "passes": [round(rate) for rate in m.rates],
            }
            for m in measurements
        ],
        "ratios": [
            {"shape": r.shape, "peer": r.peer, "ratio": round(r.value, 3), "must": r.must, "aim": r.aim}
            for r in ratios(measurements)
        ],
    }
