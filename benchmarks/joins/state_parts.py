"""Measure the parts of a checkpoint's state: the bytes that a restart reads, and the bytes of older batches.

A store's folder contains snapshots (`3.zip`, which names its files in `SSTs/`) and a compressed changelog for each
batch (`4.changelog`), of the last `spark.sql.streaming.minBatchesToRetain` batches. A restart reads the newest snapshot
and the changelogs after it. Flink's folder contains one checkpoint, and its restart reads all of it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile


@dataclass(frozen=True, slots=True, kw_only=True)
class StateParts:
    """Bytes of the newest snapshots, of the changelogs after them, and of all other files."""

    snapshot: int = 0
    changelogs: int = 0
    older: int = 0

    @property
    def restart(self) -> int:
        """Bytes that a restart reads."""
        return self.snapshot + self.changelogs


def state_parts(folder: Path) -> StateParts:
    """Return the parts of `<checkpoint>/state`; zeros if it does not exist."""
    stores = {file.parent for file in folder.rglob("*.changelog")} | {file.parent for file in folder.rglob("*.zip")}
    snapshot = sum(_snapshot(store) for store in stores)
    changelogs = sum(_changelogs(store) for store in stores)
    all_of_it = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return StateParts(snapshot=snapshot, changelogs=changelogs, older=all_of_it - snapshot - changelogs)


def _newest(store: Path) -> int:
    """Return the version of a store's newest snapshot; 0 if there is none yet."""
    return max((int(file.stem) for file in store.glob("*.zip")), default=0)


def _snapshot(store: Path) -> int:
    if not (newest := _newest(store)):
        return 0
    file = store / f"{newest}.zip"
    with ZipFile(file) as archive:
        reported = archive.read("metadata").decode()
    # the first line is the format's version
    tables = json.loads(reported.partition("\n")[2]).get("sstFiles", [])
    return file.stat().st_size + sum(int(table["sizeBytes"]) for table in tables)


def _changelogs(store: Path) -> int:
    newest = _newest(store)
    return sum(file.stat().st_size for file in store.glob("*.changelog") if int(file.stem) > newest)
