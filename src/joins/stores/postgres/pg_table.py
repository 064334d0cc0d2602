"""Store a joined table in PostgreSQL, with its batch number, barrier and layout.

Readers see a view with the table's name, in the schema of the topology. The rows are in the schema `<schema>_rows`:
each run of the join (a rebuild is another run) has a *relation* of its own, and the view moves to it when the run is
complete. `_tables` there has one row per version of a table, `_views` the version that each
view shows, `_relations` all relations.

A batch is written in two steps. The tasks of the batch copy its rows into a staging relation. Then one transaction
moves them into the run's relation, and stores the batch's number and barrier. So readers see whole batches, and a
repeated batch changes nothing.

Each attempt of a batch has a number, which is increased in `_tables` before the first write (a compare-and-set). Rows
of former attempts are never moved, and a process that is no longer the newest cannot change the table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeVar

import psycopg

from cdc.model.errors import Fatal, UsageError
from cdc.model.tls import PostgresServer
from cdc.stored.cells import Barrier, load_barrier
from cdc.stored.layout import Layout, dump_layout, load_layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.runtime.cuts import Positions
from joins.stores.evolution import evolved
from joins.stores.postgres.pg_relations import (
    create_control,
    create_relation,
    drop_relation,
    move_rows,
    point_view,
    relation_name,
    run_sql,
    staging_of,
    view_name,
)
from joins.stores.postgres.pg_server import ServerSession, Transaction
from joins.stores.postgres.relational import columns_of, quoted
from joins.stores.sink_interfaces import lacking

T = TypeVar("T")
_LOCKED = "SET LOCAL lock_timeout = '3s'"  # a reader's long query must not make later readers wait for longer


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredState:
    """The row of a table in `_tables`.

    `relation` is what readers see, with the layout `served`: both None before the first complete result. `building` is
    the relation of the newest `run`, with `layout`. `batch` is the last batch in it, `attempt` the newest attempt,
    `timestamp` the greatest one of any batch or barrier."""

    layout: Layout
    served: Layout | None
    run: str
    relation: str | None
    building: str | None
    attempt: int
    batch: int
    timestamp: int
    barrier: Barrier | None


_STATE = "layout, served, run, relation, building, attempt, batch, timestamp, barrier"


class PostgresTable:
    """A joined table, for use by the driver and by readers. `name` is that of the table's version."""

    def __init__(self, server: PostgresServer, name: str) -> None:
        self.server, self.name, self.view = server, name, view_name(name)
        self.rows = quoted(f"{server.schema}_rows")
        self._connection = ServerSession(server)

    def call(self, action: Callable[[Transaction], T]) -> T:
        """Run an action in a transaction (`ServerSession.transaction`)."""
        return self._connection.transaction(action)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def check(self, file: str) -> None:
        """Create the schemas and control tables if they are missing. Raises UsageError if the view's name is taken, or
        if a privilege is missing."""
        self.call(lambda t: create_control(t, self.server.schema))
        taken = self.call(self._taken)
        if taken:
            what = f"{self.server.dbname}.{self.server.schema}.{self.view} exists and is not of {file}"
            raise UsageError(what, "drop it, or set another `schema` under `postgres:`")

    def _taken(self, t: Transaction) -> bool:
        found = run_sql(
            t,
            f"SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            f" WHERE n.nspname = %s AND c.relname = %s AND NOT EXISTS"
            f" (SELECT 1 FROM {self.rows}._views v WHERE v.name = c.relname AND c.relkind = 'v')",
            (self.server.schema, self.view),
        ).fetchone()
        return found is not None

    def state(self) -> StoredState | None:
        """Return the table's state, or None before its join has started."""
        return self.call(self._state_if_any)

    def _state_if_any(self, t: Transaction) -> StoredState | None:
        try:
            with t.transaction():
                return self.read_state(t)
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            return None

    def read_state(self, t: Transaction, *, lock: bool = False) -> StoredState | None:
        """Return the table's state in a transaction; with `lock` no other transaction can change it."""
        ending = " FOR UPDATE" if lock else ""
        row = run_sql(t, f"SELECT {_STATE} FROM {self.rows}._tables WHERE name = %s{ending}", (self.name,)).fetchone()
        if row is None:
            return None
        layout, served, run, relation, building, attempt, batch, timestamp, barrier = row
        return StoredState(
            layout=load_layout(layout.encode()), run=run,
            served=None if served is None else load_layout(served.encode()),
            relation=relation, building=building, attempt=attempt, batch=batch, timestamp=timestamp,
            barrier=None if barrier is None else load_barrier(barrier),
        )  # fmt: skip

    def layout(self) -> Layout | None:
        """Return the layout of the newest run; None before the first."""
        state = self.state()
        return state.layout if state else None

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write (`joins.stores.evolution`), and store it if it is new."""
        wanted = replace(layout, salt_buckets=1)

        def settle(t: Transaction) -> Layout:
            state = self.read_state(t, lock=True)
            settled = evolved(state.layout if state else None, wanted, behavior)
            columns_of(settled)
            if state is None or settled is not state.layout:
                run_sql(
                    t,
                    f"INSERT INTO {self.rows}._tables (name, layout) VALUES (%s, %s)"
                    " ON CONFLICT (name) DO UPDATE SET layout = excluded.layout",
                    (self.name, dump_layout(settled).decode()),
                )
            return settled

        return self.call(settle)

    def last_timestamp(self) -> int:
        """Return the greatest timestamp of any batch or barrier of any run, or 0."""
        state = self.state()
        return state.timestamp if state else 0

    def barrier(self) -> Barrier | None:
        """Return the newest barrier; None before the first."""
        state = self.state()
        return state.barrier if state else None

    def reached(self) -> Positions:
        """Return each source's position in the last barrier. Empty if there is none."""
        barrier = self.barrier()
        return barrier.positions if barrier else {}

    def open_run(self, run: str, committed: int) -> StoredState:
        """Return the state for a run. A new run gets an empty relation; what earlier runs left is dropped.

        Raises UsageError if the run has committed batches that the table lacks."""

        def opened(t: Transaction) -> StoredState:
            state = self.read_state(t, lock=True)
            assert state is not None, "settle_layout comes first"
            if state.run == run and self._exists(t, state.building):
                return state
            if committed >= 0:
                raise lacking(str(self.server), self.name, committed)
            building = relation_name(self.name, run)
            create_relation(t, self.server.schema, self.name, building, state.layout)
            run_sql(
                t,
                f"UPDATE {self.rows}._tables SET run = %s, building = %s, batch = -1, attempt = attempt + 1"
                " WHERE name = %s",
                (run, building, self.name),
            )
            found = self.read_state(t)
            assert found is not None
            return found

        state = self.call(opened)
        self.tidy()
        return state

    def _exists(self, t: Transaction, relation: str | None) -> bool:
        found = run_sql(t, "SELECT to_regclass(%s) IS NOT NULL", (f"{self.rows}.{quoted(relation or '')}",)).fetchone()
        return relation is not None and found == (True,)

    def begin_attempt(self, known: StoredState, timestamp: int) -> StoredState:
        """Begin an attempt of a batch: rows that earlier attempts staged are removed. Raises Fatal if another process
        has written the table since `known`."""

        def begin(t: Transaction) -> StoredState:
            state = self._mine(t, known, slack=1)  # 1: an earlier try has committed, and its answer was lost
            assert state.building is not None
            run_sql(t, f"TRUNCATE {self.rows}.{quoted(staging_of(state.building))}")
            run_sql(
                t,
                f"UPDATE {self.rows}._tables SET attempt = attempt + 1, timestamp = greatest(timestamp, %s)"
                " WHERE name = %s",
                (timestamp, self.name),
            )
            return replace(state, attempt=state.attempt + 1, timestamp=max(state.timestamp, timestamp))

        return self.call(begin)

    def _mine(self, t: Transaction, known: StoredState, slack: int = 0) -> StoredState:
        """Lock the table's state and return it. Its attempt is at most `slack` further than the known one."""
        state = self.read_state(t, lock=True)
        if state is None or state.run != known.run or not 0 <= state.attempt - known.attempt <= slack:
            raise Fatal(f"another process writes table {self.name} in {self.server}", "stop one of both joins")
        return state

    def commit_batch(
        self, known: StoredState, batch: int, timestamp: int, barrier: Barrier | None, *, swap: bool
    ) -> int:
        """Move the rows of the attempt `known` into the run's relation, and store batch and barrier, in one
        transaction. With `swap`, readers see the run's relation from then on. Does nothing twice.

        Return the number of rows that only the replaced relation had."""

        def commit(t: Transaction) -> int:
            state = self._mine(t, known)
            assert state.building is not None
            if state.batch < batch:
                move_rows(t, self.rows, state.building, state.layout, known.attempt, batch, timestamp)
                run_sql(
                    t,
                    f"UPDATE {self.rows}._tables SET batch = %s, timestamp = greatest(timestamp, %s) WHERE name = %s",
                    (batch, timestamp, self.name),
                )
            gone = self._swap(t, state) if swap and state.relation != state.building else 0
            if barrier is not None:
                run_sql(
                    t,
                    f"UPDATE {self.rows}._tables SET barrier = %s, timestamp = greatest(timestamp, %s) WHERE name = %s",
                    (barrier.to_bytes().decode(), barrier.timestamp, self.name),
                )
            return gone

        gone = self.call(commit)
        if swap:
            self.tidy()
        return gone

    def _swap(self, t: Transaction, state: StoredState) -> int:
        """Let readers see the run's relation, if the view shows this version of the table."""
        run_sql(t, _LOCKED)
        former = self._count(t, state.relation)
        run_sql(t, f"UPDATE {self.rows}._tables SET relation = building, served = layout WHERE name = %s", (self.name,))
        run_sql(
            t,
            f"INSERT INTO {self.rows}._views (name, version) VALUES (%s, %s) ON CONFLICT (name) DO NOTHING",
            (self.view, self.name),
        )
        point_view(t, self.server.schema, self.view)
        return max(0, former - self._count(t, state.building))

    def _count(self, t: Transaction, relation: str | None) -> int:
        if relation is None:
            return 0
        row = run_sql(t, f"SELECT count(*) FROM {self.rows}.{quoted(relation)}").fetchone()
        return int(row[0]) if row else 0

    def show(self) -> None:
        """Let the view show this version of the table. Raises UsageError if it has no complete result yet."""

        def show(t: Transaction) -> None:
            run_sql(t, _LOCKED)
            state = self.read_state(t, lock=True)
            if state is None or state.relation is None:
                raise UsageError(f"{self.name} has no complete result in {self.server}", "is its join running?")
            run_sql(
                t,
                f"INSERT INTO {self.rows}._views (name, version) VALUES (%s, %s)"
                " ON CONFLICT (name) DO UPDATE SET version = excluded.version",
                (self.view, self.name),
            )
            point_view(t, self.server.schema, self.view)

        self.call(show)

    def tidy(self) -> None:
        """Drop the relations of this table that neither readers nor the newest run use. One that is being read is left
        for the next time."""

        def stale(t: Transaction) -> list[str]:
            rows = run_sql(
                t,
                f"SELECT r.relation FROM {self.rows}._relations r JOIN {self.rows}._tables t ON t.name = r.name"
                " WHERE r.name = %s AND r.relation IS DISTINCT FROM t.relation"
                " AND r.relation IS DISTINCT FROM t.building",
                (self.name,),
            ).fetchall()
            return [row[0] for row in rows]

        for relation in self.call(stale):
            self.call(lambda t, relation=relation: self._drop_unused(t, relation))  # type: ignore[misc]

    def _drop_unused(self, t: Transaction, relation: str) -> None:
        try:
            with t.transaction():
                run_sql(t, _LOCKED)
                drop_relation(t, self.server.schema, relation)
        except psycopg.errors.LockNotAvailable:
            return

    def drop(self) -> None:
        """Delete the table's rows, its state, and its view if it shows this version."""

        def drop(t: Transaction) -> None:
            state = self.read_state(t, lock=True)
            if state is None:
                return
            schema = quoted(self.server.schema)
            shown = run_sql(t, f"DELETE FROM {self.rows}._views WHERE version = %s RETURNING name", (self.name,))
            for (name,) in shown.fetchall():
                run_sql(t, f"DROP VIEW IF EXISTS {schema}.{quoted(name)}")
            found = run_sql(t, f"SELECT relation FROM {self.rows}._relations WHERE name = %s", (self.name,)).fetchall()
            for (relation,) in found:
                drop_relation(t, self.server.schema, relation)
            run_sql(t, f"DELETE FROM {self.rows}._tables WHERE name = %s", (self.name,))

        if self.state() is not None:
            self.call(drop)

    def publish(self, known: StoredState, barrier: Barrier) -> bool:
        """Store a newer barrier if the table still contains exactly the barrier's batch. Return whether it does."""

        def publish(t: Transaction) -> bool:
            state = self._mine(t, known)
            if state.batch != barrier.batch or state.relation != state.building:
                return False
            run_sql(
                t,
                f"UPDATE {self.rows}._tables SET barrier = %s, timestamp = greatest(timestamp, %s) WHERE name = %s",
                (barrier.to_bytes().decode(), barrier.timestamp, self.name),
            )
            return True

        return self.call(publish)
