"""The computations of `make bench-join-latency`: it prints what was measured."""

from __future__ import annotations

import io

import structlog

from benchmarks.joins.latency import Sample, found, phases_of
from joins.engine.progress import mean_milliseconds

REPORTS = [{"durationMs": {"triggerExecution": 300, "addBatch": 200}}, {"durationMs": {"triggerExecution": 500}}]


def reported(batches: int, milliseconds: dict[str, int]) -> str:
    """Return a line of the join's log, as `python -m joins` writes it."""
    out = io.StringIO()
    log = structlog.wrap_logger(
        structlog.PrintLogger(out),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.LogfmtRenderer(key_order=["level", "event"]),
        ],
    )
    log.info("batch", table="orders_wide", number=7, batches=batches, milliseconds=milliseconds)
    return "timestamp=2026-01-01T00:00:00Z " + out.getvalue()


def test_phases_are_the_mean_batch_of_the_joins_log() -> None:
    """Every batch counts once, in any line that reports it; other lines are ignored."""
    assert mean_milliseconds(REPORTS) == {"triggerExecution": 400, "addBatch": 100}
    log = (
        reported(2, mean_milliseconds(REPORTS))
        + "timestamp=x level=info event=waiting\n"
        + reported(1, {"addBatch": 400})
    )
    phases = phases_of(log)
    assert phases.batches == 3
    assert phases.milliseconds == {"triggerExecution": 800 / 3, "addBatch": 200}
    assert phases_of("").batches == 0


def test_figures_report_tables_halves_and_phases_separately() -> None:
    """They show a slow table and a join whose lag grows."""
    samples = [Sample(table="shop.orders", appended=at, seconds=0.5 if at < 50 else 1.5) for at in range(100)]
    samples += [Sample(table="crm.customers", appended=50, seconds=9.0)]
    text = "\n".join(found(samples, phases_of(reported(3, {"addBatch": 400, "walCommit": 10})), rate=500))
    assert "500 changes/s: p50 1.50 s" in text
    assert "(101 samples)" in text
    assert "first half of the time and of the second: 0.50 s (50), 1.50 s (51)" in text
    assert "crm.customers 9.00 s (1), shop.orders 1.00 s (100)" in text
    assert "3 batches; mean ms: addBatch 400, walCommit 10" in text
    assert "the join has logged no batch" in found(samples, phases_of(""), rate=500)
