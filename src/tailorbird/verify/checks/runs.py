"""What a check found when it last ran: kept as one JSON record a check, in `<topology>.checks`. Pure.

A difference that was found stays told until the same is looked at again: a later run that could not tell (a server was
away) does not take it back, and a check of samples compares the same part again while something in it differs.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Outcome = Literal["equal", "equal in part", "different", "could not tell"]

_FORMAT = 1
MOST_FINDINGS = 20  # kept of one table
_LONGEST = 200  # characters of a value


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was found of one stage of one table, and when: as the verdict has it, `findings` being the first of them.

    `seconds` is what it took; `unknown` says why something could not be told.
    """

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


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckRun:
    """The last run of a check. `turn`: which part of the sample it compared; `error`: what ended it early.

    `equal_ms`: when a run last began that found all equal; 0: none ever did.
    """

    check: str
    began_ms: int
    ended_ms: int
    turn: int
    checked: tuple[Checked, ...]
    error: str = ""
    equal_ms: int = 0

    @property
    def outcome(self) -> Outcome:
        """Of all of it: what differs stands, whatever else could not be told."""
        outcomes = {one.outcome for one in self.checked}
        if "different" in outcomes:
            return "different"
        if self.error or not outcomes or "could not tell" in outcomes:
            return "could not tell"
        return "equal in part" if "equal in part" in outcomes else "equal"

    @property
    def reported_nothing(self) -> bool:
        """Whether it is as good as none: a server was away, or nothing is there to compare yet."""
        return all(one.outcome == "could not tell" for one in self.checked)

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return {"format": _FORMAT, **asdict(self)}


def run_of(text: bytes) -> CheckRun | None:
    """The run that a record tells; None where it is none of this version's."""
    try:
        reported = json.loads(text)
        if reported.pop("format") != _FORMAT:
            return None
        checked = [
            # versions before 0.2 stored `unknown` as `untold`
            Checked(
                **{
                    **one,
                    "unknown": tuple(one.pop("untold", ()) or one.get("unknown", ())),
                    "findings": tuple(one["findings"]),
                }
            )
            for one in reported.pop("checked")
        ]
        return CheckRun(**reported, checked=tuple(checked))
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def ended(
    check: str, before: CheckRun | None, found: Sequence[Checked], *, began_ms: int, now_ms: int, turn: int, error: str
) -> CheckRun:
    """A run that is over; what one before had found to differ, and this one did not look at to the end, stands."""
    stands = [
        one for one in (before.checked if before else ()) if one.outcome == "different" and _open(found, one, error)
    ]
    run = CheckRun(
        check=check, began_ms=began_ms, ended_ms=now_ms, turn=turn, checked=(*stands, *found), error=error,
        equal_ms=before.equal_ms if before else 0,
    )  # fmt: skip
    return replace(run, equal_ms=began_ms) if run.outcome == "equal" else run


def _open(found: Sequence[Checked], one: Checked, error: str) -> bool:
    """Whether a run has not decided about a stage of a table. A table that it covers no more counts as decided."""
    outcomes = [each.outcome for each in found if (each.stage, each.table) == (one.stage, one.table)]
    return "different" not in outcomes and ("could not tell" in outcomes or (not outcomes and bool(error)))


def shortened(finding: Mapping[str, Any]) -> dict[str, Any]:
    """A finding, with values that are long cut: a record of Kafka holds a megabyte, a column more."""
    return {name: _short(value) for name, value in finding.items()}


def _short(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _short(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_short(each) for each in value[:_LONGEST]]
    return f"{value[:_LONGEST]}…" if isinstance(value, str) and len(value) > _LONGEST else value
