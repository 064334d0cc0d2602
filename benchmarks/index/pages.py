"""Write docs/results/index.md and docs/results/index-soak.md from the figures of a run."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any, Final

from benchmarks.page import page, paragraph

MUST_RATIO, MUST_P50, MUST_P99 = 0.6, 0.5, 1.5

INDEX: Final = "# Indexing compared with pysolr"
INDEX_WHAT: Final = """This page shows the throughput of the [indexer](../indexing.md), compared with pysolr posting the
same documents to Solr. Result: {ratio:.2f} times pysolr alone (required: {least}), although the indexer also reads the
rows from HBase. {visible}"""
INDEX_VISIBLE: Final = "A write becomes visible in Solr after {p50:.2f} s (median)."
INDEX_HOW: Final = """Only the indexer's throughput includes reading HBase's log; pysolr posts documents from memory.
Each rate is measured until the last document is visible to queries."""
LATENCY: Final = "Time from a put in HBase until a query of Solr shows the row, at {rate} rows/s:"

SOAK: Final = "# The indexer over half an hour"
SOAK_WHAT: Final = """This page shows whether the indexer's memory, HBase's write-ahead logs, Solr's [tombstone
documents](../glossary.md#index-and-proof) or the lag grow during a long run. Result: {result}."""
SOAK_GOOD: Final = """none of them grew by more than its limit, and at the end the Solr collection equals the HBase
table"""
SOAK_RUN: Final = "`make soak-index`: {title}. Reached {reached:.0f} rows/s.{half}"
SOAK_HALF: Final = " That is half of the maximum, which the benchmark measures first."
SOAK_COLUMNS: Final = """The columns are the means of the three thirds of the run, the greatest value of the run, and
the growth from the middle to the last third. *Lag* is the age of the newest batch that is completely visible in Solr.
*CPU steal* is the share of CPU time that the virtual machine's host took."""
SOAK_LIMITS: Final = """Allowed growth: memory {memory:.0%}, write-ahead logs {logs:.0%} (HBase creates and removes
whole files), tombstone documents {tombstones:.0%}, lag {lag:.0%}.{equal}"""
SOAK_EQUAL: Final = " The collection equals the table, field by field."

WITHHELD: Final = "CPU steal (%)"
# Allowed growth from the mean of the middle third to that of the last third. HBase creates and removes whole log
# files, so one file more is no growth.
MEMORY, LOGS, TOMBSTONES, LAG = (
    "RSS of the indexer (MB)",
    "write-ahead logs (files)",
    "tombstone documents in Solr",
    "lag (s)",
)
MAY_GROW: Final = {MEMORY: 0.05, LOGS: 0.5, TOMBSTONES: 0.25, LAG: 0.5}


def index_page(result: Mapping[str, Any]) -> str:
    """Return the text of docs/results/index.md; `result` is what `make bench-index --json` prints."""
    latency = result["latency_seconds"]
    visible = INDEX_VISIBLE.format(p50=latency["p50"]) if latency else ""
    return page(
        INDEX,
        paragraph(INDEX_WHAT.format(ratio=result["ratio"], least=MUST_RATIO, visible=visible)),
        paragraph(INDEX_HOW),
        paragraph(f"`make bench-index`, {result['date']}, {result['machine']}."),
        _rates(result),
        LATENCY.format(rate=result["rate"]) if latency else "",
        _latencies(latency) if latency else "",
        paragraph(f"Missed: {'; '.join(result['missed'])}.") if result["missed"] else "",
    )


def _rates(result: Mapping[str, Any]) -> str:
    rows = {
        f"HBase's log → indexer → Solr, {result['rows']:,} rows of 15 columns": result["ours_docs_per_second"],
        "pysolr, the same documents, commits and batches": result["pysolr_docs_per_second"],
        "`index reindex` of the same table while changes are indexed": result["reindex_docs_per_second"],
    }
    rounds = len(result["ours_docs_per_second"])
    lines = [
        f"| documents/s | {' | '.join(f'round {number + 1}' for number in range(rounds))} |",
        "|---|" + "---|" * rounds,
    ]
    lines += [f"| {name} | {' | '.join(f'{rate:,.0f}' for rate in rates)} |" for name, rates in rows.items()]
    return "\n".join(lines)


def _latencies(latency: Mapping[str, float]) -> str:
    limits = {"p50": f"{MUST_P50 * 1000:,.0f} ms ", "p99": f"{MUST_P99 * 1000:,.0f} ms "}
    names = {"p50": "p50", "p95": "p95", "p99": "p99", "maximum": "max"}
    lines = ["| | measured | required, at most |", "|---|--:|--:|"]
    lines += [f"| {name} | {latency[key] * 1000:,.0f} ms | {limits.get(name, '')}|" for name, key in names.items()]
    return "\n".join(lines)


def missed_figures(
    ours: Sequence[float], peers: Sequence[float], rebuilt: Sequence[float], latency: Mapping[str, float]
) -> list[str]:
    """Return the required figures that a run misses."""
    ratio = statistics.median(ours) / statistics.median(peers)
    missed = [] if ratio >= MUST_RATIO else [f"{ratio:.2f}x pysolr, must be {MUST_RATIO}x"]
    if statistics.median(rebuilt) < statistics.median(ours):
        missed.append("a reindex is slower than the live feed")
    for name, most in (("p50", MUST_P50), ("p99", MUST_P99)):
        if latency and latency[name] > most:
            missed.append(f"{name} {latency[name] * 1000:.0f} ms, must be {most * 1000:.0f} ms")
    return missed


def soak_page(
    title: str, reached: float, series: Mapping[str, Sequence[float]], grew: Mapping[str, float], wrong: Sequence[str],
    *, half: bool,
) -> str:  # fmt: skip
    """Return the text of docs/results/index-soak.md; `half`: the rate was half of the measured maximum."""
    limits = SOAK_LIMITS.format(
        memory=MAY_GROW[MEMORY], logs=MAY_GROW[LOGS], tombstones=MAY_GROW[TOMBSTONES], lag=MAY_GROW[LAG],
        equal="" if wrong else SOAK_EQUAL,
    )  # fmt: skip
    return page(
        SOAK,
        paragraph(SOAK_WHAT.format(result="; ".join(wrong) or SOAK_GOOD)),
        paragraph(SOAK_RUN.format(title=title, reached=reached, half=SOAK_HALF if half else "")),
        paragraph(SOAK_COLUMNS),
        _thirds(series, grew),
        paragraph(limits),
        "![over time](index-soak.svg)",
    )


def _thirds(series: Mapping[str, Sequence[float]], grew: Mapping[str, float]) -> str:
    lines = [
        "| | first third | middle third | last third | greatest | last against middle |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, values in series.items():
        third = max(1, len(values) // 3)
        parts = [values[:third], values[third : 2 * third], values[2 * third :]]
        means = " | ".join(f"{sum(part) / max(1, len(part)):,.2f}" for part in parts)
        change = f"{grew[name]:+.1%}" if name in grew else ""
        lines.append(f"| {name} | {means} | {max(values):,.2f} | {change} |")
    return "\n".join(lines)
