"""The results of `tailorbird verify`: the rows that differ, and a verdict for each stage of each table.

A stage compares a near end, which is right, with a far end, such as a table in HBase with its index in Solr. A row
is `different` only if both ends were read and compared value by value, and no change that is on its way explains the
difference. A row that changes during the comparison is `moving`. A row for which no barrier shows that the far end
should have it already is `unknown`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from cdc.model.errors import UsageError
from cdc.model.types import Canonical

Stage = Literal["log", "table", "index"]
Outcome = Literal["equal", "equal in part", "different", "could not tell"]
Until = Literal["", "change", "topology"]
Kind = Literal["missing", "extra", "different"]  # at the far end, seen from the near end

MOST_FINDINGS = 1000  # stored with their values; all differences are counted
INCOMPLETE: Final = "could not tell"  # the outcome as stored in JSON and in metrics
WORST_FIRST: Final[tuple[Outcome, ...]] = ("different", INCOMPLETE, "equal in part", "equal")
EQUAL, DIFFERENT, UNLOGGED = 0, 1, 3  # exit codes


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One row that differs.

    `columns` gives the values of each differing column as (near end, far end). It is empty for missing and extra
    rows. `position` says where the row was found: a batch timestamp, an offset or a GTID set."""

    stage: Stage
    table: str
    key: Mapping[str, Canonical]
    kind: Kind
    columns: Mapping[str, tuple[Canonical, Canonical]]
    position: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `--json` prints."""
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
    """The result of one stage for one table. `leaves` is the number of key ranges that were compared by digest.

    - `findings`: the first differences. `differing`: the number of all differences.
    - `moving`: the number of rows that changed in every round. `unknown`: reasons why rows were not compared.
    - `uncompared`: columns that were not compared, with reasons.
    - `read`: the number of rows that were read from the near end. Most rows are compared only by digest.
    - `until`: what must change before the table can be compared: the `topology`, or the table or its data
      (`change`). Empty: nothing; a later comparison may succeed.
    - `cut`: the position or timestamp at which the ends were compared. `seconds`: the duration."""

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
    until: Until = ""

    @property
    def outcome(self) -> Outcome:
        """Return the outcome. A difference takes precedence over an incomplete comparison, which is never `equal`."""
        if self.differing:
            return "different"
        return INCOMPLETE if self.unknown else "equal in part" if self.uncompared else "equal"

    @property
    def summary(self) -> str:
        """Return the outcome as text."""
        left = len(self.uncompared)
        if self.outcome != "equal in part":
            return "comparison incomplete" if self.unknown and not self.differing else self.outcome
        return f"equal, {left:,} {'column' if left == 1 else 'columns'} not compared"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object that `--json` prints. Findings are separate objects."""
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
            "unknown": list(self.unknown),
            "not_compared": dict(self.uncompared),
            "seconds": round(self.seconds, 3),
        }


def exit_code(verdicts: Iterable[Verdict], error: BaseException | None = None) -> int:
    """Return the exit code of a command: 0 if all are equal, 1 if something differs, 3 if something was not compared or
    there is no verdict. After an `error` it is 1 if something differs, 2 for a usage error, and 3 for others."""
    outcomes = {verdict.outcome for verdict in verdicts}
    if "different" in outcomes:
        return DIFFERENT
    if error is not None:
        return UsageError.exit_code if getattr(error, "exit_code", None) == UsageError.exit_code else UNLOGGED
    return EQUAL if outcomes == {"equal"} else UNLOGGED
