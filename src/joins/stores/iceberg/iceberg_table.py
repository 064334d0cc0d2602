"""Store a joined table in Iceberg, with its batch number, barrier and layout.

Each run of the join (a rebuild is another run) has a table of its own for its rows, in the namespace
`<namespace>_rows`, partitioned by bucket of the row key. Readers use a table without partitions in `<namespace>`. It
refers to the same data files: after each commit of a run whose rows readers see, another commit changes its files in
the same way. So readers see whole batches, and another run or version replaces the rows in one commit, also with other
columns.

The state of a table is in the properties of its current snapshot, so rows and state are one commit. A commit fails if
another process has committed since the table was read, because it requires the current snapshot. Each process that
opens a run writes its own id as `owner` into the state, and ends when it finds another one there.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import TypeVar

from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.schema import Schema
from pyiceberg.table import Table

from cdc.model.errors import Fatal, Retriable, UsageError
from cdc.stored.cells import Barrier
from cdc.stored.lakehouse import IcebergCatalog
from cdc.stored.layout import Layout, dump_layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.runtime.cuts import Positions
from joins.stores.evolution import evolved
from joins.stores.iceberg.arrow_rows import columns_of, staged_schema, stamped
from joins.stores.iceberg.iceberg_files import (
    STATE,
    FileChanges,
    QuickTransaction,
    appended,
    commit_files,
    difference,
    merged,
    without,
)
from joins.stores.iceberg.iceberg_garbage import collect, files_in
from joins.stores.iceberg.iceberg_runs import (
    LAYOUT,
    NUMBER,
    RUN,
    VERSION,
    VIEW,
    IcebergState,
    StoredRun,
    load_run,
    load_state,
    run_table,
    runs_of,
    shown_table,
    view_name,
)
from joins.stores.iceberg.iceberg_schema import (
    PROPERTIES,
    columns_schema,
    create_rows_table,
    readers_columns,
    set_schema,
)
from joins.stores.iceberg.iceberg_server import (
    CommitConflict,
    MissingFile,
    opened,
    read_staged,
    remove_files,
    remove_folder,
    translated,
)
from joins.stores.sink_interfaces import lacking

T = TypeVar("T")
_TRIES = 20
_READS = 4  # a run is removed only once; a table that still names the same missing file is damaged


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnedRun:
    """The run that a process writes: its table, the process's id, and the folder of staged rows."""

    table: tuple[str, str]
    owner: str
    staging: str


class IcebergTable:
    """A joined table, for use by the driver and by readers. `name` is that of the table's version."""

    def __init__(self, catalog: IcebergCatalog, name: str) -> None:
        self.where, self.name, self.view = catalog, name, view_name(name)
        self._opened: Catalog | None = None

    @property
    def catalog(self) -> Catalog:
        """Return the catalog, opened at the first use."""
        if self._opened is None:
            self._opened = opened(self.where)
        return self._opened

    def call(self, action: Callable[[], T]) -> T:
        """Run an action, again if another process commits at the same time, or removes a run that is being read.

        Raises MissingFile if a file of a table is lost, Retriable while the catalog is unavailable: then the action may
        have happened."""
        for tries in count(1):
            try:
                with translated(self.where):
                    return action()
            except CommitConflict as error:
                if tries == _TRIES:
                    raise Retriable(f"{self.where}: {error}", "does another program write the table?") from error
            except MissingFile:
                if tries == _READS:
                    raise
            time.sleep(0.05)
        raise AssertionError("unreachable")

    def check(self, file: str) -> None:
        """Create the namespaces if they are missing. Raises UsageError if readers' name is another program's."""
        found = self.call(self._shown)
        if found is not None and found[1] is None:
            what = f"the table {self.where.namespace}.{self.view} in {self.where} is not of {file}"
            raise UsageError(what, "drop it, or set another `namespace` under `iceberg:`")

    def runs(self) -> list[StoredRun]:
        """Return the runs of this version, the oldest first."""
        return [one for one in self.call(self._all_runs) if one.version == self.name]

    def _all_runs(self) -> list[StoredRun]:
        return runs_of(self.catalog, self.where, self.view)

    def served(self) -> StoredRun | None:
        """Return the newest complete run of this version; None before the first complete result."""
        complete = [one for one in self.runs() if one.state.complete]
        return complete[-1] if complete else None

    def shown(self) -> tuple[Table, IcebergState] | None:
        """Return the table that readers use, and its state, if it shows this version."""
        found = self.call(self._shown)
        if found is None or found[1] is None or found[1].version != self.name:
            return None
        return found[0], found[1]

    def _shown(self) -> tuple[Table, IcebergState | None] | None:
        table = shown_table(self.catalog, self.where, self.view)
        return None if table is None else (table, load_state(table))

    def layout(self) -> Layout | None:
        """Return the layout of the newest run; None before the first."""
        runs = self.runs()
        return runs[-1].layout if runs else None

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write (`joins.stores.evolution`). `open_run` stores it."""
        settled = evolved(self.layout(), layout, behavior)
        columns_of(settled)
        return settled

    def last_timestamp(self) -> int:
        """Return the greatest timestamp of any batch or barrier of any run, or 0."""
        shown = self.shown()
        own = [one.state.timestamp for one in self.runs()]
        return max([*own, shown[1].timestamp if shown else 0], default=0)

    def barrier(self) -> Barrier | None:
        """Return the newest barrier of what readers see; None before the first."""
        if (shown := self.shown()) is not None:
            return shown[1].barrier
        served = self.served()
        return served.state.barrier if served else None

    def reached(self) -> Positions:
        """Return each source's position in the last barrier. Empty if there is none."""
        barrier = self.barrier()
        return barrier.positions if barrier else {}

    def open_run(self, run: str, committed: int, layout: Layout) -> OwnedRun:
        """Become the owner of a run. A new run gets an empty table; what earlier runs left is removed.

        Raises UsageError if the run has committed batches that the table lacks."""
        owner = uuid.uuid4().hex
        found = self.call(lambda: self._open(run, committed, layout, owner))
        self.tidy()
        remove_folder(self.where, found.staging)
        return OwnedRun(table=(self.where.rows, run_table(self.view, run)), owner=owner, staging=found.staging)

    def _open(self, run: str, committed: int, layout: Layout, owner: str) -> StoredRun:
        known = self._all_runs()
        own = [one for one in known if one.version == self.name]
        found = next((one for one in own if one.run == run), None)
        if committed >= 0 and (found is None or found is not own[-1] or not found.layout.same_shape(layout)):
            raise lacking(str(self.where), self.name, committed)
        if found is None:
            found = self._create(run, layout, known)
        for one in own:  # processes of former runs must end
            if one.number < found.number and one.state.owner:
                self._store(one, replace(one.state, owner=""))
        self._store(found, replace(found.state, owner=owner))
        return found

    def _create(self, run: str, layout: Layout, known: list[StoredRun]) -> StoredRun:
        state = IcebergState(
            version=self.name, number=max((one.number for one in known), default=0) + 1,
            timestamp=self.last_timestamp(), barrier=self.barrier(),
        )  # fmt: skip
        properties = {
            VIEW: self.view, VERSION: self.name, RUN: run, NUMBER: str(state.number),
            LAYOUT: dump_layout(layout).decode(),
        }  # fmt: skip
        identifier = (self.where.rows, run_table(self.view, run))
        schemas = [readers_columns(one.table) for one in known]
        if (table := shown_table(self.catalog, self.where, self.view)) is not None:
            schemas += table.schemas().values()
        create_rows_table(self.catalog, identifier, columns_schema(layout, schemas), properties, {STATE: state.dump()})
        found = load_run(self.catalog, identifier)
        if found is None:
            raise CommitConflict(f"table {'.'.join(identifier)} is gone")
        return found

    def _store(self, run: StoredRun, state: IcebergState, changes: FileChanges | None = None) -> None:
        if changes is not None or state != run.state:
            commit_files(QuickTransaction(run.table), changes or FileChanges(), state.dump())

    def _mine(self, known: OwnedRun) -> StoredRun:
        """Return the run if this process is still its owner. Otherwise raise Fatal."""
        run = load_run(self.catalog, known.table)
        if run is None or run.state.owner != known.owner:
            raise Fatal(f"another process writes table {self.name} in {self.where}", "stop one of both joins")
        return run

    def commit_batch(
        self, known: OwnedRun, folder: str, batch: int, timestamp: int, barrier: Barrier | None, *, complete: bool
    ) -> int:
        """Merge the staged rows of a folder into the run's rows, with batch and barrier, in one commit. Then change
        what readers see, if they see this version. Does nothing twice.

        With `complete`, the rows are the whole result from now on. Return the number of rows that only the former
        result had."""
        former = self.served() if complete else None
        run = self.call(lambda: self._merge(known, folder, batch, timestamp, barrier, complete))
        remove_folder(self.where, folder)
        if not run.state.complete:
            return 0
        self.call(lambda: self._show(run, force=False))
        if former is None or former.number == run.number:
            return 0
        self.tidy()
        return max(0, former.rows - run.rows)

    def _merge(
        self, known: OwnedRun, folder: str, batch: int, timestamp: int, barrier: Barrier | None, complete: bool
    ) -> StoredRun:
        run = self._mine(known)
        state, changes = run.state.with_barrier(barrier), None
        if batch > state.batch:
            staged = read_staged(self.where, folder, staged_schema(run.layout))
            state = replace(state, batch=batch, timestamp=max(timestamp, state.timestamp))
        else:
            staged = staged_schema(run.layout).empty_table()
        rows = stamped(staged, run.layout, batch, timestamp)
        if complete and not state.complete:
            state = replace(state, complete=True)
            changes = merged(run.table, rows, run.layout, whole=True)
        elif len(rows):
            changes = merged(run.table, rows, run.layout, whole=False) if state.complete else appended(run.table, rows)
        self._store(run, state, changes)
        return self._mine(known)

    def _show(self, run: StoredRun, *, force: bool) -> None:
        """Let readers see the rows of a run, if they see its version already, or no version. With `force` always."""
        identifier = (self.where.namespace, self.view)
        found, columns = self._shown(), readers_columns(run.table)
        files = [task.file for task in run.table.scan().plan_files()]
        if found is None:
            with self.catalog.create_table_transaction(identifier, Schema(), properties=PROPERTIES) as transaction:
                set_schema(transaction, columns)
                update = transaction.update_snapshot(snapshot_properties={STATE: run.state.dump()})
                with update.fast_append() as producer:
                    for one in difference([], files).added:
                        producer.append_data_file(one)
            return
        table, state = found
        if state is None:
            raise Fatal(f"another program has written {'.'.join(identifier)} in {self.where}", "drop it, or rename one")
        if not force and (state.version != run.version or state.number > run.number):
            return
        changes = difference([task.file for task in table.scan().plan_files()], files)
        if state == run.state and not changes.removed and not changes.added:
            return
        transaction = QuickTransaction(table)
        set_schema(transaction, columns)
        commit_files(transaction, changes, run.state.dump())

    def publish(self, known: OwnedRun, barrier: Barrier) -> bool:
        """Store a newer barrier if the rows are still those of the barrier's batch. Return whether they are."""

        def publish() -> StoredRun | None:
            run = self._mine(known)
            if run.state.batch != barrier.batch or not run.state.complete:
                return None
            self._store(run, run.state.with_barrier(barrier))
            return self._mine(known)

        run = self.call(publish)
        if run is None:
            return False
        self.call(lambda: self._show(run, force=False))
        return True

    def show(self) -> None:
        """Let readers see this version of the table. Raises UsageError if it has no complete result yet."""

        def show() -> None:
            served = self.served()
            if served is None:
                raise UsageError(f"{self.name} has no complete result in {self.where}", "is its join running?")
            self._show(served, force=True)

        self.call(show)

    def delete_rows(self, rows: Mapping[bytes, int]) -> None:
        """Delete rows, by row key, each as of a timestamp (ms), so that later writes remain."""

        def delete() -> StoredRun | None:
            served = self.served()
            if served is None:
                return None
            changes = without(served.table, rows, served.layout)
            if changes.removed:
                self._store(served, served.state, changes)
            return load_run(self.catalog, served.table.name())

        run = self.call(delete)
        if run is not None:
            self.call(lambda: self._show(run, force=False))

    def expire(self, before_ms: int) -> int:
        """Delete the files of snapshots of this version that were replaced before a time (ms). Return their number."""

        def expire() -> int:
            runs, shown = self._all_runs(), self._shown()
            tables = [(one.table, one.version) for one in runs]
            tables += [] if shown is None or shown[1] is None else [(shown[0], shown[1].version)]
            own, others = ([table for table, of in tables if (of == self.name) is mine] for mine in (True, False))
            try:
                return collect(own, others, before_ms=before_ms)
            except FileNotFoundError:
                return 0  # a process of another version has removed a run: the next call finds the rest

        return self.call(expire)

    def tidy(self) -> None:
        """Remove the runs of this version that neither readers nor the newest run use."""
        runs = self.runs()
        served = max((one.number for one in runs if one.state.complete), default=0)
        for one in runs[:-1]:
            if one.number != served:
                self.call(lambda one=one: self._remove(one))  # type: ignore[misc]

    def _remove(self, run: StoredRun) -> None:
        """Remove a run, except files in snapshots of the table that readers use, which delete them when they expire."""
        shown = shown_table(self.catalog, self.where, self.view)
        files = files_in(run.table) - files_in(shown)
        try:
            self.catalog.drop_table(run.table.name())
        except NoSuchTableError:
            return
        remove_files(run.table, sorted(files))
        remove_folder(self.where, run.staging)
        remove_folder(self.where, f"{run.table.location()}/metadata")

    def drop(self) -> None:
        """Delete the table's rows, its state, and the table that readers use if it shows this version."""
        if (shown := self.shown()) is not None:
            table = shown[0]

            def drop() -> None:
                files = files_in(table)
                self.catalog.drop_table(table.name())
                remove_files(table, sorted(files))
                remove_folder(self.where, f"{table.location()}/metadata")

            self.call(drop)
        for run in self.runs():
            self.call(lambda run=run: self._remove(run))  # type: ignore[misc]
