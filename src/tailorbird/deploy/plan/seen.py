"""State of a topology's running system, on its servers and this machine: the input of a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc.model.schema import TableId, TableSchema
from cdc.stored.layout import Layout
from tailorbird.provision.plan import Refuse, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """A number of counted rows. `whole` is False if there are more rows."""

    rows: int
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenState:
    """The state of a join on this machine.

    `fingerprint` identifies its query, `engine` its engine (empty: unknown). `complete`: the run has produced its
    first complete result. `rate` is the measured number of changes per second, or None. `partitions`, `topics` and
    `format` (None: unknown) are those of the state."""

    fingerprint: str
    partitions: int
    topics: frozenset[str]
    complete: bool
    rate: float | None = None
    engine: str = ""
    format: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCollection:
    """A Solr collection: its visible rows, its fields → (type, whether they are multi-valued), and its shards."""

    rows: int
    fields: Mapping[str, tuple[str, bool]]
    shards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopology:
    """The running system of a topology.

    `steps` are those of `apply`. `captured`: sources with a position in the log. `schemas`: published schemas of the
    captured tables. `records` and `partitions`: offset ranges and partitions by topic. `states` and `layouts` (the
    newest) are by table, `rows` by HBase table, `collections` by index. `tables`: HBase tables of the topology's
    namespace. `peers`: replication peers that ship any of them. `fleet`: sources configured for agents (docs/fleet.md).
    `running`: the processes of the topology on this machine.
    """

    steps: Sequence[Step | Refuse] = ()
    captured: frozenset[str] = frozenset()
    schemas: Mapping[TableId, TableSchema] = field(default_factory=dict)
    records: Mapping[str, int] = field(default_factory=dict)
    partitions: Mapping[str, int] = field(default_factory=dict)
    states: Mapping[str, SeenState] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    rows: Mapping[str, RowCount] = field(default_factory=dict)
    collections: Mapping[str, SeenCollection] = field(default_factory=dict)
    tables: frozenset[str] = frozenset()
    peers: frozenset[str] = frozenset()
    fleet: frozenset[str] = frozenset()
    running: frozenset[str] = frozenset()
