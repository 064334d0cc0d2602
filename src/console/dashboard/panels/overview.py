"""A topology as a graph: what feeds what, how each part is, and in words what is wrong and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from cdc.topology.topology import Topology
from console.dashboard.panels.reading import Told
from console.status.part_status import PartStatus

_COLUMNS = ("capture", "join", "index", "dashboard")
_TITLES = {"capture": "source", "join": "table", "index": "index", "dashboard": "dashboard"}
_WELL = ("moving", "unknown")
_FACTS = {
    "lag_seconds": "seconds behind", "lag_changes": "changes behind", "dead_letters": "dead letters",
    "quarantined": "in quarantine", "rows": "rows joined", "documents": "documents indexed", "restarts": "restarts",
}  # fmt: skip


def graph_of(topology: Topology, reads: Mapping[str, Iterable[str]], parts: Sequence[PartStatus]) -> Told:
    """{sentence, well, nodes: [{id, column, kind, name, state, well, reason, remedy, facts}], edges: [[from, to]]}.

    `reads`: the sources of each table; `parts`: what `tailorbird status` says of the processes. Several of one part are
    one node: the worst of them speaks.
    """
    names: list[tuple[str, str]] = [
        *(("capture", name) for name in topology.sources),
        *(("join", name) for name in topology.tables),
        *(("join", name) for name in topology.foreign_tables),
        *(("index", name) for name in topology.indexes),
        *(("dashboard", name) for name in topology.dashboards),
    ]
    edges = [[f"capture {source}", f"join {table}"] for table in topology.tables for source in sorted(reads[table])]
    edges += [[f"join {index.table}", f"index {index.name}"] for index in topology.indexes.values()]
    edges += [[f"index {one.index}", f"dashboard {one.name}"] for one in topology.dashboards.values()]
    return {
        "sentence": sentence(parts),
        "well": all(one.moves for one in parts),
        "nodes": [_node(kind, name, topology, parts) for kind, name in names],
        "edges": edges,
    }


def sentence(parts: Sequence[PartStatus]) -> str:
    """What is wrong and what to do, the first in the flow first; or that all moves."""
    wrong = [one for one in parts if not one.moves]
    if wrong:
        first = wrong[0]
        why = first.reason or first.error or "nothing tells why"
        more = f" Then look at {', '.join(one.part for one in wrong[1:4])}." if wrong[1:] else ""
        return f"{first.part} is {first.state}: {why}." + (f" Do: {first.remedy}." if first.remedy else "") + more
    away = [one.part for one in parts if one.state == "elsewhere"]
    if len(away) == len(parts):
        return "Nothing of this topology runs on this machine, so nothing is known of it here."
    told = "Everything moves that runs on this machine."
    return told + (f" Nothing is known here of {', '.join(away)}." if away else "")


def _node(kind: str, name: str, topology: Topology, parts: Sequence[PartStatus]) -> Told:
    told = [one for one in parts if one.part == f"{kind} {name}"]
    worst = min(told, key=lambda one: one.moves, default=None)
    state, reason, remedy, facts = "elsewhere", "", "", list[str]()
    if kind == "join" and name in topology.foreign_tables:
        reason = "others write it"
    elif worst is not None:
        state, reason, remedy = worst.state, worst.reason or worst.error, worst.remedy
        facts = [
            f"{_figure(worst.more[key])} {what}" for key, what in _FACTS.items() if worst.more.get(key) is not None
        ]
    return {
        "id": f"{kind} {name}",
        "column": _COLUMNS.index(kind),
        "kind": _TITLES[kind],
        "name": name,
        "state": state,
        "well": worst is None or worst.moves,
        "moving": state in _WELL,
        "reason": reason,
        "remedy": remedy,
        "facts": facts,
    }


def _figure(value: object) -> str:
    return f"{value:,.1f}".removesuffix(".0") if isinstance(value, int | float) else str(value)
