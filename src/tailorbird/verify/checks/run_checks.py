"""Run the checks of a topology when they are due, one at a time, at a low priority."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TypeVar

import structlog

from cdc.model.errors import Retriable, TailorbirdError, UsageError
from cdc.otel.http_metrics import send_metrics
from cdc.process.file_running import announced
from cdc.process.http_operation import serve_operation
from cdc.process.verdict import HealthTracker
from cdc.topology.topology import Check, Topology
from tailorbird.verify.checks.http_metrics import CheckMetrics
from tailorbird.verify.checks.kafka_runs import RunsReader, keep
from tailorbird.verify.checks.runs import CheckResult, CheckRun, ended
from tailorbird.verify.checks.schedule import next_check, turn_of

T = TypeVar("T")
Compare = Callable[[Check, int], Iterable[CheckResult]]
PART = "checks"

_LOOK_EVERY = 0.5
_LONGEST_WAIT = 15.0
_PRIORITY = 10  # nice value, of 19: leaves the processors to the pipeline

log = structlog.get_logger()


def run_checks(
    topology: Topology, compare: Compare, *, once: bool = False, metrics_port: int = 0
) -> Iterator[CheckRun]:
    """Run checks until SIGTERM or SIGINT, or with `once` each of them once. Yield each run after it is stored.

    `compare` runs a check for one part of its sample and yields the results. A TailorbirdError that it raises
    becomes a part of the run. While Kafka is unavailable, the run is kept and stored later. Raises UsageError for a
    topology without checks. A check whose process is killed runs again."""
    if not topology.checks:
        raise UsageError(f"{topology.file} has no `checks:`", "topologies/README.md shows how to write them")
    for number in (signal.SIGTERM, signal.SIGINT):
        # a comparison may take hours and writes nothing, so it can end at any point
        signal.signal(number, lambda *_: sys.exit(0))
    os.nice(_PRIORITY)
    standing, metrics, under_way = HealthTracker(), CheckMetrics(), dict[str, str]()
    send_metrics(topology.name, PART)
    with announced(topology.name, PART, metrics_port), RunsReader(topology) as reader:
        if metrics_port:
            serve_operation(metrics_port, lambda: (standing.judge(time.monotonic()), dict(under_way)))
        runs = _patiently(standing, reader.read)
        for check in topology.checks.values():
            metrics.knows(check)
            if check.name in runs:
                metrics.ran(runs[check.name])
        standing.ready()
        for check in topology.checks.values() if once else _due(topology.checks, runs):
            under_way["check"] = check.name
            runs[check.name] = run = _compared(check, runs.get(check.name), compare)
            del under_way["check"]
            _patiently(standing, partial(keep, topology, run))
            metrics.ran(run)
            yield run


def _due(checks: Mapping[str, Check], runs: Mapping[str, CheckRun]) -> Iterator[Check]:
    """Yield checks when they are due, forever. `runs` are the last runs, which the caller updates."""
    started = _now_ms()
    while True:
        check = next_check(checks, runs, _now_ms(), started)
        if check is None:
            time.sleep(_LOOK_EVERY)
        else:
            yield check


def _compared(check: Check, before: CheckRun | None, compare: Compare) -> CheckRun:
    began, turn, found, error = _now_ms(), turn_of(check, before), list[CheckResult](), ""
    log.info("check begins", check=check.name, turn=turn)
    try:
        for one in compare(check, turn):
            found.append(one)
    except TailorbirdError as failed:  # reported with the run; only this comparison ends
        error = str(failed)
    run = ended(check.name, before, found, began_ms=began, now_ms=_now_ms(), turn=turn, error=error)
    say = log.info if run.outcome == "equal" else log.warning
    rows, differing = sum(one.rows for one in found), sum(one.differing for one in run.checked)
    seconds, more = round((run.ended_ms - began) / 1000, 1), {"error": error} if error else {}
    say("check ended", check=check.name, outcome=run.outcome, rows=rows, differing=differing, seconds=seconds, **more)
    return run


def _patiently(standing: HealthTracker, action: Callable[[], T]) -> T:
    pause = 0.0
    while True:
        try:
            done = action()
            standing.resumes("kafka")
            return done
        except Retriable as error:
            standing.waits("kafka", str(error), time.monotonic())
            pause = min(max(2 * pause, error.retry_after), _LONGEST_WAIT)
            log.warning("waiting", reason=str(error), seconds=pause)
            time.sleep(pause)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
