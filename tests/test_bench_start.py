"""The computations of `make bench-start`: it prints what was measured."""

from __future__ import annotations

from benchmarks.joins.starts import document, ratios

NOW = {
    "first_row_seconds": 6.0,
    "first_row_cpu_seconds": 9.0,
    "first_minute_cpu_seconds": 12.0,
    "batch_cpu_seconds": 0.25,
    "idle_minute_cpu_seconds": 2.0,
}


def test_each_figure_has_a_line_with_its_ratio() -> None:
    """A ratio below 100 % is an improvement."""
    lines = ratios({"now": NOW, "before": {name: 2 * value for name, value in NOW.items()}})
    assert lines[0] == "seconds from the start of the process to its first row in HBase: 6.00, before 12.00: 50%"
    assert len(lines) == len(NOW)
    assert all(line.endswith(": 50%") for line in lines)
    assert ratios({"now": NOW})[3] == "CPU seconds of a batch of ten changes: 0.25"


def test_the_page_names_the_commit_that_it_compares() -> None:
    """A reader can repeat the comparison."""
    text = document(ratios({"now": NOW}), "2026-01-01", "a machine", 3, 20_000, "abc")
    assert "the commit abc" in text
    assert "the commit" not in document(ratios({"now": NOW}), "2026-01-01", "a machine", 3, 20_000, "")
