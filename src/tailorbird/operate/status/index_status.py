"""Status of a topology's indexes: which process serves each, how far it lags, and which peers are unused.

For a replication peer that no process serves, HBase keeps every write-ahead log. Serve such a peer or remove it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from cdc.model.naming import peer
from cdc.topology.topology import Index, Topology
from tailorbird.operate.status.captured_position import CapturedPosition
from tailorbird.provision.stores import PeerSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexStatus:
    """Status of one index. `behind` is the lag in seconds of the data that queries see (None: unknown).

    `missing_changes` is the number of changes that are committed at the sources and may not be visible to queries
    yet. At 0 the index is complete, and `behind` is then 0. It is None if captures or barriers report too little.
    `processes` serve the index, `collections` are its targets. `quiet` is the seconds without news of a complete index.

    States: `serving`; `idle`: no process serves its peer; `disabled`: HBase ships nothing; `missing`: it has no
    peer; `stray`: a peer of this topology that belongs to no index of the file."""

    index: str
    peer: str
    state: str
    processes: tuple[str, ...]
    collections: tuple[str, ...]
    behind: float | None
    missing_changes: int | None
    quiet: float | None
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleCut:
    """The state that every query of an index sees: all changes up to a sequence per source.

    `timestamp_ms` is the time of that state, or None before the first complete set of barriers."""

    sequences: Mapping[str, int]
    timestamp_ms: int | None


def missing_changes(
    sources: frozenset[str], captured: Mapping[str, CapturedPosition], visible: Mapping[str, int]
) -> int | None:
    """Return the number of changes that are committed at an index's sources and may not be visible yet.

    None if it is unknown, and during a snapshot of a source's table."""
    lacking = 0
    for source in sources:
        position = captured.get(source)
        if position is None or position.snapshot != "done" or position.snapshots or position.repairing:
            return None
        if source not in visible:
            return None
        lacking += max(0, position.sequence - visible[source])
    return lacking


def reported(one: IndexStatus) -> str:
    """Format the progress of an index as text. Empty if it is unknown."""
    if one.quiet is not None:
        return f"complete; nothing new for {one.quiet:.0f} s"
    if one.behind is None:
        return ""
    lacks = "" if one.missing_changes is None else f"{one.missing_changes} changes missing, "
    return f"{lacks}last full cut {one.behind:.1f} s ago"


def index_statuses(
    topology: Topology,
    peers: Mapping[str, PeerSpec],
    *,
    generation: Callable[[str], int],
    announced: Callable[[str], list[str]],
    collections: Callable[[str, str], tuple[str, ...]],
    visible_ms: Callable[[str], int | None],
    missing: Callable[[Index], int | None],
    now_ms: int,
) -> list[IndexStatus]:
    """Return the status of each index of a topology, then of peers that belong to no index.

    The functions are called with: an index name (`generation`), a peer (`announced`), a peer and the live collection
    (`collections`), a collection (`visible_ms`), and an index (`missing`). `visible_ms` returns the time up to which
    queries see everything, `missing` the number of `missing_changes`."""
    found: list[IndexStatus] = []
    for index in topology.indexes.values():
        name = peer(topology.name, index.name, generation(index.name))
        processes = tuple(announced(name))
        spec = peers.get(name)
        if spec is None:
            state, remedy = "missing", f"tailorbird apply {topology.file}"
        elif not spec.enabled:
            state, remedy = "disabled", f"in HBase's shell: enable_peer '{name}'"
        elif not processes:
            state = "idle"
            remedy = f"HBase keeps its logs for it: tailorbird index {topology.file} --index {index.name}, or index rm"
        else:
            state, remedy = "serving", ""
        visible = visible_ms(index.collection) if spec is not None else None
        since = None if visible is None else max(0.0, (now_ms - visible) / 1000)
        lacks = missing(index) if visible is not None else None
        found.append(
            IndexStatus(
                index=index.name,
                peer=name,
                state=state,
                processes=processes,
                collections=collections(name, index.collection),
                behind=0.0 if lacks == 0 else since,
                missing_changes=lacks,
                quiet=since if lacks == 0 else None,
                remedy=remedy,
            )
        )
    return found + _strays(topology, peers, {each.peer for each in found}, announced)


def _strays(
    topology: Topology, peers: Mapping[str, PeerSpec], current: set[str], announced: Callable[[str], list[str]]
) -> list[IndexStatus]:
    found = []
    for name in sorted(peers):
        # names of other topologies may start likewise, but their peers ship other tables
        ours = any(table.startswith(f"{topology.name}:") for table in peers[name].tables)
        if ours and name not in current:
            found.append(
                IndexStatus(
                    index="",
                    peer=name,
                    state="stray",
                    processes=tuple(announced(name)),
                    collections=(),
                    behind=None,
                    missing_changes=None,
                    quiet=None,
                    remedy=f"HBase keeps its logs for it; in HBase's shell: remove_peer '{name}'",
                )
            )
    return found
