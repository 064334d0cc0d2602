"""Rows that differ at first sight are looked at again, and again, until it is known why.

A look reads both ends of some rows at one cut and says of each row what it saw. Rows that agree are done. A row that
shows the very same difference in several looks on end, each of which a cut covers, differs. What changes from look to
look is moving; what no look could decide stays untold. The looks themselves belong to the stages.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from tailorbird.verify.findings import MOST_FINDINGS, Finding

# One look does not prove a difference: what is written past the join, and deletes of a former run's rows, bear stamps
# that are older than the cut. Each look comes a pause later, at a later cut.
CONFIRMED = 3
ROUNDS = 10
BLOCK = 20_000  # a look waits for a cut, so that few large ones take less time


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What a look saw of one row.

    `agrees`; `moved`: one end changed while it looked; `uncovered`: no cut covers what it saw, for that `reason`;
    `differs`: `evidence` names what both ends showed, to be compared with the next look's, and `finding` tells it.
    """

    state: Literal["agrees", "moved", "uncovered", "differs"]
    evidence: Hashable = None
    finding: Finding | None = None
    reason: str = ""


AGREES = Sight(state="agrees")
MOVED = Sight(state="moved")
Look = Callable[[Sequence[str]], Mapping[str, Sight]]


@dataclass(slots=True, kw_only=True)
class Looked:
    """What the rounds came to: the keys that differ, the first findings, how many rows move, reasons → rows untold."""

    differing: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    moving: int = 0
    unknown: dict[str, int] = field(default_factory=dict)
    looks: int = 0

    @property
    def reasons(self) -> tuple[str, ...]:
        """Each reason with the number of rows that it holds for."""
        return tuple(f"{rows:,} {'row' if rows == 1 else 'rows'}: {why}" for why, rows in self.unknown.items())


def look_again(
    keys: Sequence[str],
    look: Look,
    *,
    pause: Callable[[int], None],
    rounds: int = ROUNDS,
    confirmed: int = CONFIRMED,
    block: int = BLOCK,
) -> Looked:
    """Look at rows until each is decided, at most `rounds` times; `pause` is called before each round but the first,
    with the number of rows left.

    Never calls a row different of which `confirmed` looks on end did not show the same. Memory: the keys, and what was
    last seen of those that still differ.
    """
    result = Looked()
    left = list(keys)
    shown: dict[str, tuple[Hashable, int]] = {}
    last: dict[str, Sight] = {}
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
                last[key] = Sight(state=one.state, reason=one.reason)
        left, result.looks = again, number + 1
        last = {key: last[key] for key in left}
    for key in left:
        if last[key].state == "uncovered":
            result.unknown[last[key].reason] = result.unknown.get(last[key].reason, 0) + 1
        else:
            result.moving += 1
    return result


def _found(result: Looked, key: str, seen: Sight) -> None:
    result.differing.append(key)
    if len(result.findings) < MOST_FINDINGS:
        assert seen.finding is not None, "a difference without a finding"
        result.findings.append(seen.finding)
