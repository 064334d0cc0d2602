"""Write docs/results/verify-index.md from the figures of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from benchmarks.page import page, paragraph

BUSY: Final = 1.0  # load average from which the page says that other work ran
# figure → its maximum or minimum
MUST: Final = {"time_ratio": ("at least", 10.0), "read_per_change": ("at most", 70.0)}
# figure → its name and its number of digits
ROWS: Final = {
    "full_s": ("all rows, s", 1),
    "sample_s": ("`--sample 1/64`, s", 1),
    "idle_s": ("`--changed-since last`, nothing changed, s", 2),
    "idle_read": ("rows read from HBase for that", 0),
    "changed_s": ("`--changed-since last`, after the changes, s", 2),
    "changed_read": ("rows read from HBase for that", 0),
    "read_per_change": ("rows read per change", 1),
    "time_ratio": ("all rows compared with that: ratio of the times", 1),
    "stored_kb": ("stored leaves, kB", 0),
}
TITLE: Final = "# Speed of `verify --stage index`"
WHAT: Final = """This page shows what it costs to compare a table in HBase with its index in Solr again, after few rows
have changed ([verify.md](../verify.md#what-changed)). Result: after {changes:,} changes in {rows:,} rows,
`--changed-since last` took {changed_s:.2f} s and read {changed_read:,.0f} rows. Comparing all rows took {full_s:.1f} s,
{time_ratio:.0f} times as long."""
HOW: Final = """`make bench-verify-index`: {rows:,} rows with 15 columns, written as the join writes them and indexed in
Solr; {machine}, {load}. The changes are updates of random rows, in one batch; the index shows them before the
measurement. HBase had written the rows to files before, as it does by itself once an hour. Times are of one run each.
Both kinds of comparison found a document that the benchmark changed in Solr, and a row that it deleted in HBase without
replication."""


def document(found: Mapping[str, float], machine: str, load: float) -> str:
    """Return the text of the page; `load` is the load average before the run."""
    busy = f"with other work running (load average {load:.0f})" if load > BUSY else "otherwise idle"
    rows = [f"| {name} | {found[key]:,.{digits}f} | {_limit(key)}|" for key, (name, digits) in ROWS.items()]
    rounded = {**found, "rows": round(found["rows"]), "changes": round(found["changes"])}
    return page(
        TITLE,
        paragraph(WHAT.format_map(rounded)),
        paragraph(HOW.format(rows=rounded["rows"], machine=machine, load=busy)),
        "\n".join(["| figure | measured | limit |", "|---|---:|---:|", *rows]),
    )


def misses(key: str, value: float) -> bool:
    """Return whether a figure misses its target."""
    how, limit = MUST.get(key, ("", 0.0))
    return (how == "at most" and value > limit) or (how == "at least" and value < limit)


def _limit(key: str) -> str:
    how, limit = MUST.get(key, ("", 0.0))
    return f"{how} {limit:,g} " if how else ""
