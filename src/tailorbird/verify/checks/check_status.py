"""Describe the state of checks for `status`, `run` and the dashboard."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from cdc.topology.topology import Check, Topology
from tailorbird.operate.status.part_status import WIDE
from tailorbird.verify.checks.runs import CheckResult, CheckRun
from tailorbird.verify.checks.schedule import overdue_ms
from tailorbird.verify.findings import INCOMPLETE, Outcome

State = Literal["equal", "in part", "DIFFERENT", "unknown", "overdue", "waiting"]
_STATES: Mapping[Outcome, State] = {
    "equal": "equal",
    "equal in part": "in part",
    "different": "DIFFERENT",
    INCOMPLETE: "unknown",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckStatus:
    """State of a check. `reported` are the lines of its last result.

    - `equal`; `in part`: equal, but some columns were not compared; `DIFFERENT`; `unknown`: the comparison is
      incomplete.
    - `overdue`: it should have run long ago; `waiting`: it never ran.

    `look` is the command that shows the differences, or runs an overdue check."""

    check: str
    state: State
    overdue: bool
    reported: tuple[str, ...]
    look: str
    run: CheckRun | None

    @property
    def well(self) -> bool:
        """Return whether no action is needed. An incomplete comparison counts as well, because it is no difference."""
        return self.state != "DIFFERENT" and not self.overdue

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `status --json` prints."""
        last = self.run.to_json() if self.run else {}
        reported = {
            "kind": "check",
            "check": self.check,
            "state": self.state,
            "overdue": self.overdue,
            "look": self.look,
        }
        return {
            **reported,
            **{name: last.get(name) for name in ("began_ms", "ended_ms", "equal_ms", "error", "checked")},
        }


def check_statuses(topology: Topology, runs: Mapping[str, CheckRun], now_ms: int) -> list[CheckStatus]:
    """Return the state of each check of a topology. `runs` are the last runs by check; those of removed checks are
    ignored."""
    return [_status(topology.file, check, runs.get(name), now_ms) for name, check in topology.checks.items()]


def _status(file: str, check: Check, run: CheckRun | None, now_ms: int) -> CheckStatus:
    if run is None:
        reported = ("it has not run yet",)
        return CheckStatus(check=check.name, state="waiting", overdue=False, reported=reported, look="", run=None)
    late = overdue_ms(check, run, now_ms)
    state, look = _STATES[run.outcome], ""
    lines = [found_text(one, now_ms) for one in run.checked]
    if run.error:
        lines.append(f"not compared: {run.error}")
    if run.until == "topology":
        lines.append("it does not run again until the topology changes")
    if late:
        every, began = ago(round(check.every * 1000)), ago(now_ms - run.began_ms)
        lines.append(f"overdue: it should run every {every}, and last began {began} ago")
        look = f"tailorbird checks {file}, or tailorbird run {file}"
    if state == "DIFFERENT":
        look = look_of(file, run.checked)
    elif late:
        state = "overdue"
    return CheckStatus(check=check.name, state=state, overdue=bool(late), reported=tuple(lines), look=look, run=run)


def status_lines(one: CheckStatus) -> list[str]:
    """Return the lines that describe a check."""
    first, *more = one.reported or ("there was nothing to compare",)
    lines = [f"{one.state:<{WIDE}}check {one.check}: {first}", *(f"{'':<{WIDE}}{line}" for line in more)]
    return [*lines, f"{'':<{WIDE}}{one.look}"] if one.look else lines


def look_of(file: str, checked: Iterable[CheckResult]) -> str:
    """Return the command that shows the differences in these results. `file` is the topology's file."""
    found = [one for one in checked if one.outcome == "different"]
    stages, tables = dict.fromkeys(one.stage for one in found), dict.fromkeys(one.table for one in found)
    return " ".join(
        ["tailorbird verify", file, *(f"--stage {name}" for name in stages), *(f"--table {name}" for name in tables)]
    )


def found_text(one: CheckResult, now_ms: int) -> str:
    """Format one result: `index orders_wide: equal, 12,345 rows, 3 min ago`."""
    what, when = f"{one.stage} {one.table}", f"{ago(now_ms - one.at_ms)} ago"
    moving = f", {one.moving:,} of them moving" if one.moving else ""
    if one.outcome == "equal":
        return f"{what}: equal, {one.rows:,} rows{moving}, {when}"
    if one.outcome == "equal in part":
        return f"{what}: equal in part, {one.rows:,} rows{moving}, {when}; {'; '.join(one.unknown)}"
    if one.outcome == INCOMPLETE:
        return f"{what}: not compared: {one.unknown[0] if one.unknown else 'the reason is unknown'}; {when}"
    return f"{what}: {_differing(one.differing)} of {one.rows:,}{_first(one.findings)}, {when}"


def page_text(checks: Sequence[CheckStatus], tables: Collection[tuple[str, str]], file: str, now_ms: int) -> PageCheck:
    """Return the texts about checks for a dashboard page, whose `tables` are (stage, table).

    Both texts are empty until a check has compared one of the tables."""
    found = [one for each in checks if each.run for one in each.run.checked if (one.stage, one.table) in tables]
    wrong = [one for one in found if one.outcome == "different"]
    reported = [one for one in found if one.outcome != INCOMPLETE]
    newest = max(reported or found, key=lambda one: one.at_ms, default=None)
    alarm = ""
    if wrong:
        rows = sum(one.differing for one in wrong)
        alarm = f"Some of this data is wrong: {_differing(rows)}, found {ago(now_ms - wrong[0].at_ms)} ago. "
        alarm += f"See: {look_of(file, wrong)}"
    if newest is None:
        return PageCheck(quiet="", alarm=alarm)
    late = ", overdue" if any(each.overdue for each in checks if each.run and newest in each.run.checked) else ""
    result = f"{newest.outcome}, {newest.rows:,} rows"
    if newest.outcome == INCOMPLETE:
        result = "comparison incomplete, see `tailorbird status`"
    quiet = f"verified {ago(now_ms - newest.at_ms)} ago: {result}{late}"
    return PageCheck(quiet=quiet, alarm=alarm)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageCheck:
    """Texts about checks for a page: `quiet` is the newest result, `alarm` lists differences."""

    quiet: str = ""
    alarm: str = ""


def _differing(rows: int) -> str:
    return "1 row differs" if rows == 1 else f"{rows:,} rows differ"


def _first(findings: Sequence[Mapping[str, Any]]) -> str:
    for finding in findings:
        key = ", ".join(f"{name}={value}" for name, value in finding.get("key", {}).items())
        return f", the first: {key} {finding.get('difference', '')}".rstrip()
    return ""


def ago(milliseconds: float) -> str:
    """Format a duration: `12 s`, `3 min`, `5 h`, `2 days`."""
    seconds = max(0.0, milliseconds / 1000)
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h" if seconds < 172_800 else f"{seconds / 86400:.0f} days"
