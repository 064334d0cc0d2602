"""How fast each edge of the overview moves and how far it is behind; what was verified, and what waits as a letter."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.operate.status.dead_letters import QUARANTINE, Waiting
from tailorbird.operate.status.index_status import VisibleCut, missing_changes
from tailorbird.verify.checks.check_status import ago
from tailorbird.verify.checks.runs import Checked

WINDOW, LEAST = 30.0, 3.0  # seconds that a rate is over, at most and at least
_STAGES = {"capture": ("capture", QUARANTINE), "join": ("join",), "index": ("indexer",)}


class Rates:
    """Counters looked at now and then → how fast each grows."""

    def __init__(self) -> None:
        self._seen: dict[str, deque[tuple[float, float]]] = {}

    def note(self, now: float, values: Mapping[str, float]) -> None:
        """What the counters say at a moment (seconds). One that is less than before began anew."""
        for name, value in values.items():
            seen = self._seen.setdefault(name, deque())
            if seen and value < seen[-1][1]:
                seen.clear()
            seen.append((now, value))
        for seen in self._seen.values():
            while seen and now - seen[0][0] > WINDOW:
                seen.popleft()

    def reported(self) -> dict[str, float]:
        """How much a second, of each that was seen for long enough."""
        spans = {name: (seen[0], seen[-1]) for name, seen in self._seen.items() if seen}
        return {
            name: (last - first) / (until - since)
            for name, ((since, first), (until, last)) in spans.items()
            if until - since >= LEAST
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowSeen:
    """What servers tell beside the processes. `rates`: by node, changes or documents a second; `captured` by source,
    `visible` by index, `waiting`: None where they do not tell; `checked`: what checks found last.
    """

    now_ms: int
    rates: Mapping[str, float] = field(default_factory=dict)
    captured: Mapping[str, CapturedPosition] | None = None
    visible: Mapping[str, VisibleCut] | None = None
    waiting: Sequence[Waiting] | None = None
    checked: Sequence[Checked] = ()


def captured_text(seen: FlowSeen, source: str) -> str:
    """How fast a source's changes come into a table."""
    return _rate(seen, f"capture {source}", "changes")


def indexed_text(seen: FlowSeen, index: str, sources: Iterable[str]) -> str:
    """How fast a table's rows come into an index, and how many changes of its sources queries may not see yet."""
    cut = (seen.visible or {}).get(index)
    lacking = None
    if cut is not None and seen.captured is not None:
        lacking = missing_changes(frozenset(sources), seen.captured, cut.sequences)
    behind = "" if lacking is None else "complete" if not lacking else f"{lacking:,} changes behind"
    return ", ".join(filter(None, [_rate(seen, f"index {index}", "documents"), behind]))


def shown_text(seen: FlowSeen, index: str) -> str:
    """How old the last change is up to which a query of an index sees all."""
    cut = (seen.visible or {}).get(index)
    if cut is None or cut.timestamp_ms is None:
        return ""
    return f"shows all up to {ago(seen.now_ms - cut.timestamp_ms)} ago"


def verified_text(seen: FlowSeen, stage: str, table: str) -> tuple[str, bool]:
    """What was found last of a stage of a table: empty where nothing was; and whether it is no difference."""
    found = [one for one in seen.checked if (one.stage, one.table) == (stage, table)]
    wrong = [one for one in found if one.outcome == "different"]
    if wrong:
        return f"DIFFERENT: {wrong[0].differing:,} of {wrong[0].rows:,} rows, {_when(seen, wrong[0])}", False
    equal = [one for one in found if one.outcome == "equal"]
    if not equal:
        return "", True
    last = max(equal, key=lambda one: one.at_ms)
    return f"verified {_when(seen, last)}: {last.rows:,} rows equal, cut {last.cut}", True


def dead_letters_of(seen: FlowSeen, kind: str, name: str) -> int | None:
    """How many letters wait at a node, tables in quarantine with it; None where Kafka does not tell."""
    if seen.waiting is None:
        return None
    places = [one for one in seen.waiting if one.stage in _STAGES.get(kind, ())]
    return sum(one.dead_letters for one in places if one.of == name or (kind == "capture" and _source(one.of) == name))


def _source(of: str) -> str:
    return of.partition(".")[0]


def _rate(seen: FlowSeen, node: str, what: str) -> str:
    rate = seen.rates.get(node)
    return "" if rate is None else f"{rate:,.1f} {what}/s"


def _when(seen: FlowSeen, one: Checked) -> str:
    return f"{ago(seen.now_ms - one.at_ms)} ago"
