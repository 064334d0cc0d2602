"""Stage the rows of a batch in the store of a sink that commits them later, in one step: the function that each Spark
partition runs. `joins.stores.postgres` and `joins.stores.iceberg` use it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Generic, Protocol, TypeVar

import pyarrow as pa

from cdc.model.brokers import Brokers
from cdc.model.naming import dead_letter_topic
from cdc.model.types import Canonical
from cdc.stored.layout import Layout
from joins.query.plan import Plan
from joins.runtime.chunks import folded
from joins.runtime.records import Record, RefusedRecord, RowGone, RowPut, TruncationPoint, Values
from joins.runtime.sink import (
    OpenRow,
    Report,
    dead_letter,
    late_among,
    plain,
    settlements,
    unstorable,
)
from joins.stores.arrow_messages import messages_of, report_batch
from joins.stores.evolution import fitted, places
from joins.stores.kafka_log import send_dead_letters
from joins.stores.proc_retry import as_long_as_it_takes
from joins.stores.sink_interfaces import Writer

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)
_UNFIT = (ValueError, TypeError, OverflowError, AttributeError, struct.error)


class RowConverter(Protocol[R_co]):
    """Converts rows to the form in which a store stages them."""

    def row(self, values: Mapping[str, Canonical], put: RowPut | None) -> R_co:
        """Return the staged form of a row: a put, or a delete with only the values of the row key.

        Raises ValueError, TypeError, OverflowError, AttributeError or struct.error if it does not fit its layout."""


@dataclass(frozen=True, slots=True)
class StagedRow(Generic[R]):
    """A row as it is staged, and the values that a dead-letter record shows if the store refuses it."""

    form: R
    is_delete: bool
    values: object
    key: Values


class Stage(Protocol[R]):
    """Stages rows in a store."""

    def __call__(self, rows: Sequence[StagedRow[R]]) -> list[RefusedRecord]:
        """Stage rows, and return those that the store refuses. May be repeated: a row may be staged twice."""


@dataclass(slots=True)
class StagedRows(Generic[R]):
    """The staged rows of some records, and the records that are not staged."""

    rows: list[StagedRow[R]] = field(default_factory=list)
    refused: list[RefusedRecord] = field(default_factory=list)
    truncation_points: list[TruncationPoint] = field(default_factory=list)


def staged_rows(records: Iterable[Record], layout: Layout, convert: RowConverter[R]) -> StagedRows[R]:
    """Convert records. A row that does not fit its layout becomes a `RefusedRecord`."""
    found, names = StagedRows[R](), [column.name for column in layout.columns]
    key_places = [names.index(name) for name in layout.row_key]

    def add(values: Mapping[str, Canonical], shown: object, key: Values, put: RowPut | None) -> None:
        try:
            found.rows.append(StagedRow(convert.row(values, put), put is None, shown, key))
        except _UNFIT as error:
            found.refused.append(unstorable(layout.table, shown, key, error))

    for record in records:
        match record:
            case RowPut():
                key = [record.values[place] for place in key_places]
                add(dict(zip(names, record.values, strict=True)), record.values, key, record)
            case RowGone() if not layout.may_hold(record.row_key):
                continue  # no stored row has such a key: an inner join on the NULL hides it
            case RowGone():
                add(dict(zip(layout.row_key, record.row_key, strict=True)), record.row_key, record.row_key, None)
            case RefusedRecord():
                found.refused.append(record)
            case TruncationPoint():
                found.truncation_points.append(record)
            case _:
                raise AssertionError(f"{type(record).__name__} in the result")
    return found


def staging_writer(
    plan: Plan,
    layout: Layout,
    batch: int,
    *,
    converter: Callable[[], RowConverter[R]],
    stage: Stage[R],
    servers: Brokers,
    open_rows: Mapping[str, OpenRow],
) -> Writer:
    """Return the function that each partition runs: it stages all messages and returns one report.

    `open_rows` as in `joins.stores.hbase_sink.hbase_writer`."""
    dead_letters = dead_letter_topic(layout.topology)

    def write(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        report, convert = Report(), converter()
        indexes = places(layout, {output.name: output.index for output in plan.outputs})
        some = messages_of(batches)
        for messages in some if plan.folds else folded(chain.from_iterable(some)):
            staged = staged_rows((fitted(message, indexes) for message in messages), layout, convert)
            unfit = as_long_as_it_takes(partial(stage, staged.rows))
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


def _reported(staged: StagedRows[R], refused: Sequence[RefusedRecord], unfit: int) -> Report:
    gone = sum(row.is_delete for row in staged.rows)
    return Report(
        rows_put=len(staged.rows) - gone - unfit,
        rows_gone=gone,
        refused=len(refused),
        late=late_among(refused),
        truncation_points=plain(staged.truncation_points),
    )
