"""Build the graph of a topology: nodes, edges, the state of each process, and a sentence about problems."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cdc.topology.topology import Topology
from tailorbird.operate.status.part_status import PartStatus
from tailorbird.verify.checks.check_status import look_of
from tailorbird.web.dashboard.panels.flow import (
    FlowState,
    captured_text,
    dead_letters_of,
    indexed_text,
    shown_text,
    verified_text,
)
from tailorbird.web.dashboard.panels.reading import Reported

_COLUMNS = ("capture", "join", "index", "dashboard")
_TITLES = {"capture": "source", "join": "table", "index": "index", "dashboard": "dashboard"}
_WELL = ("moving", "unknown")
NOTHING_SEEN = FlowState(now_ms=0)
_FACTS = {
    "lag_seconds": "seconds lag", "lag_changes": "changes missing", "dead_letters": "dead letters",
    "quarantined": "in quarantine", "rows": "rows joined", "documents": "documents indexed", "restarts": "restarts",
}  # fmt: skip


def graph_of(
    topology: Topology,
    reads: Mapping[str, Iterable[str]],
    parts: Sequence[PartStatus],
    seen: FlowState = NOTHING_SEEN,
) -> Reported:
    """Return the graph as JSON: `{sentence, well, nodes, edges}`.

    A node is `{id, column, kind, name, state, well, reason, remedy, facts}`, an edge `{from, to, flow}`. `flow` is
    the rate and lag as text. `reads` gives the sources of each table, `parts` the processes as in `tailorbird
    status`. Several processes of one part form one node with the worst state."""
    by_name: dict[str, list[PartStatus]] = {}
    for part in parts:
        by_name.setdefault(part.part, []).append(part)
    names: list[tuple[str, str]] = [
        *(("capture", name) for name in topology.sources),
        *(("join", name) for name in topology.tables),
        *(("join", name) for name in topology.foreign_tables),
        *(("index", name) for name in topology.indexes),
        *(("dashboard", name) for name in topology.pages),
    ]
    lags = {table: _lag(by_name.get(f"join {table}", [])) for table in topology.tables}
    edges = [
        _edge(f"capture {source}", f"join {table}", _both(captured_text(seen, source), lags[table]))
        for table in topology.tables
        for source in sorted(reads[table])
    ]
    edges += [
        _edge(f"join {one.table}", f"index {one.name}", indexed_text(seen, one.name, reads.get(one.table, ())))
        for one in topology.indexes.values()
    ]
    edges += [
        _edge(f"index {one.index}", f"dashboard {one.name}", shown_text(seen, one.index))
        for one in topology.pages.values()
    ]
    nodes = [_node(kind, name, topology, by_name.get(f"{kind} {name}", []), seen) for kind, name in names]
    troubles = _troubles(topology, seen)
    return {
        "sentence": " ".join([sentence(parts), *troubles]),
        "well": all(one.moves for one in parts) and not troubles,
        "nodes": nodes,
        "edges": edges,
    }


def _both(one: str, other: str) -> str:
    return ", ".join(filter(None, [one, other]))


def _edge(begin: str, end: str, flow: str) -> Reported:
    return {"from": begin, "to": end, "flow": flow}


def _lag(parts: Sequence[PartStatus]) -> str:
    """Return how far a join lags behind its sources, as its first process reports it."""
    more = next((one.more for one in parts), {})
    changes, seconds = more.get("lag_changes"), more.get("lag_seconds")
    if changes is None:
        return ""
    return f"{_figure(changes)} changes missing" + ("" if seconds is None else f", {_figure(seconds)} s")


def _troubles(topology: Topology, seen: FlowState) -> list[str]:
    """Return problems that exist although all processes run: refused rows, and differences found by checks."""
    found = []
    if any(one.outcome == "different" for one in seen.checked):
        found.append(f"A check found a difference: see Proof. Run: {look_of(topology.file, seen.checked)}.")
    if total := sum(one.dead_letters for one in seen.waiting or ()):
        found.append(
            f"Rows are missing: {total:,} changes were refused. Run: tailorbird dead-letters list {topology.file}."
        )
    return found


def sentence(parts: Sequence[PartStatus]) -> str:
    """Return the sentence about problems: the first part without progress, its reason and its remedy.

    "First" is in the order of the data flow. Up to three further such parts are only named. Without problems, the
    sentence says that all processes on this machine make progress, or that none runs here."""
    wrong = [one for one in parts if not one.moves]
    if wrong:
        first = wrong[0]
        why = first.reason or first.error or "the reason is unknown"
        more = f" Then check {', '.join(one.part for one in wrong[1:4])}." if wrong[1:] else ""
        return f"{first.part} is {first.state}: {why}." + (f" Remedy: {first.remedy}." if first.remedy else "") + more
    unavailable = [one.part for one in parts if one.state == "elsewhere"]
    if len(unavailable) == len(parts):
        return "No process of this topology runs on this machine, so its state is unknown here."
    reported = "All processes on this machine make progress."
    return reported + (f" Unknown here: {', '.join(unavailable)}." if unavailable else "")


def _node(kind: str, name: str, topology: Topology, parts: Sequence[PartStatus], seen: FlowState) -> Reported:
    worst = min(parts, key=lambda one: one.moves, default=None)
    state, reason, remedy, facts = "elsewhere", "", "", list[str]()
    if kind == "join" and name in topology.foreign_tables:
        reason = "an external system writes it"
    elif worst is not None:
        state, reason, remedy = worst.state, worst.reason or worst.error, worst.remedy
        facts = [
            f"{_figure(worst.more[key])} {what}" for key, what in _FACTS.items() if worst.more.get(key) is not None
        ]
    dead_letters = dead_letters_of(seen, kind, name)
    if dead_letters is not None:  # current dead letters, regardless of the process that refused them
        facts = [one for one in facts if not one.endswith((_FACTS["dead_letters"], _FACTS["quarantined"]))]
        facts += [f"{dead_letters:,} dead letters"] if dead_letters else []
    verified, equal = _verified(kind, name, topology, seen)
    facts += [verified] if verified else []
    return {
        "id": f"{kind} {name}",
        "column": _COLUMNS.index(kind),
        "kind": _TITLES[kind],
        "name": name,
        "state": state,
        "well": (worst is None or worst.moves) and equal and not dead_letters,
        "moving": state in _WELL,
        "reason": reason,
        "remedy": remedy,
        "facts": facts,
    }


def _verified(kind: str, name: str, topology: Topology, seen: FlowState) -> tuple[str, bool]:
    """Return the last verified state of a table or index as text, and whether it has no known differences."""
    if kind == "join":
        return verified_text(seen, "table", name)
    return verified_text(seen, "index", topology.indexes[name].table) if kind == "index" else ("", True)


def _figure(value: object) -> str:
    return f"{value:,.1f}".removesuffix(".0") if isinstance(value, int | float) else str(value)
