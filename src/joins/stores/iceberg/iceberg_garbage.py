"""Expire old snapshots of joined tables in Iceberg, and delete the files that only they used."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from joins.stores.iceberg.iceberg_server import remove_files


def collect(expiring: Sequence[Table], others: Sequence[Table], *, before_ms: int) -> int:
    """Expire the snapshots of tables that were replaced before `before_ms`. Return the number of deleted files.

    A file that any other snapshot uses is kept, also if it is one of the `others`. If this is interrupted, some unused
    files remain."""
    expired = [_replaced(table, before_ms) for table in expiring]
    if not any(expired):
        return 0
    kept_manifests, kept_files = set[str](), set[str]()
    for table, old in zip([*expiring, *others], [*expired, *([] for _ in others)], strict=True):
        manifests = _manifests(table, [one for one in table.snapshots() if one not in old])
        kept_manifests |= manifests.keys()
        kept_files |= _data_files(table, manifests.values())
    deleted = 0
    for table, old in zip(expiring, expired, strict=True):
        if not old:
            continue
        manifests = {path: one for path, one in _manifests(table, old).items() if path not in kept_manifests}
        files = _data_files(table, manifests.values()) - kept_files
        update = table.maintenance.expire_snapshots()
        for one in old:
            update = update.by_id(one.snapshot_id)
        update.commit()
        deleted += remove_files(table, [*sorted(files), *sorted(manifests), *(one.manifest_list for one in old)])
    return deleted


def files_in(table: Table | None) -> set[str]:
    """Return the data files of all snapshots of a table."""
    if table is None:
        return set()
    return _data_files(table, _manifests(table, table.snapshots()).values())


def _replaced(table: Table, before_ms: int) -> list[Snapshot]:
    """Return the snapshots that another one replaced before a time, except those of branches and tags."""
    heads = {ref.snapshot_id for ref in table.metadata.refs.values()}
    ordered = sorted(table.snapshots(), key=lambda one: one.sequence_number or 0)
    return [one for one, later in pairwise(ordered) if later.timestamp_ms < before_ms and one.snapshot_id not in heads]


def _manifests(table: Table, snapshots: Iterable[Snapshot]) -> dict[str, ManifestFile]:
    return {one.manifest_path: one for snapshot in snapshots for one in snapshot.manifests(table.io)}


def _data_files(table: Table, manifests: Iterable[ManifestFile]) -> set[str]:
    entries = (entry for one in manifests for entry in one.fetch_manifest_entry(table.io, discard_deleted=True))
    return {entry.data_file.file_path for entry in entries}
