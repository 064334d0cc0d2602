"""What `tailorbird verify` finds: rows that differ, and what it can say of each stage of each table.

A difference is told only when both rows were read and compared value by value, and nothing that was under way explains
it. A row that changes while it is looked at is `moving`; what no cut decides is `unknown`. Neither is ever `different`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cdc.model.types import Canonical

Stage = Literal["log", "table", "index"]
Outcome = Literal["equal", "equal in part", "different", "could not tell"]
Kind = Literal["missing", "extra", "different"]  # at the far end, seen from the near end

MOST_FINDINGS = 1000  # kept with their values; all are counted
EQUAL, DIFFERENT, UNLOGGED = 0, 1, 3  # exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row that differs. `columns`: column → (near end, far end), those that differ; empty for missing and extra.

    `position` says in words what is known of where: a stamp, an offset, a GTID set.
    """

    stage: Stage
    table: str
    key: Mapping[str, Canonical]
    kind: Kind
    columns: Mapping[str, tuple[Canonical, Canonical]]
    position: str

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it."""
        return {
            "kind": "difference",
            "stage": self.stage,
            "table": self.table,
            "key": dict(self.key),
            "difference": self.kind,
            "columns": {name: {"near": near, "far": far} for name, (near, far) in self.columns.items()},
            "position": self.position,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One stage of one table: how many rows and leaves (ranges of rows) were covered, at which cut, by which columns.

    `findings` are the first of them, `differing` counts all; `moving` rows changed at every look; `unknown` are the
    reasons why something could not be told, `uncompared` columns that were left out, each with the reason. `read` rows
    of the near end were fetched, where most are only digested.
    """

    stage: Stage
    table: str
    cut: str
    rows: int = 0
    leaves: int = 0
    columns: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    differing: int = 0
    moving: int = 0
    read: int = 0
    unknown: tuple[str, ...] = ()
    uncompared: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def outcome(self) -> Outcome:
        """A difference that was proved stands, whatever else could not be told; what was not compared is not equal."""
        if self.differing:
            return "different"
        return "could not tell" if self.unknown else "equal in part" if self.uncompared else "equal"

    @property
    def summary(self) -> str:
        """The outcome as a person reads it."""
        left = len(self.uncompared)
        if self.outcome != "equal in part":
            return self.outcome
        return f"equal, {left:,} {'column' if left == 1 else 'columns'} not compared"

    def to_json(self) -> dict[str, Any]:
        """As `--json` prints it, without the findings, which stand in lines of their own."""
        return {
            "kind": "verdict",
            "stage": self.stage,
            "table": self.table,
            "outcome": self.outcome,
            "summary": self.summary,
            "rows": self.rows,
            "leaves": self.leaves,
            "cut": self.cut,
            "columns": list(self.columns),
            "differing": self.differing,
            "moving": self.moving,
            "read": self.read,
            "untold": list(self.unknown),
            "not_compared": dict(self.uncompared),
            "seconds": round(self.seconds, 3),
        }


def exit_code(verdicts: Iterable[Verdict]) -> int:
    """0 all equal, 1 something differs, 3 nothing does but something was not compared; 3 of no verdict at all."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if "different" in outcomes:
        return DIFFERENT
    return EQUAL if outcomes == {"equal"} else UNLOGGED
