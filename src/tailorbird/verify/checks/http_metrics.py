"""Prometheus metrics about the last run of each check."""

from __future__ import annotations

from collections import defaultdict
from typing import get_args

from prometheus_client import Gauge

from cdc.topology.topology import Check
from tailorbird.verify.checks.runs import CheckResult, CheckRun
from tailorbird.verify.findings import WORST_FIRST, Outcome

_TABLE = ["check", "stage", "table"]
INTERVAL = Gauge("tailorbird_check_interval_seconds", "Interval at which a check should run", ["check"])
LAST_RUN = Gauge("tailorbird_check_last_run_timestamp_seconds", "When the last run began", ["check"])
LAST_EQUAL = Gauge(
    "tailorbird_check_last_success_timestamp_seconds", "When the last run that found everything equal began", ["check"]
)
DURATION = Gauge("tailorbird_check_duration_seconds", "How long the last run took", ["check"])
OUTCOME = Gauge("tailorbird_check_outcome", "1 for the outcome of the last run", [*_TABLE, "outcome"])
ROWS = Gauge("tailorbird_check_rows", "Rows that the last run compared", _TABLE)
DIFFERING = Gauge("tailorbird_check_differing_rows", "Compared rows that differ", _TABLE)
COMPARED = Gauge("tailorbird_check_compared_timestamp_seconds", "When the table was last compared", _TABLE)
MOVING = Gauge("tailorbird_check_moving_rows", "Compared rows that changed in every round", _TABLE)

_OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)


class CheckMetrics:
    """Prometheus gauges about checks. Labels of tables that a check no longer compares are removed."""

    def __init__(self) -> None:
        self._shown: dict[str, set[tuple[str, str]]] = defaultdict(set)

    def knows(self, check: Check) -> None:
        """Register a check, so that its metrics exist before its first run."""
        INTERVAL.labels(check.name).set(check.every)

    def ran(self, run: CheckRun) -> None:
        """Publish the result of a run. At the start it is called with the stored runs."""
        LAST_RUN.labels(run.check).set(run.began_ms / 1000)
        DURATION.labels(run.check).set((run.ended_ms - run.began_ms) / 1000)
        if run.equal_ms:
            LAST_EQUAL.labels(run.check).set(run.equal_ms / 1000)
        found: dict[tuple[str, str], list[CheckResult]] = defaultdict(list)
        for one in run.checked:
            found[one.stage, one.table].append(one)
        for gone in self._shown[run.check] - found.keys():
            for gauge in (ROWS, DIFFERING, MOVING, COMPARED):
                gauge.remove(run.check, *gone)
            for outcome in _OUTCOMES:
                OUTCOME.remove(run.check, *gone, outcome)
        for place, some in found.items():
            ROWS.labels(run.check, *place).set(sum(one.rows for one in some))
            DIFFERING.labels(run.check, *place).set(sum(one.differing for one in some))
            MOVING.labels(run.check, *place).set(sum(one.moving for one in some))
            COMPARED.labels(run.check, *place).set(max(one.at_ms for one in some) / 1000)
            outcomes = {one.outcome for one in some}
            worst = next(one for one in WORST_FIRST if one in outcomes)
            for outcome in _OUTCOMES:
                OUTCOME.labels(run.check, *place, outcome).set(outcome == worst)
        self._shown[run.check] = set(found)
