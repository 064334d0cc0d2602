"""Merge the rows of a batch into the data files of a table in Iceberg, and commit them with the table's state.

A commit replaces whole files: each bucket of a complete table has one, sorted by row key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io.pyarrow import ArrowScan, _dataframe_to_data_files
from pyiceberg.manifest import DataFile, ManifestFile
from pyiceberg.table import FileScanTask, Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import update_table_metadata
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import Record

from cdc.stored.layout import Layout
from joins.stores.iceberg.arrow_rows import BUCKET, KEY, TIMESTAMP, newest, stored_schema

STATE = "tailorbird.state"
ALL = AlwaysTrue()


@dataclass(slots=True)
class FileChanges:
    """The data files that a commit removes and adds."""

    removed: list[DataFile] = field(default_factory=list)
    added: list[DataFile] = field(default_factory=list)


def read_files(rows: Table, tasks: Iterable[FileScanTask], layout: Layout, where: BooleanExpression = ALL) -> pa.Table:
    """Return the stored rows in some data files, or those that satisfy a condition. `rows` is the table that the files
    were written for."""
    found = ArrowScan(rows.metadata, rows.io, rows.schema(), where).to_table(tasks)
    schema = stored_schema(layout)
    return found.select(schema.names).cast(schema)


def appended(rows: Table, added: pa.Table) -> FileChanges:
    """Return the files that append rows, which `merged` completes later."""
    return FileChanges(added=_written(rows, added))


def merged(rows: Table, added: pa.Table, layout: Layout, *, whole: bool) -> FileChanges:
    """Return the changes that merge rows into the table. With `whole` every bucket is merged, also one without new
    rows."""
    files = files_by_bucket(rows)
    buckets = set(pc.unique(added[BUCKET]).to_pylist()) | (files.keys() if whole else set())
    changes = FileChanges()
    for bucket in sorted(buckets):
        tasks = files.get(bucket, [])
        own = added.filter(pc.equal(added[BUCKET], bucket))
        changes.removed += [task.file for task in tasks]
        changes.added += _written(rows, newest(pa.concat_tables([read_files(rows, tasks, layout), own])))
    return changes


def without(rows: Table, gone: Mapping[bytes, int], layout: Layout) -> FileChanges:
    """Return the changes that delete rows, by row key, if they are older than a timestamp (ms)."""
    changes = FileChanges()
    keys = pa.array(list(gone), pa.large_binary())
    limits = pa.array(list(gone.values()), pa.int64())
    for tasks in files_of_keys(rows, gone).values():
        found = read_files(rows, tasks, layout)
        limit = limits.take(pc.index_in(found[KEY], keys))
        left = found.filter(pc.fill_null(pc.greater_equal(found[TIMESTAMP], limit), True))
        if len(left) < len(found):
            changes.removed += [task.file for task in tasks]
            changes.added += _written(rows, left)
    return changes


def files_by_bucket(rows: Table) -> dict[int, list[FileScanTask]]:
    """Return the data files of each bucket."""
    found = dict[int, list[FileScanTask]]()
    for task in rows.scan().plan_files():
        found.setdefault(int(task.file.partition[0]), []).append(task)
    return found


def files_of_keys(rows: Table, keys: Iterable[bytes]) -> dict[int, list[FileScanTask]]:
    """Return the data files of the buckets that contain some row keys."""
    buckets = {key[0] for key in keys}
    return {bucket: tasks for bucket, tasks in files_by_bucket(rows).items() if bucket in buckets}


def _written(rows: Table, added: pa.Table) -> list[DataFile]:
    if not len(added):
        return []
    # not public, but the only way to write files whose snapshot has properties and replaces others at once
    return list(_dataframe_to_data_files(rows.metadata, added, rows.io))


class QuickTransaction(Transaction):
    """A transaction that computes its table's metadata once per update, not at each of about twenty accesses: PyIceberg
    copies all snapshots each time."""

    _computed: tuple[int, TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """Return the metadata after the updates so far."""
        if self._computed is None or self._computed[0] != len(self._updates):
            self._computed = len(self._updates), update_table_metadata(self._table.metadata, self._updates)
        return self._computed[1]


class ReplacedFiles(_OverwriteFiles):
    """A snapshot that removes and adds data files. It forgets manifests without a live file, of which PyIceberg would
    keep one per snapshot forever."""

    def _existing_manifests(self) -> list[ManifestFile]:
        return [one for one in super()._existing_manifests() if one.has_added_files() or one.has_existing_files()]


def commit_files(transaction: Transaction, changes: FileChanges, state: str) -> None:
    """Commit changed files and the state as one snapshot. It fails if another snapshot was committed before."""
    operation = Operation.OVERWRITE if changes.removed else Operation.APPEND
    with ReplacedFiles(
        operation=operation, transaction=transaction, io=transaction._table.io, snapshot_properties={STATE: state}
    ) as producer:
        for one in changes.removed:
            producer.delete_data_file(one)
        for one in changes.added:
            producer.append_data_file(one)
    transaction.commit_transaction()


def difference(shown: Sequence[DataFile], stored: Sequence[DataFile]) -> FileChanges:
    """Return the changes that let a table without partitions show the files of another."""
    old, new = ({one.file_path: one for one in files} for files in (shown, stored))
    return FileChanges(
        removed=[one for path, one in old.items() if path not in new],
        added=[_unpartitioned(one) for path, one in new.items() if path not in old],
    )


def _unpartitioned(file: DataFile) -> DataFile:
    copy = DataFile.from_args(
        content=file.content, file_path=file.file_path, file_format=file.file_format, partition=Record(),
        record_count=file.record_count, file_size_in_bytes=file.file_size_in_bytes, column_sizes=file.column_sizes,
        value_counts=file.value_counts, null_value_counts=file.null_value_counts,
        nan_value_counts=file.nan_value_counts, lower_bounds=file.lower_bounds, upper_bounds=file.upper_bounds,
        key_metadata=file.key_metadata, split_offsets=file.split_offsets, equality_ids=file.equality_ids,
        sort_order_id=file.sort_order_id,
    )  # fmt: skip
    copy.spec_id = 0
    return copy
