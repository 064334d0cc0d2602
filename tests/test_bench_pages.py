"""The pages of docs/results have the prose of their templates, so that the next run of a benchmark keeps it.

Each test fills a template with a sample run. What a run measures may differ: figures, verdicts, the order of phases.
If a new page has another sentence, because the machine was busy or a limit is missed, change the sample.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import bench_capture_postgres, verify_index_page, verify_page
from benchmarks import dashboard_page as dashboard
from benchmarks import gateway_page as gateway
from benchmarks.capture import report as capture
from benchmarks.decode import report as decode
from benchmarks.decode.workload import SHAPES, ShapeName
from benchmarks.index import freshness
from benchmarks.index import pages as index
from benchmarks.joins import latency, pages
from benchmarks.joins import report as joins
from benchmarks.page import bullets, paragraph, span, write_page
from tests.chaos.test_capture_chaos import HEADING

RESULTS = Path(__file__).parent.parent / "docs" / "results"
FIGURE = re.compile(r"[-+]?\d+(?:[.,:]\d+)*")
# What a run decides, once its figures are masked: lists of figures, verdicts, figures that are missed, phases.
MEASURED = {
    r"#(?:(?:,| ·) #)+": "#",
    r"(?:Required figures|Goals) that are missed: [^.]*\. ?| MISSED [^`]*": "",
    r"reached|missed": "verdict",
    r"mean ms: [^.]*": "mean ms",
}
FACTS = {"command": "c", "date": "d", "machine": "m", "versions": "v"}
FACT = re.compile(r"^- (command|date|machine|versions): .*(?:\n  .*)*", re.MULTILINE)

_NAMES = ("triggerExecution", "addBatch", "queryPlanning", "latestOffset", "walCommit", "commitOffsets", "getBatch")
PHASES = latency.Phases(batches=9, milliseconds={name: 99.0 - number for number, name in enumerate(_NAMES)})


def flat(text: str) -> str:
    """Return a text without its line ends."""
    return " ".join(text.split())


def prose(page: str) -> list[str]:
    """Return the blocks of a page before its first section; what a run decides and line ends are masked."""
    blocks = FACT.sub(r"- \1", page.partition("\n## ")[0]).split("\n\n")
    return [masked(block) for block in blocks]


def masked(block: str) -> str:
    text = FIGURE.sub("#", flat(block))
    for pattern, other in MEASURED.items():
        text = re.sub(pattern, other, text)
    return text.strip()


def committed(name: str) -> list[str]:
    return prose((RESULTS / f"{name}.md").read_text())


def test_a_run_keeps_the_sections_that_people_wrote(tmp_path: Path) -> None:
    file = tmp_path / "results" / "any.md"
    write_page(file, "# Any\n\nResult: 1\n")
    file.write_text(file.read_text() + "\n## Why\n\nBecause.\n")
    write_page(file, "# Any\n\nResult: 2\n")
    assert file.read_text() == "# Any\n\nResult: 2\n\n## Why\n\nBecause.\n"


def test_other_words_are_a_difference_and_other_figures_are_not() -> None:
    one = "Result: 1.2 to 3 times. Goals that are missed: 2 times, 3/s. Both\nread. (goal ≥ 2: missed)"
    assert prose(one) == prose("Result: 4 to 5,000 times. Both read. (goal ≥ 3: reached)")
    assert prose(one) != prose(one.replace("Both", "All"))
    assert prose("| 1, 2 | 3 · 4 |") == prose("| 1 | 3 · 4 · 5 |")


def test_prose_is_wrapped_and_ranges_are_rounded() -> None:
    assert max(map(len, paragraph("word " * 99).splitlines())) <= 120
    assert [line[:2] for line in bullets(["word " * 30]).splitlines()] == ["- ", "  "]
    assert span([3.88, 3.69]) == "3.7 to 3.9"
    assert span([31.4, 31.2], 0) == "31"


def decoded() -> str:
    """Return a page of decoding."""
    slower = {"tailorbird": 1.0, "mysql-replication": 16.0, "Debezium": 3.7, "Debezium, larger queue": 3.7}

    def reading(shape: ShapeName, library: decode.Library) -> decode.Reading:
        seconds = slower.get(library, 1.1) * (1.2 if shape == "oltp" and library != decode.OURS else 1)
        version = "3.6.1.Final" if "Debezium" in library else "1.0"
        return decode.Reading(
            library=library, version=version, inserts=5, updates=3, deletes=2, seconds=seconds, cpu=1.0, sums=None
        )

    passes = [
        decode.Measurement(shape=shape, readings=(reading(shape, library),) * 3)
        for shape in SHAPES
        for library in decode.LIBRARIES
    ]
    checked = {shape: [reading(shape, library) for library in decode.LIBRARIES] for shape in SHAPES}
    return decode.document(measurements=passes, checked=checked, facts=FACTS)


def test_decode() -> None:
    assert prose(decoded()) == committed("decode")


def passes_of(task: capture.Task, rate: int, their_rate: int, number: int) -> list[capture.Pass]:
    """Return passes of both sides with these rates."""
    found = []
    for side, each in zip(capture.SIDES, (rate, their_rate), strict=True):
        count = capture.TopicCount(kinds={}, moments=tuple(1000 * i // each for i in range(10_000)), size=9_000_000)
        memory, idle = (80.0, 0.1) if side == "tailorbird" else (1700.0, None)
        one = capture.Pass(task=task, side=side, counted=count, memory=memory, cpu=0.3, idle=idle)
        found += [one] * number
    return found


def test_capture() -> None:
    passes = [
        *passes_of("bulk", 34_000, 18_000, 2),
        *passes_of("oltp", 23_000, 11_000, 2),
        *passes_of("snapshot", 17_000, 13_000, 2),
    ]
    stages = [capture.Stages(task="bulk", decoded=14.0, recorded=20.0)]
    stages.append(capture.Stages(task="oltp", decoded=24.0, recorded=45.0))
    assert prose(capture.document(passes, stages, FACTS)) == committed("capture")


def test_capture_of_postgres() -> None:
    passes = [*passes_of("bulk", 99_000, 33_000, 3), *passes_of("oltp", 58_000, 22_000, 3)]
    assert prose(bench_capture_postgres.document(passes, FACTS)) == committed("capture-postgres")


def test_pages_of_partial_runs_have_no_result() -> None:
    passes = passes_of("oltp", 23_000, 11_000, 1)
    assert "Result" not in capture.document(passes, [], FACTS)
    assert "Result: 2.1 times Debezium." in flat(bench_capture_postgres.document(passes, FACTS))
    assert "Result" not in bench_capture_postgres.document(passes[:1], FACTS)
    assert "Result" not in decode.document(measurements=[], checked={}, facts=FACTS)


def joins_page(template: pages.Template, queries: str, ratios: list[float], *, groups: bool) -> list[str]:
    """Return the prose of a page of joins or groups; the halves of a reading are as fast as each other."""
    ours = joins.Reading(
        engine="tailorbird", changes=9, seconds=1.0, state_bytes=1, restart_bytes=1, batches=((3, 1.0, 3),) * 3
    )
    flink = joins.Reading(engine="flink", changes=9, seconds=1.0, state_bytes=1)
    missed: list[str] = []
    lines = [joins.line_of(query, ours, flink) for query in queries.split(",")]
    if groups:
        lines = [f"{line}\n{joins.trusting_line(ours, flink)}" for line in lines]
    else:
        lines += [joins.steady_line(ours), joins.growth_line([ours], [ours])]
        slower = replace(ours, batches=((3, 1.0, 3), (3, 1.0, 3), (3, 2.0, 3)))
        missed = joins.misses("star", slower, flink)
    name = template.file.removesuffix(".md")
    command = f"make bench-{name} ARGS='--scale 1 --shapes {queries}'"
    return prose(pages.document(template, lines, ratios, missed, command))


def test_joins() -> None:
    page = joins_page(pages.JOINS, "n1,star,snowflake,hot", [0.9, 2.1], groups=False)
    assert page == committed("joins")


def test_groups() -> None:
    page = joins_page(pages.AGGREGATES, "revenue,global,hot_group,distinct,pairs,q4", [0.8, 1.1], groups=True)
    assert page == committed("aggregates")


def machine_of(page: str) -> str:
    """Return the machine that a committed page names."""
    text = flat((RESULTS / f"{page}.md").read_text())
    return next(re.finditer(r"\d{4}-\d\d-\d\d, (.*?\))\.", text))[1]


def test_index() -> None:
    rates = {f"{side}_docs_per_second": [2500.0] * 3 for side in ("ours", "pysolr", "reindex")}
    times = {"p50": 0.2, "p95": 0.4, "p99": 0.5, "max": 0.6}
    assert not index.missed_figures([2500.0], [2500.0], [2500.0], times)
    facts = {"date": "2026-01-01", "machine": machine_of("index"), "rows": 60_000, "rate": 500, "ratio": 0.8}
    page = index.index_page({**facts, **rates, "latency_seconds": times, "missed": []})
    assert prose(page) == committed("index")
    slow = {**times, "p50": 0.6}
    assert index.missed_figures([1.0], [2.0], [0.5], slow) == [
        "0.50x pysolr, must be 0.6x",
        "a reindex is slower than the live feed",
        "p50 600 ms, must be 500 ms",
    ]


def test_soak_of_the_indexer() -> None:
    series = {name: [1.0] * 9 for name in (*index.MAY_GROW, "rows/s", index.WITHHELD)}
    title = f"30 minutes at 1107 rows/s, 2026-01-01, {machine_of('index-soak')}"
    page = index.soak_page(title, 1100.0, series, dict.fromkeys(index.MAY_GROW, 0.0), [], half=True)
    assert prose(page) == committed("index-soak")
    failed = index.soak_page(title, 1.0, series, dict.fromkeys(index.MAY_GROW, 0.0), ["lag grew by 99%"], half=False)
    assert "Result: lag grew by 99%." in flat(failed)
    assert "half of the maximum" not in failed
    assert "equals" not in failed


def test_latency_of_the_join() -> None:
    tables = ("crm.customers", "shop.orders", "shop.products")
    samples = [latency.Sample(table=tables[n % 3], appended=n, seconds=0.9) for n in range(99)]
    facts = latency.RunFacts(
        date="2026-01-01", machine=machine_of("join-latency"), orders=50_000, rate=500, seconds=60, warm=60
    )
    figures = latency.found(samples, PHASES, rate=500)
    assert prose(latency.document(figures, samples, facts)) == committed("join-latency")


def test_freshness() -> None:
    run = freshness.Run(
        date="2026-01-01", machine="AMD EPYC, 2 cores, 24 GiB, Debian GNU/Linux 12 (bookworm)", load=0.4, seconds=60,
        rate=110.0, rows=57_000, tracked=6.0, withheld=0.0,
    )  # fmt: skip
    assert prose(freshness.document([[40, 1200, 900, 400]] * 9, PHASES, run)) == committed("freshness")
    busy = freshness.document([[40, 1200, 900, 400]], PHASES, replace(run, load=5.0))
    assert "47% of the time is waiting" in flat(busy)
    assert "The machine was busy" in flat(busy)


def test_dashboard() -> None:
    panels = (
        "number, sum(amount)", "number, unique(product)", "number, percentile(amount, 95)",
        "timeseries, sum(amount) by country", "terms, sum(amount) by product", "histogram, count by amount",
        "heatmap, count by country", "table, sum(amount), count by country, product", "table, id, created_at, product",
    )  # fmt: skip
    figures = [dashboard.Figure(f"Solr: {panel}, p95, ms", 100.5, 200) for panel in panels]
    figures += [dashboard.Figure(dashboard.SERVER, 1.5, 100), dashboard.Figure(dashboard.PAINT, 84.0, 1000)]
    figures += [dashboard.Figure(dashboard.DRAWN, 304.0, None)]
    figures += [dashboard.Figure(dashboard.MEMORY.format(all=600, start=60), 1.05, 1.15)]
    figures += [dashboard.Figure(dashboard.QUERIES, 1.0, 2.0)]
    run = dashboard.Run(rows=1_000_000, rounds=40, machine="AMD EPYC, 2 cores, 24 GiB", load=0.5)
    assert prose(dashboard.document(figures, run)) == committed("dashboard")
    slow = dashboard.document([*figures, dashboard.Figure("Solr: slow", 201.0, 200)], replace(run, load=5.0))
    assert "limits that are missed: Solr: slow; the slowest panel takes 201 ms" in flat(slow)
    assert "other work ran at the same time (load average 5)" in flat(slow)


def test_verify() -> None:
    found = {**dict.fromkeys(verify_page.ROWS, 1.0), "rows": 1_000_000, "ledger_changes_per_s": 70_000.0}
    page = verify_page.document(found, "AMD EPYC, 2 cores, 24 GiB", load=0.5)
    assert prose(page) == committed("verify")
    assert "with other work running (load average 5)" in flat(verify_page.document(found, "m", load=5.0))
    assert not any(verify_page.misses(key, value) for key, value in found.items())
    assert verify_page.misses("ratio", 1.6)
    assert verify_page.misses("ledger_changes_per_s", 19_999.0)


def test_verify_index() -> None:
    found = {**dict.fromkeys(verify_index_page.ROWS, 1.0), "rows": 200_000, "changes": 100, "time_ratio": 20.0}
    page = verify_index_page.document(found, "AMD EPYC, 2 cores, 24 GiB, Debian GNU/Linux 12 (bookworm)", load=5.0)
    assert prose(page) == committed("verify-index")
    assert "otherwise idle" in flat(verify_index_page.document(found, "m", load=0.5))
    assert not any(verify_index_page.misses(key, value) for key, value in found.items())
    assert verify_index_page.misses("time_ratio", 9.0)
    assert verify_index_page.misses("read_per_change", 71.0)


def test_gateway() -> None:
    figures = gateway.Figures(records=300_000, agents=1000, direct=[9.0] * 5, gateway=[8.0] * 5, idle=0.7)
    machine = "AMD EPYC, 2 cores, 24 GiB, Debian GNU/Linux 12"
    page = gateway.document(figures, machine, load=14.0, withheld=0.0)
    assert prose(page) == committed("gateway")
    idle = gateway.document(figures, machine, load=0.1, withheld=0.02)
    assert "otherwise idle (2.0% CPU steal)" in flat(idle)
    assert gateway.Figures().rows() == []


def test_capture_under_kills() -> None:
    assert (RESULTS / "capture-chaos.md").read_text().splitlines()[: len(HEADING)] == HEADING


@pytest.mark.parametrize(
    ("name", "notes"),
    [("decode", decode.NOTES), ("capture", capture.NOTES), ("capture-postgres", bench_capture_postgres.NOTES)],
)
def test_conditions_have_the_same_figures_too(name: str, notes: Sequence[str]) -> None:
    assert (RESULTS / f"{name}.md").read_text().endswith(f"\n\n{bullets(notes)}\n")
