"""The results of checks, stored as one JSON record per check in the topic `<topology>.checks`.

A difference stays reported until the same rows are compared again. A later run that was incomplete, because a server
was unavailable, does not clear it. A check with a sample compares the same part again until it is equal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tailorbird.verify.findings import INCOMPLETE, Outcome, Until

FORMAT = 1
MOST_FINDINGS = 20  # stored per table
_LONGEST = 200  # characters of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one stage for one table. Most fields are those of `tailorbird.verify.findings.Verdict`.

    `findings` are the first differences, `seconds` is the duration. `unknown` lists reasons why rows were not
    compared, and `until` what must change before they can be. `differing` and `moving` are numbers of rows, `cut` is
    the position that was compared, `at_ms` the time."""

    stage: str
    table: str
    outcome: Outcome
    rows: int
    differing: int
    moving: int
    cut: str
    at_ms: int
    seconds: float
    unknown: tuple[str, ...] = ()
    findings: tuple[Mapping[str, Any], ...] = ()
    until: Until = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """The last run of a check.

    `turn` is the part of the sample that it compared. `error` is the error that ended it early. `equal_ms` is when
    the last run that found everything equal began (0: never). `checked` are the results by stage and table."""

    check: str
    began_ms: int
    ended_ms: int
    turn: int
    checked: tuple[CheckResult, ...]
    error: str = ""
    equal_ms: int = 0

    @property
    def outcome(self) -> Outcome:
        """Return the outcome of the run. A difference takes precedence over an incomplete comparison."""
        outcomes = {one.outcome for one in self.checked}
        if "different" in outcomes:
            return "different"
        if self.error or not outcomes or INCOMPLETE in outcomes:
            return INCOMPLETE
        return "equal in part" if "equal in part" in outcomes else "equal"

    @property
    def reported_nothing(self) -> bool:
        """Return whether nothing was compared: a server was unavailable, or there is nothing to compare yet."""
        return all(one.outcome == INCOMPLETE for one in self.checked)

    @property
    def until(self) -> Until:
        """Return what must change before a run can compare anything, as in `Verdict`.

        Empty: it need not wait for a change."""
        awaited = {one.until for one in self.checked}
        if self.error or not awaited or "" in awaited:
            return ""
        return "change" if "change" in awaited else "topology"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that the topic stores. An empty `until` is omitted: earlier versions reject it."""
        stored = {"format": FORMAT, **asdict(self)}
        for one in stored["checked"]:
            if not one["until"]:
                del one["until"]
        return stored


def run_of(stored: Mapping[str, Any]) -> CheckRun:
    """Return the run in a stored JSON object. Raises ValueError for another format, and LookupError, TypeError or
    AttributeError for an object that is no run."""
    if stored["format"] != FORMAT:
        raise ValueError(f"format {stored['format']}, expected {FORMAT}")
    checked = tuple(_result_of(one) for one in stored["checked"])
    fields = {name: value for name, value in stored.items() if name != "format"}
    return CheckRun(**{**fields, "checked": checked})


def _result_of(stored: dict[str, Any]) -> CheckResult:
    # versions before 0.2 stored `unknown` as `untold`
    unknown = stored.pop("untold", ()) or stored.pop("unknown", ())
    return CheckResult(**{**stored, "unknown": tuple(unknown), "findings": tuple(stored["findings"])})


def ended(
    check: str,
    before: CheckRun | None,
    found: Sequence[CheckResult],
    *,
    began_ms: int,
    now_ms: int,
    turn: int,
    error: str,
) -> CheckRun:
    """Return the record of a finished run. Differences of the run `before` that this run did not decide are kept."""
    stands = [
        one for one in (before.checked if before else ()) if one.outcome == "different" and _open(found, one, error)
    ]
    run = CheckRun(
        check=check, began_ms=began_ms, ended_ms=now_ms, turn=turn, checked=(*stands, *found), error=error,
        equal_ms=before.equal_ms if before else 0,
    )  # fmt: skip
    return replace(run, equal_ms=began_ms) if run.outcome == "equal" else run


def _open(found: Sequence[CheckResult], one: CheckResult, error: str) -> bool:
    """Return whether a run did not decide the stage and table of an earlier result.

    A table that the check no longer compares counts as decided."""
    outcomes = [each.outcome for each in found if (each.stage, each.table) == (one.stage, one.table)]
    return "different" not in outcomes and (INCOMPLETE in outcomes or (not outcomes and bool(error)))


def shortened(finding: Mapping[str, Any]) -> dict[str, Any]:
    """Return a finding with long values cut, because a Kafka record holds about a megabyte."""
    return {name: _short(value) for name, value in finding.items()}


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:_LONGEST]]
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value


def without_findings(runs: Mapping[str, CheckRun]) -> dict[str, CheckRun]:
    """Return the last runs of checks without the rows that differ; their numbers stay."""
    return {
        name: replace(run, checked=tuple(replace(one, findings=()) for one in run.checked))
        for name, run in runs.items()
    }
