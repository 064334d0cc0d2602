"""What runs of a topology, as its servers and this machine tell it: what a plan is made from. Nothing is asked here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cdc.model.schema import TableId, TableSchema
from cdc.stored.layout import Layout
from tailorbird.provision.plan import Refuse, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class RowCount:
    """How many rows there are: `rows` of them were counted, `whole` if these are all."""

    rows: int
    whole: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenState:
    """A join's state on this machine: what it was made for, by which engine (empty: not known), the topics that it
    reads, and whether its run has come to its first complete cut. `rate` is how many changes a second it does; None
    where that was not measured.
    """

    fingerprint: str
    partitions: int
    topics: frozenset[str]
    complete: bool
    rate: float | None = None
    engine: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenCollection:
    """A collection of Solr's: the rows that queries see, and its fields → (type, whether they have several values)."""

    rows: int
    fields: Mapping[str, tuple[str, bool]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenTopology:
    """All of it. `steps` are those of `apply`; `captured` the sources that have a position in the log.

    `schemas` are what capture tells of the captured tables; `records` the records between a topic's ends, `partitions`
    of each topic; `states` and `layouts` (the newest) are by table, `rows` by HBase table, `collections` by index.
    `tables`: the HBase tables of the topology's namespace; `peers`: the replication peers that ship any of them;
    `fleet`: the sources that agents are told to capture (docs/fleet.md); `running`: the parts that run on this machine.
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
