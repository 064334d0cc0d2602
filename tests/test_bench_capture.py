"""The computations of `make bench-capture`: it prints what was measured, and a missing change never passes."""

from __future__ import annotations

import signal

import pytest

from benchmarks.bench_capture import main
from benchmarks.capture.report import (
    SIDES,
    TASKS,
    Pass,
    Side,
    Stages,
    Task,
    TopicCount,
    as_json,
    document,
    missing,
    table,
    verdicts,
    where,
)
from benchmarks.harness import options_of, run_benchmark


def done(task: Task, side: Side, *, rate: int, changes: int = 10_000, memory: float = 80.0) -> Pass:
    moments = tuple(1_000_000 + i * 1000 // rate for i in range(changes))
    counted = TopicCount(kinds={"c": changes, "u": 0, "d": 0, "r": 0}, moments=moments, size=changes * 900)
    return Pass(task=task, side=side, counted=counted, memory=memory, cpu=changes * 30e-6, idle=None)


def test_a_rate_is_changes_by_the_brokers_clock() -> None:
    """From the first append to the one that completes 98 %: a late last batch does not count."""
    steady = tuple(range(0, 10_000, 10))
    late = (*steady[:-1], steady[-1] + 60_000)
    for moments in (steady, late):
        counted = TopicCount(kinds={"c": len(moments)}, moments=moments, size=0)
        assert counted.rate == pytest.approx(100.0)


def test_ratios_and_minimums() -> None:
    """Ours over Debezium's, with the required minimum; below it the run fails."""
    passes = [done("oltp", "tailorbird", rate=15_000), done("oltp", "Debezium", rate=10_000)]
    lines = dict(verdicts(passes))
    (ratio, speed, memory) = lines
    assert ratio == "oltp: 1.50× Debezium (required ≥ 1.3: reached, goal ≥ 2: missed)"
    assert speed.startswith("oltp: 15,")
    assert memory == "streaming: 80 MB resident (required ≤ 150: reached)"
    assert not any(lines.values())
    slow = [done("oltp", "tailorbird", rate=9_000, memory=151.0), done("oltp", "Debezium", rate=10_000)]
    assert [failed for _, failed in verdicts(slow)] == [True, True, True]


def test_a_missing_or_repeated_change_is_named() -> None:
    """Both sides must write every change exactly once, otherwise the figures are invalid."""
    one = done("bulk", "tailorbird", rate=1000, changes=5)
    assert missing(one, {"c": 5}) == ""
    assert "instead of" in missing(one, {"c": 6})
    assert "instead of" in missing(one, {"c": 5, "d": 1})
    assert "instead of" in missing(one, {"r": 5})


def test_the_document_has_every_pass() -> None:
    """Table, verdicts and facts are the same for people and programs."""
    passes = [done(task, side, rate=1000 if side == "tailorbird" else 500) for task in TASKS for side in SIDES]
    stages = [Stages(task="bulk", decoded=100.0, recorded=250.0)]
    text = document(passes, stages, {"machine": "m"})
    assert "- machine: m" in text
    assert "bulk: 2.00× Debezium" in text
    assert len(table(passes)) == 8
    assert [one["side"] for one in as_json(passes, stages, {})["passes"]] == ["tailorbird", "Debezium"] * 3


def test_the_parts_of_a_change_add_up() -> None:
    """The time that a pass takes beyond its first stages is Kafka's; stages that did not run have no line."""
    stages = [Stages(task="bulk", decoded=100.0, recorded=250.0), Stages(task="oltp", decoded=1.0, recorded=2.0)]
    (_, _, line) = where([done("bulk", "tailorbird", rate=1000)], stages)
    assert line == "| bulk | 100.0 | 150.0 | 750.0 | 1000.0 |"
    assert where([done("bulk", "tailorbird", rate=1000)], []) == []


def test_wrong_sizes_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Usage errors exit with 2 before anything is started."""
    assert main(["--rounds", "0"]) == 2
    assert "must be at least 1" in capsys.readouterr().err


def test_a_signal_ends_a_benchmark_once(capsys: pytest.CaptureFixture[str]) -> None:
    """SIGTERM ends it like Ctrl-C, and a second one does not disturb the servers' shutdown."""
    stopped = []

    def run(options: object, given: str) -> int:
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGTERM)
            stopped.append("the servers")
        return 0

    before = signal.getsignal(signal.SIGTERM)
    assert run_benchmark(options_of("bench-nothing", None, 1), [], run) == 130
    assert stopped == ["the servers"]
    assert "interrupted" in capsys.readouterr().err
    assert signal.getsignal(signal.SIGTERM) is before
