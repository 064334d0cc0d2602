"""Write a joined table to PostgreSQL, exactly once per batch (`joins.stores.postgres.pg_table`).

The tasks of a batch stage its rows with COPY. If PostgreSQL refuses some rows, the rest are staged without them: the
rows are halved until the refused ones are alone, and these become dead letters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import psycopg

from cdc.model.brokers import Brokers
from cdc.model.tls import PostgresServer
from cdc.model.types import Canonical
from cdc.stored.cells import Barrier, RowCodec
from cdc.stored.layout import Layout
from joins.query.plan import Plan
from joins.runtime.records import RefusedRecord, RowPut
from joins.runtime.sink import next_timestamp, unstorable
from joins.stores.kafka_open import OpenRecords
from joins.stores.postgres.pg_relations import staging_of
from joins.stores.postgres.pg_server import Transaction, pg_connection
from joins.stores.postgres.pg_table import PostgresTable
from joins.stores.postgres.relational import ATTEMPT, COMMITTED, GONE, KEY, LONGEST_KEY, TRACE, ToText, quoted, to_text
from joins.stores.sink_interfaces import Clock, Cut, Run, Writer
from joins.stores.staged import StagedRow, staging_writer
from joins.stores.stored_target import StoredTarget, barrier_of

Texts = tuple[str | None, ...]
# Errors about values: the class of invalid data, and index entries that are too long
_REFUSED = (psycopg.errors.DataError, psycopg.errors.ProgramLimitExceeded)


class PostgresTarget(StoredTarget[PostgresTable]):
    """A joined table in PostgreSQL."""

    def sink(self, run: Run, clock_ms: Clock) -> PostgresSink:
        """Return the writer for a run's next batches."""
        return PostgresSink(self.table, self.servers, run, clock_ms)


class PostgresSink:
    """Writes the batches of a run, each exactly once."""

    interval = 0.0
    by_row = False  # rows are staged in any order, and a put beats a delete

    def __init__(self, table: PostgresTable, servers: Brokers, run: Run, clock_ms: Clock) -> None:
        self.table, self._servers, self._clock_ms = table, servers, clock_ms
        self._state = table.open_run(run.id, run.committed)
        self._open: OpenRecords | None = None
        self._batch = self._timestamp = -1  # of the current batch

    def begin(self, batch: int) -> None:
        """Begin an attempt of the batch. Rows that former attempts staged are removed."""
        timestamp = next_timestamp(self._clock_ms(), self._state.timestamp)
        self._state = self.table.begin_attempt(self._state, timestamp)
        self._batch, self._timestamp = batch, timestamp

    def writer(self, plan: Plan, layout: Layout, batch: int) -> Writer:
        """Return the function that stages the batch's rows in PostgreSQL, and writes its dead letters to Kafka."""
        if self._open is None:
            self._open = OpenRecords(self._servers, layout.topology, layout.table)
        assert self._state.building is not None
        staging = Staging(
            server=self.table.server, relation=self._state.building, attempt=self._state.attempt, layout=layout
        )
        return staging_writer(
            plan, layout, batch, converter=partial(RowTexts, layout, staging.attempt), stage=partial(stage, staging),
            servers=self._servers, open_rows=self._open.refresh(),
        )  # fmt: skip

    def finish(self, cut: Cut | None) -> None:
        """Move the batch's rows into the table, and store its number and barrier in the same transaction."""
        self._commit(None if cut is None else barrier_of(cut, self._timestamp))

    def follow(self, cut: Cut, committed: int) -> bool:
        """Store newer source positions between batches.

        Return False, and store none, if the table contains another batch than that of the cut."""
        timestamp = next_timestamp(self._clock_ms(), self._state.timestamp)
        if not self.table.publish(self._state, barrier := barrier_of(cut, timestamp)):
            return False
        self._note(barrier.timestamp)
        return True

    def sweep(self) -> int:
        """Move the batch's rows, and let readers see the run's rows instead of those of the former run.

        Return the number by which there are fewer rows."""
        return self._commit(None, swap=True)

    def _commit(self, barrier: Barrier | None, *, swap: bool = False) -> int:
        return self.table.commit_batch(self._state, self._batch, self._timestamp, barrier, swap=swap)

    def _note(self, timestamp: int) -> None:
        self._state = replace(self._state, timestamp=max(timestamp, self._state.timestamp))


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """The place where the tasks of a batch stage its rows: a server, the run's relation, the number of the attempt."""

    server: PostgresServer
    relation: str
    attempt: int
    layout: Layout


def staged_columns(layout: Layout) -> tuple[str, ...]:
    """Return the columns of the staging relation."""
    own = (KEY,) if layout.nullable_key else ()
    return (*(column.name for column in layout.columns), *own, COMMITTED, TRACE, ATTEMPT, GONE)


class RowTexts:
    """Converts rows to texts, in the order of `staged_columns`."""

    def __init__(self, layout: Layout, attempt: int) -> None:
        self._layout, self._attempt = layout, str(attempt)
        self._codec = RowCodec(layout, longest_key=LONGEST_KEY)
        self._writers: dict[str, ToText] = {column.name: to_text(column.type) for column in layout.columns}

    def row(self, values: Mapping[str, Canonical], put: RowPut | None) -> Texts:
        """Return the texts of a row. Raises ValueError, TypeError, OverflowError, AttributeError or struct.error if it
        does not fit its layout."""
        row_key = self._codec.row_key(values)
        texts = [None if (value := values.get(name)) is None else write(value) for name, write in self._writers.items()]
        if self._layout.nullable_key:
            texts.append("\\x" + row_key.hex())
        texts += ["0", "\\x"] if put is None else [str(put.ts_ms), "\\x" + put.trace.hex()]
        return (*texts, self._attempt, "f" if put is not None else "t")


def stage(staging: Staging, rows: Sequence[StagedRow[Texts]]) -> list[RefusedRecord]:
    """Stage rows, and return those that PostgreSQL refuses. May be repeated: a row may be staged twice.

    Raises Retriable while the server is unavailable."""
    if not rows:
        return []
    target = f"{quoted(f'{staging.server.schema}_rows')}.{quoted(staging_of(staging.relation))}"
    command = f"COPY {target} ({', '.join(quoted(one) for one in staged_columns(staging.layout))}) FROM STDIN"

    def copied(t: Transaction) -> list[RefusedRecord]:
        return _copied(t, command, rows, staging.layout.table)

    return pg_connection(staging.server).transaction(copied)


def _copied(t: Transaction, command: str, rows: Sequence[StagedRow[Texts]], table: str) -> list[RefusedRecord]:
    try:
        with t.transaction(), t.cursor() as cursor, cursor.copy(command.encode()) as copy:
            for row in rows:
                copy.write_row(row.form)
        return []
    except _REFUSED as error:
        if len(rows) == 1:
            reason = ValueError(error.diag.message_primary or str(error))
            return [unstorable(table, rows[0].values, rows[0].key, reason)]
    half = len(rows) // 2
    return [*_copied(t, command, rows[:half], table), *_copied(t, command, rows[half:], table)]
