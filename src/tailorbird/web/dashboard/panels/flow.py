"""Texts of the overview: rate and lag of each edge, last verified state, and dead letters of each node."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.dead_letters import QUARANTINE, OpenDeadLetters
from tailorbird.operate.status.index_status import VisibleCut, missing_changes
from tailorbird.verify.checks.check_status import ago
from tailorbird.verify.checks.runs import CheckResult

WINDOW, LEAST = 30.0, 3.0  # seconds: the longest and the shortest window of a rate
_STAGES = {"capture": ("capture", QUARANTINE), "join": ("join",), "index": ("indexer",)}


class Rates:
    """Computes rates of counters from samples."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def note(self, now: float, values: Mapping[str, float]) -> None:
        """Record the counters at a time (seconds). If a counter decreased, it was reset: its earlier values are
        dropped, as are all values older than `WINDOW`."""
        for name, value in values.items():
            seen = self._seen.setdefault(name, deque())
            if seen and value < seen[-1][1]:
                seen.clear()
            seen.append((now, value))
        for seen in self._seen.values():
            while seen and now - seen[0][0] > WINDOW:
                seen.popleft()

    def reported(self) -> dict[str, float]:
        """Return the rate per second of each counter that was observed for at least `LEAST` seconds."""
        spans = {name: (seen[0], seen[-1]) for name, seen in self._seen.items() if seen}
        return {
            name: (last - first) / (until - since)
            for name, ((since, first), (until, last)) in spans.items()
            if until - since >= LEAST
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowState:
    """The state of the servers, for the overview.

    `rates` are changes or documents per second by node. `captured` (by source), `visible` (by index) and `waiting`
    are None if their server does not answer. `checked` are the last results of checks."""

    now_ms: int
    rates: Mapping[str, float] = field(default_factory=dict)
    captured: Mapping[str, CapturedPosition] | None = None
    visible: Mapping[str, VisibleCut] | None = None
    waiting: Sequence[OpenDeadLetters] | None = None
    checked: Sequence[CheckResult] = ()


def captured_text(seen: FlowState, source: str) -> str:
    """Return the rate of changes that a source's capture publishes, as text. `seen` is the state of the servers."""
    return _rate(seen, f"capture {source}", "changes")


def indexed_text(seen: FlowState, index: str, sources: Iterable[str]) -> str:
    """Return, as text, the rate of rows into an index, and how many changes of its sources queries may not see yet."""
    cut = (seen.visible or {}).get(index)
    lacking = None
    if cut is not None and seen.captured is not None:
        lacking = missing_changes(frozenset(sources), seen.captured, cut.sequences)
    lag = "" if lacking is None else "complete" if not lacking else f"{lacking:,} changes missing"
    return ", ".join(filter(None, [_rate(seen, f"index {index}", "documents"), lag]))


def shown_text(seen: FlowState, index: str) -> str:
    """Return, as text, how old the data is that queries of an index see. Empty if that is unknown."""
    cut = (seen.visible or {}).get(index)
    if cut is None or cut.timestamp_ms is None:
        return ""
    return f"shows all up to {ago(seen.now_ms - cut.timestamp_ms)} ago"


def verified_text(seen: FlowState, stage: str, table: str) -> tuple[str, bool]:
    """Return the last result of `verify` for a stage and table (or an empty text), and whether it has no
    differences."""
    found = [one for one in seen.checked if (one.stage, one.table) == (stage, table)]
    wrong = [one for one in found if one.outcome == "different"]
    if wrong:
        return f"DIFFERENT: {wrong[0].differing:,} of {wrong[0].rows:,} rows, {_when(seen, wrong[0])}", False
    equal = [one for one in found if one.outcome == "equal"]
    if not equal:
        return "", True
    last = max(equal, key=lambda one: one.at_ms)
    return f"verified {_when(seen, last)}: {last.rows:,} rows equal, cut {last.cut}", True


def dead_letters_of(seen: FlowState, kind: str, name: str) -> int | None:
    """Return the number of dead letters of a node, tables in quarantine included. None if Kafka does not answer."""
    if seen.waiting is None:
        return None
    places = [one for one in seen.waiting if one.stage in _STAGES.get(kind, ())]
    return sum(one.dead_letters for one in places if one.of == name or (kind == "capture" and _source(one.of) == name))


def _source(of: str) -> str:
    return of.partition(".")[0]


def _rate(seen: FlowState, node: str, what: str) -> str:
    rate = seen.rates.get(node)
    return "" if rate is None else f"{rate:,.1f} {what}/s"


def _when(seen: FlowState, one: CheckResult) -> str:
    return f"{ago(seen.now_ms - one.at_ms)} ago"
