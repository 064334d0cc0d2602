"""Load and list the stored rows of the runs of a joined table, and the table that readers use."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from cdc.stored.cells import Barrier, load_barrier
from cdc.stored.lakehouse import IcebergCatalog
from cdc.stored.layout import Layout, load_layout
from joins.stores.iceberg.iceberg_files import STATE

VIEW, VERSION, RUN, NUMBER, LAYOUT = (f"tailorbird.{one}" for one in ("table", "version", "run", "number", "layout"))


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergState:
    """The state of a table, which each snapshot contains.

    `owner` is the process that may write, `batch` the last batch, `timestamp` the greatest one of any batch or barrier,
    `complete` whether the rows are the whole result. `version` and `number` say whose rows they are: of which version
    of the table, and of which of its runs."""

    version: str
    number: int
    owner: str = ""
    batch: int = -1
    timestamp: int = 0
    complete: bool = False
    barrier: Barrier | None = None

    def dump(self) -> str:
        """Return the stored form, JSON; inverse of `load_state`."""
        barrier = None if self.barrier is None else self.barrier.to_bytes().decode()
        fields = {"version": self.version, "number": self.number, "owner": self.owner, "batch": self.batch}
        return json.dumps({**fields, "timestamp": self.timestamp, "complete": self.complete, "barrier": barrier})

    def with_barrier(self, barrier: Barrier | None) -> IcebergState:
        """Return the state with a newer barrier, if there is one."""
        if barrier is None:
            return self
        return replace(self, barrier=barrier, timestamp=max(self.timestamp, barrier.timestamp))


def load_state(table: Table) -> IcebergState | None:
    """Return the state in the newest snapshot that has one: another program may have compacted files since. None if
    none has."""
    snapshot = table.current_snapshot()
    while snapshot is not None:
        text = snapshot.summary.additional_properties.get(STATE) if snapshot.summary else None
        if text is not None:
            value = json.loads(text)
            barrier = value.pop("barrier")
            return IcebergState(**value, barrier=None if barrier is None else load_barrier(barrier))
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """The stored rows of one run, in a table of their own. `number` grows with each run of any version."""

    table: Table
    version: str
    run: str
    number: int
    layout: Layout
    state: IcebergState

    @property
    def staging(self) -> str:
        """Return the folder of staged rows."""
        return f"{self.table.location()}/staging"

    @property
    def rows(self) -> int:
        """Return the number of rows of a complete run."""
        snapshot = self.table.current_snapshot()
        assert snapshot is not None
        assert snapshot.summary is not None
        return int(snapshot.summary.additional_properties.get("total-records", "0"))


def view_name(version: str) -> str:
    """Return the name that readers use: that of the table in the topology, without the version's number."""
    return version.partition(".")[0]


def run_table(view: str, run: str) -> str:
    """Return the name of the table with the rows of a run."""
    return f"{view}__{run.replace('-', '')[:12]}"


def load_run(catalog: Catalog, identifier: tuple[str, ...]) -> StoredRun | None:
    """Return the stored rows of a run; None if the table is missing or another program's."""
    try:
        table = catalog.load_table(identifier)
    except NoSuchTableError:
        return None
    found, state = table.properties, load_state(table)
    if state is None or not {VERSION, RUN, NUMBER, LAYOUT} <= found.keys():
        return None
    return StoredRun(
        table=table, version=found[VERSION], run=found[RUN], number=int(found[NUMBER]),
        layout=load_layout(found[LAYOUT].encode()), state=state,
    )  # fmt: skip


def runs_of(catalog: Catalog, where: IcebergCatalog, view: str) -> list[StoredRun]:
    """Return the stored rows of all runs of all versions of a table, the oldest first."""
    listed = [one for one in catalog.list_tables(where.rows) if one[-1].startswith(f"{view}__")]
    loaded = [load_run(catalog, one) for one in listed]
    return sorted(
        (one for one in loaded if one is not None and view_name(one.version) == view), key=lambda one: one.number
    )


def shown_table(catalog: Catalog, where: IcebergCatalog, view: str) -> Table | None:
    """Return the table that readers use; None before the first complete result."""
    try:
        return catalog.load_table((where.namespace, view))
    except NoSuchTableError:
        return None
