"""Write docs/results/verify.md from the figures of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.page import page, paragraph

BUSY: Final = 1.0  # load average from which the page says that other work ran
# figure → its maximum or minimum
MUST: Final = {
    "ratio": ("at most", 1.5), "rows_read_percent": ("at most", 2.0), "changed_since_s": ("at most", 3.0),
    "ledger_changes_per_s": ("at least", 20_000.0),
}  # fmt: skip
GOALS: Final = {"changed_since_s": 1.0}
# figure → its name and its number of digits
ROWS: Final = {
    "verify_s": ("`verify`, all rows, s", 2),
    "peer_s": ("the query, s", 2),
    "ratio": ("ratio of the times", 2),
    "processor_ratio": ("ratio of the CPU times (database and Tailorbird together)", 2),
    "rows_read_percent": ("rows read if ten rows differ, % of the table", 2),
    "changed_since_s": ("`--changed-since` after 1,000 changes, s", 2),
    "ledger_changes_per_s": ("the ledger, changes/s per process", 0),
    "ledger_percent_of_a_core_at_500_per_s": ("the ledger at 500 changes/s, % of a core", 1),
}
TITLE: Final = "# Speed of `verify --stage log`"
WHAT: Final = """This page shows how long it takes to compare a table with its Kafka topic ([ledger.md](../ledger.md)).
Result: {verify_s:.2f} s for {rows:,} rows, which is {ratio:.2f} times as long as a single SQL query that reads them
all."""
HOW: Final = """`make bench-verify`: {rows:,} rows of eight columns in a MySQL 8.0, captured into Kafka; {machine},
{load}. The query for comparison, in the same run: `SELECT COUNT(*), BIT_XOR(CRC32(CONCAT_WS('#', …)))`. Times are the
best of three runs. The [ledger](../glossary.md#index-and-proof) had already read the topic."""


def document(found: Mapping[str, float], machine: str, load: float) -> str:
    """Return the text of the page; `load` is the load average before the run."""
    busy = f"with other work running (load average {load:.0f})" if load > BUSY else "otherwise idle"
    rows = [f"| {name} | {found[key]:,.{digits}f} | {_limit(key)}|" for key, (name, digits) in ROWS.items()]
    return page(
        TITLE,
        paragraph(WHAT.format_map(found)),
        paragraph(HOW.format(rows=round(found["rows"]), machine=machine, load=busy)),
        "\n".join(["| figure | measured | limit |", "|---|---:|---:|", *rows]),
    )


def misses(key: str, value: float) -> bool:
    """Return whether a figure misses its target."""
    how, limit = MUST.get(key, ("", 0.0))
    return (how == "at most" and value > limit) or (how == "at least" and value < limit)


def _limit(key: str) -> str:
    if key not in MUST:
        return ""
    how, limit = MUST[key]
    return f"{how} {limit:,g}{f', goal {GOALS[key]:g}' if key in GOALS else ''} "
