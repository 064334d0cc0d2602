"""Decide whether rows that differ at first are really different, by comparing them again in rounds.

A round reads some rows at both ends (the near end is right, the far end is checked), and returns an observation of
each row. A row that agrees is done. A row differs if several rounds in a row observe the same difference, and the
far end should have had the row by then. A row that changes between rounds is moving. A row that no round decides is
unknown. The stages implement the reading."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tailorbird.verify.findings import MOST_FINDINGS, Finding

# One round does not prove a difference: writes that bypass the join, and deletes of a previous run's rows, have
# timestamps older than the cut. Each round follows after a pause, at a later cut.
CONFIRMED = 3
ROUNDS = 10
BLOCK = 20_000  # rows read together; each block waits for a cut, so few large blocks take less time


@dataclass(frozen=True, slots=True, kw_only=True)
class RowObservation:
    """State of one row in one round.

    - `agrees`: both ends are equal. `moved`: an end changed during the round.
    - `uncovered`: no barrier shows that the far end should have the row already; `reason` says why.
    - `differs`: `finding` describes the difference. `evidence` identifies both values, for comparison with the next
      round."""

    state: Literal["agrees", "moved", "uncovered", "differs"]
    evidence: Hashable = None
    finding: Finding | None = None
    reason: str = ""


AGREES = RowObservation(state="agrees")
MOVED = RowObservation(state="moved")
Look = Callable[[Sequence[str]], Mapping[str, RowObservation]]


@dataclass(slots=True, kw_only=True)
class RecheckResult:
    """The result of all rounds: the keys that differ, the first findings, and the number of moving rows.

    `unknown` gives by reason the number of rows that no round decided. `looks` is the number of rounds."""

    differing: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    moving: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    looks: int = 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Return each reason for undecided rows, with their number, as text."""
        return tuple(f"{rows:,} {'row' if rows == 1 else 'rows'}: {why}" for why, rows in self.unknown.items())


def recheck(
    keys: Sequence[str],
    look: Look,
    *,
    pause: Callable[[int], None],
    rounds: int = ROUNDS,
    confirmed: int = CONFIRMED,
    block: int = BLOCK,
) -> RecheckResult:
    """Compare rows again until each is decided, in at most `rounds` rounds. `look` compares a block of rows once.

    Before each round except the first, `pause` is called with the number of undecided rows. A row is reported only
    after `confirmed` rounds in a row observed the same difference."""
    result = RecheckResult()
    left = list(keys)
    shown: dict[str, tuple[Hashable, int]] = {}
    last: dict[str, RowObservation] = {}
    for number in range(rounds):
        if not left:
            break
        if number:
            pause(len(left))
        again: list[str] = []
        for start in range(0, len(left), block):
            some = left[start : start + block]
            seen = look(some)
            for key in some:
                one = seen[key]
                if one.state == "agrees":
                    shown.pop(key, None)
                    continue
                if one.state != "differs":
                    shown.pop(key, None)
                else:
                    evidence, times = shown.get(key, (None, 0))
                    shown[key] = one.evidence, times + 1 if evidence == one.evidence else 1
                    if shown[key][1] >= confirmed:
                        shown.pop(key)
                        _found(result, key, one)
                        continue
                again.append(key)
                last[key] = RowObservation(state=one.state, reason=one.reason)
        left, result.looks = again, number + 1
        last = {key: last[key] for key in left}
    for key in left:
        if last[key].state == "uncovered":
            result.unknown[last[key].reason] = result.unknown.get(last[key].reason, 0) + 1
        else:
            result.moving += 1
    return result


def _found(result: RecheckResult, key: str, seen: RowObservation) -> None:
    result.differing.append(key)
    if len(result.findings) < MOST_FINDINGS:
        assert seen.finding is not None, "a difference without a finding"
        result.findings.append(seen.finding)
