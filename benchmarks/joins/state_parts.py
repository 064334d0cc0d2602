"""Where the bytes of a checkpoint's state lie: what a restart reads, and what older batches left there.

A store's folder holds snapshots (`3.zip`, which names its files in `SSTs/`), a changelog for each batch (`4.changelog`,
compressed), and all of these of the last batches, `spark.sql.streaming.minBatchesToRetain` of them. A restart reads the
newest snapshot and the changelogs behind it. Flink's folder holds one checkpoint, which is all that its restart reads.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from zipfile import ZipFile


@dataclass(frozen=True, slots=True, kw_only=True)
class StateParts:
    """Bytes: of the newest snapshots, of the changelogs behind them, of all the rest."""

    snapshot: int = 0
    changelogs: int = 0
    older: int = 0

    @property
    def restart(self) -> int:
        """What a restart reads."""
        return self.snapshot + self.changelogs


def state_parts(folder: Path) -> StateParts:
    """The parts of `<checkpoint>/state`; zeros where there is none."""
    stores = {file.parent for file in folder.rglob("*.changelog")} | {file.parent for file in folder.rglob("*.zip")}
    snapshot = sum(_snapshot(store) for store in stores)
    changelogs = sum(_changelogs(store) for store in stores)
    all_of_it = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
    return StateParts(snapshot=snapshot, changelogs=changelogs, older=all_of_it - snapshot - changelogs)


def _newest(store: Path) -> int:
    """The version of a store's newest snapshot; 0 where none was made yet."""
    return max((int(file.stem) for file in store.glob("*.zip")), default=0)


def _snapshot(store: Path) -> int:
    if not (newest := _newest(store)):
        return 0
    file = store / f"{newest}.zip"
    with ZipFile(file) as archive:
        reported = archive.read("metadata").decode()
    # a first line tells the format's version
    tables = json.loads(reported.partition("\n")[2]).get("sstFiles", [])
    return file.stat().st_size + sum(int(table["sizeBytes"]) for table in tables)


def _changelogs(store: Path) -> int:
    newest = _newest(store)
    return sum(file.stat().st_size for file in store.glob("*.changelog") if int(file.stem) > newest)
