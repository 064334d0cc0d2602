"""Format verdicts as text: a line for each stage of each table, followed by its differences."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from cdc.model.types import Canonical
from tailorbird.verify.findings import MOST_FINDINGS, WORST_FIRST, Finding, Outcome, Stage, Verdict

# near end, far end
ENDS: Mapping[Stage, tuple[str, str]] = {
    "log": ("the source", "the log"),
    "table": ("the sources", "HBase"),
    "index": ("HBase", "the index"),
}
_MOST_REPORTED = 20
_LONGEST = 80
_WIDE = 7
_EVERY, _NAMED = 500, 100


def lines_of(verdict: Verdict) -> Iterator[str]:
    """Yield the lines of a verdict."""
    head = f"{verdict.stage:<{_WIDE}}{verdict.table}: {verdict.summary}"
    leaves = f" in {verdict.leaves:,} leaves" if verdict.leaves else ""
    yield f"{head}  ({verdict.rows:,} rows{leaves}, {verdict.cut}, {verdict.seconds:.1f} s)"
    indent = " " * _WIDE
    if verdict.differing:
        near, far = ENDS[verdict.stage]
        rows = "1 row differs" if verdict.differing == 1 else f"{verdict.differing:,} rows differ"
        yield f"{indent}{rows} between {near} and {far}:"
        for finding in verdict.findings[:_MOST_REPORTED]:
            yield from (f"{indent}  {line}" for line in finding_lines(finding))
        if verdict.differing > _MOST_REPORTED:
            reported = "all of them" if verdict.differing <= len(verdict.findings) else f"the first {MOST_FINDINGS:,}"
            more = verdict.differing - _MOST_REPORTED
            yield f"{indent}  … and {more:,} more: --json shows {reported} with their values"
    if verdict.moving:
        yield f"{indent}not compared: {verdict.moving:,} rows changed in every round"
    for reason in verdict.unknown:
        yield f"{indent}not compared: {reason}"
    for column, reason in verdict.uncompared.items():
        yield f"{indent}not compared: column {column}: {reason}"


@dataclass(slots=True)
class VerdictLines:
    """Formats the verdicts of one run in their order: the first `limit` of each outcome, and the totals at the end.

    A run over thousands of tables thus prints each difference, but not a line for each equal table."""

    limit: int
    _seen: dict[Outcome, list[tuple[Stage, str]]] = field(
        default_factory=lambda: {outcome: [] for outcome in WORST_FIRST}, init=False
    )

    def add(self, verdict: Verdict) -> Iterator[str]:
        """Yield the lines of the next verdict; a line with the number of comparisons after each 500 of them."""
        seen = self._seen[verdict.outcome]
        seen.append((verdict.stage, verdict.table))
        if len(seen) <= self.limit:
            yield from lines_of(verdict)
        total = sum(map(len, self._seen.values()))
        if self._left_out and total % _EVERY == 0:
            yield self._counts

    def totals(self) -> Iterator[str]:
        """Yield the totals, and the tables that differ or were not compared. Nothing if all verdicts were printed."""
        if not self._left_out:
            return
        yield self._counts
        for outcome in WORST_FIRST[:-1]:
            names = [f"{stage} {table}" for stage, table in self._seen[outcome]]
            if names:
                more = f", and {len(names) - _NAMED:,} more: see --json" if len(names) > _NAMED else ""
                yield f"{outcome}: {', '.join(names[:_NAMED])}{more}"

    @property
    def _left_out(self) -> bool:
        return any(len(seen) > self.limit for seen in self._seen.values())

    @property
    def _counts(self) -> str:
        counts = ", ".join(f"{len(seen):,} {outcome}" for outcome, seen in self._seen.items() if seen)
        return f"{sum(map(len, self._seen.values())):,} comparisons: {counts}"


def finding_lines(finding: Finding) -> Iterator[str]:
    """Yield the lines of one difference: the row, then the values of each differing column."""
    near, far = ENDS[finding.stage]
    key = ", ".join(f"{name}={_short(value)}" for name, value in finding.key.items())
    what = {"missing": f"missing in {far}", "extra": f"only in {far}", "different": "different"}[finding.kind]
    yield f"{what}: {key}  ({finding.position})"
    for name, (ours, theirs) in finding.columns.items():
        yield f"  {name}: {_short(ours)} in {near}, {_short(theirs)} in {far}"


def timestamp_reported(timestamp: int | None) -> str:
    """Format a batch timestamp (ms) as the number with its date and time. None and 0 become "no cut yet"."""
    if not timestamp:
        return "no cut yet"
    return f"batch timestamp {timestamp} = {moment_reported(timestamp)}"


def moment_reported(milliseconds: int) -> str:
    """Format milliseconds since 1970 as date and time."""
    at = dt.datetime.fromtimestamp(milliseconds / 1000, dt.UTC)
    return f"{at:%Y-%m-%d %H:%M:%S}.{milliseconds % 1000:03d} UTC"


def _short(value: Canonical) -> str:
    text = "NULL" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
