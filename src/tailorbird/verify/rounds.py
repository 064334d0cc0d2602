"""Compare rows that differ at first again, in rounds, until each one is decided.

Each round reads both ends of some rows at one cut and returns an observation of each row. Rows that agree are done. A
row differs if several consecutive rounds, each covered by a cut, observe the same difference. A row that changes
between rounds is moving. A row that no round decides remains unknown. The stages implement the reading.
"""

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

    `agrees`: both ends are equal. `moved`: one end changed during the round. `uncovered`: no cut covers the row, for
    the given `reason`. `differs`: `evidence` identifies both values, for comparison with the next round, and `finding`
    describes the difference.
    """

    state: Literal["agrees", "moved", "uncovered", "differs"]
    evidence: Hashable = None
    finding: Finding | None = None
    reason: str = ""


AGREES = RowObservation(state="agrees")
MOVED = RowObservation(state="moved")
Look = Callable[[Sequence[str]], Mapping[str, RowObservation]]


@dataclass(slots=True, kw_only=True)
class RecheckResult:
    """Result of all rounds.

    It has the keys that differ, the first findings, the number of moving rows, and the number of undecided rows by
    reason.
    """

    differing: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    moving: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    looks: int = 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each reason with its number of rows, as text."""
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
    """Compare rows again until each one is decided, in at most `rounds` rounds.

    `pause` is called with the number of undecided rows before each round except the first. A row is reported as
    different only after `confirmed` consecutive rounds observed the same difference. Memory: the keys, and the last
    observation of each undecided row.
    """
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
