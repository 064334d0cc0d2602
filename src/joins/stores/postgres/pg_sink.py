"""Write a joined table to PostgreSQL, exactly once per batch (`joins.stores.postgres.pg_table`).

The tasks of a batch stage its rows with COPY. If PostgreSQL refuses some rows, the rest are staged without them: the
rows are halved until the refused ones are alone, and these become dead letters."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain

import psycopg
import pyarrow as pa

from cdc.model.brokers import Brokers
from cdc.model.naming import dead_letter_topic
from cdc.model.tls import PostgresServer
from cdc.model.types import Canonical
from cdc.stored.cells import Barrier, RowCodec
from cdc.stored.layout import Layout
from cdc.topology.topology import SchemaChangeBehavior
from joins.query.plan import Plan
from joins.runtime.chunks import folded
from joins.runtime.cuts import Positions
from joins.runtime.records import Record, RefusedRecord, RowGone, RowPut, TruncationPoint, Values
from joins.runtime.sink import (
    OpenRow,
    Report,
    barriers,
    dead_letter,
    late_among,
    next_timestamp,
    plain,
    settlements,
    unstorable,
)
from joins.stores.arrow_messages import messages_of, report_batch
from joins.stores.evolution import fitted, places
from joins.stores.kafka_log import send_dead_letters
from joins.stores.kafka_open import OpenRecords
from joins.stores.postgres.pg_relations import staging_of
from joins.stores.postgres.pg_server import Transaction, pg_connection
from joins.stores.postgres.pg_table import PostgresTable
from joins.stores.postgres.relational import ATTEMPT, COMMITTED, GONE, KEY, LONGEST_KEY, TRACE, ToText, quoted, to_text
from joins.stores.proc_retry import as_long_as_it_takes
from joins.stores.sink_interfaces import Clock, Cut, Run, Writer

_UNFIT = (ValueError, TypeError, OverflowError, AttributeError, struct.error)
# Errors about values: the class of invalid data, and index entries that are too long
_REFUSED = (psycopg.errors.DataError, psycopg.errors.ProgramLimitExceeded)


class PostgresTarget:
    """A joined table in PostgreSQL. `servers` are the Kafka brokers for dead letters."""

    def __init__(self, table: PostgresTable, servers: Brokers) -> None:
        self.table, self.servers = table, servers

    def check(self, file: str) -> None:
        """Create the schemas if they are missing. Raises UsageError if the name is taken or a privilege is missing."""
        self.table.check(file)

    def settle_layout(self, layout: Layout, behavior: SchemaChangeBehavior) -> Layout:
        """Return the layout to write (`joins.stores.evolution`), and store it if it is new."""
        return self.table.settle_layout(layout, behavior)

    def first_timestamp(self, now_ms: int) -> int:
        """Return a timestamp that is greater than that of every write so far."""
        return next_timestamp(now_ms, self.table.last_timestamp())

    def reached(self) -> Positions:
        """Return the source positions in the last barrier."""
        return self.table.reached()

    def sink(self, run: Run, clock_ms: Clock) -> PostgresSink:
        """Return the writer for a run's next batches."""
        return PostgresSink(self.table, self.servers, run, clock_ms)


class PostgresSink:
    """Writes the batches of a run, each exactly once."""

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
        return postgres_writer(plan, staging, batch, servers=self._servers, open_rows=self._open.refresh())

    def finish(self, cut: Cut | None) -> None:
        """Move the batch's rows into the table, and store its number and barrier in the same transaction."""
        self._commit(None if cut is None else self._barrier(cut, self._timestamp))

    def follow(self, cut: Cut, committed: int) -> bool:
        """Store newer source positions between batches.

        Return False, and store none, if the table contains another batch than that of the cut."""
        timestamp = next_timestamp(self._clock_ms(), self._state.timestamp)
        if not self.table.publish(self._state, barrier := self._barrier(cut, timestamp)):
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

    def _barrier(self, cut: Cut, timestamp: int) -> Barrier:
        (barrier,) = barriers(
            1, cut.batch, timestamp, cut.positions,
            ends=cut.ends, incomplete=cut.incomplete, watermark=cut.watermark, clock=cut.clock,
        )  # fmt: skip
        return barrier


@dataclass(frozen=True, slots=True, kw_only=True)
class Staging:
    """The place where the tasks of a batch stage its rows: a server, the run's relation, the number of the attempt."""

    server: PostgresServer
    relation: str
    attempt: int
    layout: Layout


@dataclass(frozen=True, slots=True)
class StagedRow:
    """A row of the staging relation, and the values that a dead-letter record shows if PostgreSQL refuses it."""

    fields: tuple[str | None, ...]
    values: object
    key: Values


@dataclass(slots=True)
class StagedRows:
    """The staged rows of some records, and the records that are not staged."""

    rows: list[StagedRow] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    truncation_points: list[TruncationPoint] = field(default_factory=list)


class RowTexts:
    """Converts records to rows of the staging relation, in the order of `columns`."""

    def __init__(self, layout: Layout, attempt: int) -> None:
        self._layout, self._attempt = layout, str(attempt)
        self._codec = RowCodec(layout, longest_key=LONGEST_KEY)
        self._writers: dict[str, ToText] = {column.name: to_text(column.type) for column in layout.columns}
        self._key_places = [list(self._writers).index(name) for name in layout.row_key]
        own = (KEY,) if layout.nullable_key else ()
        self.columns = (*self._writers, *own, COMMITTED, TRACE, ATTEMPT, GONE)

    def of(self, records: Iterable[Record]) -> StagedRows:
        """Convert records. A row that does not fit its layout becomes a `RefusedRecord`."""
        found, layout = StagedRows(), self._layout
        for record in records:
            match record:
                case RowPut():
                    key = [record.values[place] for place in self._key_places]
                    self._add(found, dict(zip(self._writers, record.values, strict=True)), record.values, key, record)
                case RowGone() if not layout.may_hold(record.row_key):
                    continue  # no stored row has such a key: an inner join on the NULL hides it
                case RowGone():
                    known = dict(zip(layout.row_key, record.row_key, strict=True))
                    self._add(found, known, record.row_key, record.row_key, None)
                case RefusedRecord():
                    found.refused.append(record)
                case TruncationPoint():
                    found.truncation_points.append(record)
                case _:
                    raise AssertionError(f"{type(record).__name__} in the result")
        return found

    def _add(
        self, found: StagedRows, values: Mapping[str, Canonical], shown: object, key: Values, put: RowPut | None
    ) -> None:
        try:
            row_key = self._codec.row_key(values)
            texts = [
                None if (value := values.get(name)) is None else write(value) for name, write in self._writers.items()
            ]
        except _UNFIT as error:
            found.refused.append(unstorable(self._layout.table, shown, key, error))
            return
        if self._layout.nullable_key:
            texts.append("\\x" + row_key.hex())
        texts += ["0", "\\x"] if put is None else [str(put.ts_ms), "\\x" + put.trace.hex()]
        texts += [self._attempt, "f" if put is not None else "t"]
        found.rows.append(StagedRow(tuple(texts), shown, key))


def postgres_writer(
    plan: Plan, staging: Staging, batch: int, *, servers: Brokers, open_rows: Mapping[str, OpenRow]
) -> Writer:
    """Return the function that each partition runs: it stages all messages and returns one report.

    `open_rows` as in `joins.stores.hbase_sink.hbase_writer`."""
    layout = staging.layout
    dead_letters = dead_letter_topic(layout.topology)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report, texts = Report(), RowTexts(layout, staging.attempt)
        indexes = places(layout, {output.name: output.index for output in plan.outputs})
        some = messages_of(batches)
        for messages in some if plan.folds else folded(chain.from_iterable(some)):
            staged = texts.of(fitted(message, indexes) for message in messages)
            unfit = as_long_as_it_takes(partial(stage, staging, texts.columns, staged.rows))
            refused = [*staged.refused, *unfit]
            if dead_letter_records := [dead_letter(one, layout.table, batch) for one in refused]:
                as_long_as_it_takes(partial(send_dead_letters, servers, dead_letters, dead_letter_records))
            if open_rows:
                settled, count = settlements(messages, refused, open_rows, layout.table)
                if settled:
                    as_long_as_it_takes(partial(send_dead_letters, servers, dead_letters, settled))
                report.settled += count
            report.merge(_reported(staged, refused, len(unfit)))
        yield report_batch(report)

    return write


def _reported(staged: StagedRows, refused: Sequence[RefusedRecord], unfit: int) -> Report:
    gone = sum(row.fields[-1] == "t" for row in staged.rows)
    return Report(
        rows_put=len(staged.rows) - gone - unfit,
        rows_gone=gone,
        refused=len(refused),
        late=late_among(refused),
        truncation_points=plain(staged.truncation_points),
    )


def stage(staging: Staging, columns: Sequence[str], rows: Sequence[StagedRow]) -> list[RefusedRecord]:
    """Stage rows, and return those that PostgreSQL refuses. May be repeated: a row may be staged twice.

    Raises Retriable while the server is unavailable."""
    if not rows:
        return []
    target = f"{quoted(f'{staging.server.schema}_rows')}.{quoted(staging_of(staging.relation))}"
    command = f"COPY {target} ({', '.join(quoted(one) for one in columns)}) FROM STDIN"

    def copied(t: Transaction) -> list[RefusedRecord]:
        return _copied(t, command, rows, staging.layout.table)

    return pg_connection(staging.server).transaction(copied)


def _copied(t: Transaction, command: str, rows: Sequence[StagedRow], table: str) -> list[RefusedRecord]:
    try:
        with t.transaction(), t.cursor() as cursor, cursor.copy(command.encode()) as copy:
            for row in rows:
                copy.write_row(row.fields)
        return []
    except _REFUSED as error:
        if len(rows) == 1:
            reason = ValueError(error.diag.message_primary or str(error))
            return [unstorable(table, rows[0].values, rows[0].key, reason)]
    half = len(rows) // 2
    return [*_copied(t, command, rows[:half], table), *_copied(t, command, rows[half:], table)]
