"""`--no-values` hides every value of a row, in text and in JSON, and nothing else."""

from __future__ import annotations

import json

import pytest

from tailorbird.cli.verify.cli_verify import _report
from tailorbird.operate.status.dead_letters import LEFT_OUT, DeadLetterRow, OpenDeadLetters
from tailorbird.operate.status.hidden_values import counts_without_values, records_without_values
from tailorbird.verify.checks.runs import CheckResult, CheckRun, without_findings
from tailorbird.verify.findings import Finding, Verdict
from tailorbird.verify.request import StageResult
from tailorbird.verify.verdict_text import VerdictLines

SECRET = "secret value"


def test_differences_have_names_only(capsys: pytest.CaptureFixture[str]) -> None:
    """The rows that differ are counted, with the names of their columns."""
    finding = Finding(
        stage="table", table="wide", key={"id": SECRET}, kind="different", columns={"name": (SECRET, SECRET)},
        position="5",
    )  # fmt: skip
    verdict = Verdict(stage="table", table="wide", cut="5", findings=(finding,), differing=1)
    for lines in (None, VerdictLines(50)):
        for no_values in (True, False):
            _report(StageResult(verdict=verdict, repaired=verdict), lines, no_values)
            printed = capsys.readouterr().out
            assert (SECRET in printed) != no_values
            assert "name" in printed


def test_dead_letters_and_checks_have_no_values() -> None:
    """Keys, reasons and findings are hidden; a table that is left out keeps its reason, which names only columns."""
    row = DeadLetterRow(
        id="a1", stage="join", of="wide", key=SECRET, position="p", reason=SECRET, table="", reads=False, first_ms=1,
        last_ms=1, count=1, partition=0, offset=0,
    )  # fmt: skip
    (hidden,) = records_without_values([row])
    assert (hidden.key, hidden.reason, hidden.id) == ("(hidden)", "(hidden)", "a1")
    counts = [OpenDeadLetters(stage=stage, of="t", dead_letters=1, reason=SECRET) for stage in ("join", LEFT_OUT)]
    assert [one.reason for one in counts_without_values(counts)] == ["(hidden)", SECRET]
    result = CheckResult(
        stage="table", table="wide", outcome="different", rows=2, differing=1, moving=0, cut="", at_ms=1, seconds=1.0,
        findings=({"key": {"id": SECRET}},),
    )  # fmt: skip
    run = CheckRun(check="c", began_ms=1, ended_ms=2, turn=0, checked=(result,))
    shown = json.dumps(without_findings({"c": run})["c"].to_json())
    assert SECRET not in shown
    assert '"differing": 1' in shown
